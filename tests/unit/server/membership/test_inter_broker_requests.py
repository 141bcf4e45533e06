"""Requests to other brokers for transactions, and the outcome of their answers or their silence."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.common.errors import ErrorCode
from kafkalite.config.listeners import ListenerConfig
from kafkalite.coordinator.add_partitions_manager import AddPartitionsRequest
from kafkalite.coordinator.marker_writer import TransactionMarker
from kafkalite.metadata.cluster_metadata import BrokerRecord
from kafkalite.protocol.apis import API_OF_REQUEST
from kafkalite.protocol.codec.codec import decode
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.header import decode_request_header, response_frame
from kafkalite.protocol.messages.metadata import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kafkalite.protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kafkalite.server.membership.inter_broker_requests import InterBrokerRequests, inter_broker_endpoints
from tests.support.in_memory_cluster import InMemoryCluster
from tests.support.manual_clock import ManualClock
from tests.support.wait import DEADLINE_S

NEWER, OLDER = (
    ApiVersionsResponse(api_keys=[ApiVersion(api_key=27, min_version=0, max_version=newest)]) for newest in (2, 1)
)
MARKER = TransactionMarker(producer_id=7, producer_epoch=3, coordinator_epoch=5, commit=True)


def test_the_named_listener_is_asked_and_without_one_any_plain_one() -> None:
    plain, tls = ListenerConfig("OUT", "h", 1), ListenerConfig("TLS", "h", 2, "SSL")
    inner = ListenerConfig("IN", "h", 3)
    broker = BrokerRecord(1, (plain, tls, inner))
    assert inter_broker_endpoints(broker, inner) == [inner]
    assert inter_broker_endpoints(broker, None) == [plain, inner]
    assert inter_broker_endpoints(broker, ListenerConfig("NEW", "h", 4)) == [plain, inner]


def test_brokers_that_are_to_use_tls_never_do_without() -> None:
    plain, tls = ListenerConfig("OUT", "h", 1), ListenerConfig("TLS", "h", 2, "SSL")
    assert inter_broker_endpoints(BrokerRecord(1, (plain, tls)), tls) == [tls]
    assert inter_broker_endpoints(BrokerRecord(1, (plain,)), tls) == []
    assert inter_broker_endpoints(BrokerRecord(1, (plain, tls._replace(protocol="PLAINTEXT"))), tls) == []


def ask(
    kind: type[Message],
    answer: Callable[[Any], Message | None],
    *sends: Callable[[InterBrokerRequests, Any], None],
    is_older: bool = False,
    versions: list[tuple[int, int]] | None = None,
) -> Any:
    """The result that the callback of the last of `sends` gets from a broker 2 that gives `answer` to requests of this
    `kind`. `versions` gets the key and version of every request; `is_older`: the broker is a Kafka 3.9."""
    versions = [] if versions is None else versions

    async def story() -> Any:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(EOFError):
                while True:
                    frame = memoryview(await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big")))
                    (key, version, correlation_id, client_id), position = decode_request_header(frame)
                    versions.append((key, version))
                    assert client_id == "broker-1"
                    if key == API_OF_REQUEST[ApiVersionsRequest].key:
                        writer.writelines(response_frame(OLDER if is_older else NEWER, version, correlation_id))
                        continue
                    assert key == API_OF_REQUEST[kind].key
                    response = answer(decode(kind, version, frame, position)[0])
                    if response is None:
                        break
                    writer.writelines(response_frame(response, version, correlation_id))
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        cluster = InMemoryCluster()
        cluster.brokers[2] = BrokerRecord(2, (ListenerConfig("PLAINTEXT", host, port),))
        requests = InterBrokerRequests(cluster.metadata(1), 1, None, ManualClock())
        try:
            for send in sends:
                result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                send(requests, result.set_result)
                last = await asyncio.wait_for(result, DEADLINE_S)
            return last
        finally:
            await requests.close()
            server.close()

    return asyncio.run(story())


def test_markers() -> None:
    def answer(request: WriteTxnMarkersRequest) -> Message:
        (marker,) = request.markers
        assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 3, 5)
        assert marker.transaction_result
        assert {each.name: each.partition_indexes for each in marker.topics} == {"a": [0, 2], "b": [1]}
        rows = {("a", 0): 0, ("a", 2): ErrorCode.NOT_LEADER_OR_FOLLOWER, ("b", 1): 32_000}
        topics = [
            WritableTxnMarkerTopicResult(
                name=name, partitions=[WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)]
            )
            for (name, index), code in rows.items()
        ]
        return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=7, topics=topics)])

    result = ask(
        WriteTxnMarkersRequest,
        answer,
        lambda requests, done: requests.send_markers(2, MARKER, [("a", 0), ("a", 2), ("b", 1)], done),
    )
    assert result == {
        ("a", 0): ErrorCode.NONE,
        ("a", 2): ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ("b", 1): ErrorCode.UNKNOWN_SERVER_ERROR,
    }


@pytest.mark.parametrize("is_older", [False, True])
def test_markers_of_transaction_version_2_say_so_to_brokers_that_know_it(is_older: bool) -> None:
    """A Kafka 3.9 in the same cluster closes the connection of a version that it does not have."""
    given: list[tuple[int, int]] = []

    def answer(request: WriteTxnMarkersRequest) -> Message:
        assert request.markers[0].transaction_version == (0 if is_older or len(given) == 1 else 2)
        return WriteTxnMarkersResponse()

    def send(marker: TransactionMarker) -> Callable[[InterBrokerRequests, Any], None]:
        return lambda requests, done: requests.send_markers(2, marker, [("a", 0)], done)

    newer = MARKER._replace(transaction_version=2)
    markers, versions = (API_OF_REQUEST[kind].key for kind in (WriteTxnMarkersRequest, ApiVersionsRequest))
    ask(WriteTxnMarkersRequest, answer, *map(send, (MARKER, newer, newer)), is_older=is_older, versions=given)
    known = 1 if is_older else 2
    assert given == [(markers, 1), (versions, 0), (markers, known), (markers, known)]


def test_markers_that_a_broker_does_not_answer_are_left_out() -> None:
    for broker_id in (2, 3):
        result = ask(
            WriteTxnMarkersRequest,
            lambda request: None,
            lambda requests, done, to=broker_id: requests.send_markers(to, MARKER, [("a", 0)], done),
        )
        assert result == {}


ADD = AddPartitionsRequest("t", 7, 3, (("a", 0), ("a", 1)), adds=True)
VERIFY = AddPartitionsRequest("u", 8, 0, (("b", 0),), adds=False)


def test_partitions_to_add_and_to_verify() -> None:
    def answer(request: AddPartitionsToTxnRequest) -> Message:
        assert [(each.transactional_id, each.verify_only) for each in request.transactions] == [
            ("t", False),
            ("u", True),
        ]
        results = [
            AddPartitionsToTxnResult(
                transactional_id=each.transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(
                                partition_index=index, partition_error_code=ErrorCode.INVALID_TXN_STATE if index else 0
                            )
                            for index in topic.partitions
                        ],
                    )
                    for topic in each.topics
                ],
            )
            for each in request.transactions
        ]
        return AddPartitionsToTxnResponse(results_by_transaction=results)

    result = ask(
        AddPartitionsToTxnRequest,
        answer,
        lambda requests, done: requests.send_add_partitions(2, [ADD, VERIFY], done),
    )
    assert result == {
        "t": {("a", 0): ErrorCode.NONE, ("a", 1): ErrorCode.INVALID_TXN_STATE},
        "u": {("b", 0): ErrorCode.NONE},
    }


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (None, ErrorCode.NETWORK_EXCEPTION),
        (
            AddPartitionsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE),
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ),
    ],
)
def test_an_error_for_all(answer: Message | None, expected: ErrorCode) -> None:
    result = ask(
        AddPartitionsToTxnRequest,
        lambda request: answer,
        lambda requests, done: requests.send_add_partitions(2, [VERIFY], done),
    )
    assert result == expected


async def _beside_a_silent_broker() -> tuple[asyncio.Server, InterBrokerRequests, asyncio.Event]:
    """A broker 2 that never answers, the requests to it, and the event that it was asked."""

    async def serve(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        asked.set()
        await reader.read()

    asked = asyncio.Event()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    cluster = InMemoryCluster()
    cluster.brokers[2] = BrokerRecord(2, (ListenerConfig("PLAINTEXT", host, port),))
    return server, InterBrokerRequests(cluster.metadata(1), 1, None, ManualClock()), asked


def test_a_stop_ends_what_is_under_way() -> None:
    async def story() -> None:
        server, requests, asked = await _beside_a_silent_broker()
        results: list[Any] = []
        requests.send_markers(2, MARKER, [("a", 0)], results.append)
        await asyncio.wait_for(asked.wait(), DEADLINE_S)
        await requests.close()
        assert results in ([], [{}])
        server.close()

    asyncio.run(story())


def test_a_broker_that_stops_waits_for_no_other() -> None:
    """A produce that is being verified holds up the stop until it is answered."""

    async def story() -> None:
        server, requests, asked = await _beside_a_silent_broker()
        for is_first in (True, False):
            result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            requests.send_add_partitions(2, [VERIFY], result.set_result)
            if is_first:
                await asyncio.wait_for(asked.wait(), DEADLINE_S)
                requests.refuse()
            assert await asyncio.wait_for(result, DEADLINE_S) == ErrorCode.NETWORK_EXCEPTION
        await requests.close()
        server.close()

    asyncio.run(story())
