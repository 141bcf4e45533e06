"""Requests to other brokers that this broker's coordinators and its partitions need for transactions.

WriteTxnMarkers goes from the coordinator of a transaction to the leaders of its partitions, AddPartitionsToTxn from the
leader of a partition to the coordinator. Both are sent over one connection to each broker; the callers try again.
A broker is asked for its versions only where a newer one says more: Apache Kafka 3.9 may be in the same cluster.
Source: kafka.coordinator.transaction.TransactionMarkerChannelManager, kafka.server.AddPartitionsToTxnManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from kafkalite.client.broker_channel import (
    BrokerChannels,
    BrokerUnreachable,
    FindEndpoint,
    SecurityTo,
    without_security,
)
from kafkalite.common.clock import Clock
from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import TopicPartition
from kafkalite.config.listeners import ListenerConfig
from kafkalite.coordinator.add_partitions_manager import AddPartitionsRequest, AddPartitionsResponse
from kafkalite.coordinator.marker_writer import TransactionMarker
from kafkalite.metadata.cluster_metadata import BrokerRecord, ClusterMetadata
from kafkalite.protocol.apis import API_OF_REQUEST
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.messages.metadata import ApiVersionsRequest
from kafkalite.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

logger = logging.getLogger(__name__)

_WRITE_TXN_MARKERS_VERSION = 1
_VERSION_WITH_TRANSACTION_VERSION = 2
_ADD_PARTITIONS_VERSION = 5
_TIMEOUT_MS = 30_000  # request.timeout.ms


class InterBrokerRequests:
    """Sends requests in tasks of their own; `close` cancels them. `listener` is the one that brokers use, if given."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        broker_id: int,
        listener: ListenerConfig | None,
        clock: Clock,
        security_to: SecurityTo = without_security,
    ) -> None:
        find = inter_broker_endpoint_finder(metadata, listener)
        self._channels = BrokerChannels(find, clock, f"broker-{broker_id}", _TIMEOUT_MS, security_to)
        self._tasks: set[asyncio.Task[None]] = set()
        self._newest_of_markers: dict[int, int] = {}  # by broker: its newest version of WriteTxnMarkers

    def send_markers(
        self,
        broker_id: int,
        marker: TransactionMarker,
        partitions: Collection[TopicPartition],
        done: Callable[[Mapping[TopicPartition, ErrorCode]], None],
    ) -> None:
        """The `SendMarkers` of a marker writer: partitions without an answer are left out of the result."""
        topics = [WritableTxnMarkerTopic(name=name, partition_indexes=each) for name, each in _by_topic(partitions)]
        row = WritableTxnMarker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            transaction_result=marker.commit,
            topics=topics,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
        )
        needs_newer = marker.transaction_version >= _VERSION_WITH_TRANSACTION_VERSION
        version = _VERSION_WITH_TRANSACTION_VERSION if needs_newer else _WRITE_TXN_MARKERS_VERSION

        def on_response(response: Any) -> None:
            done(
                {
                    (topic.name, each.partition_index): ErrorCode.of(each.error_code)
                    for result in (response.markers if response is not None else ())
                    for topic in result.topics
                    for each in topic.partitions
                }
            )

        ask = partial(self._ask_for_markers, broker_id, WriteTxnMarkersRequest(markers=[row]), version)
        self._send(broker_id, "WriteTxnMarkers", ask, on_response)

    def send_add_partitions(
        self,
        broker_id: int,
        requests: Sequence[AddPartitionsRequest],
        done: Callable[[AddPartitionsResponse], None],
    ) -> None:
        """The `Send` of an AddPartitionsToTxnManager."""
        rows = [
            AddPartitionsToTxnTransaction(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                verify_only=not each.adds,
                topics=[AddPartitionsToTxnTopic(name=name, partitions=of) for name, of in _by_topic(each.partitions)],
            )
            for each in requests
        ]

        def on_response(response: Any) -> None:
            if response is None or response.error_code:
                done(ErrorCode.NETWORK_EXCEPTION if response is None else ErrorCode.of(response.error_code))
                return
            done(
                {
                    result.transactional_id: {
                        (topic.name, each.partition_index): ErrorCode.of(each.partition_error_code)
                        for topic in result.topic_results
                        for each in topic.results_by_partition
                    }
                    for result in response.results_by_transaction
                }
            )

        request = AddPartitionsToTxnRequest(transactions=rows)
        ask = partial(self._channels.ask, broker_id, request, _ADD_PARTITIONS_VERSION)
        self._send(broker_id, "AddPartitionsToTxn", ask, on_response)

    def refuse(self) -> None:
        """Fail requests in flight, and later ones, at once: this broker stops, and waits for no other."""
        self._channels.close()

    async def close(self) -> None:
        self.refuse()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def send(self, broker_id: int, request: Message, version: int, on_response: Callable[[Any | None], None]) -> None:
        """Send a request; calls back with the response, or None if the broker does not answer."""
        ask = partial(self._channels.ask, broker_id, request, version)
        self._send(broker_id, type(request).__name__, ask, on_response)

    async def _ask_for_markers(self, broker_id: int, request: WriteTxnMarkersRequest, version: int) -> Any:
        """Sends markers in `version`, or in the newest one that the broker knows. Raises BrokerUnreachable."""
        if version >= _VERSION_WITH_TRANSACTION_VERSION and broker_id not in self._newest_of_markers:
            response = await self._channels.ask(broker_id, ApiVersionsRequest(), 0)
            key = API_OF_REQUEST[WriteTxnMarkersRequest].key
            known = [each.max_version for each in response.api_keys if each.api_key == key]
            self._newest_of_markers[broker_id] = max(known, default=_WRITE_TXN_MARKERS_VERSION)
        return await self._channels.ask(
            broker_id, request, min(version, self._newest_of_markers.get(broker_id, version))
        )

    def _send(
        self, broker_id: int, name: str, ask: Callable[[], Awaitable[Any]], on_response: Callable[[Any | None], None]
    ) -> None:
        """Sends the request of this name; calls back with the response, or None if the broker does not answer. A fault
        of this broker is logged and counts as no answer.
        """

        async def exchange() -> None:
            response = None
            try:
                response = await ask()
            except BrokerUnreachable as error:
                self._newest_of_markers.pop(broker_id, None)  # it may come back as another version
                logger.info("%s: %s", name, error.message)
            except Exception:
                logger.exception("%s to broker %d failed", name, broker_id)
            on_response(response)

        task = asyncio.ensure_future(exchange())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def inter_broker_endpoint_finder(metadata: ClusterMetadata, listener: ListenerConfig | None) -> FindEndpoint:
    """Finds the endpoint of a live broker for requests of this one. `listener` is the one that brokers use."""

    def find(broker_id: int) -> ListenerConfig | None:
        broker = metadata.brokers.get(broker_id)
        return None if broker is None else next(iter(inter_broker_endpoints(broker, listener)), None)

    return find


def inter_broker_endpoints(broker: BrokerRecord, listener: ListenerConfig | None) -> list[ListenerConfig]:
    """The endpoints at which other brokers may ask this one: `listener` if it has that, else all that are PLAINTEXT.
    Where brokers are to use another protocol, PLAINTEXT is never used instead."""
    wanted = [each for each in broker.endpoints if listener is not None and each.name == listener.name]
    if listener is not None and listener.protocol != "PLAINTEXT":
        return [each for each in wanted if each.protocol == listener.protocol]
    plain = [each for each in broker.endpoints if each.protocol == "PLAINTEXT"]
    return [each for each in wanted if each in plain] or plain


def _by_topic(partitions: Iterable[TopicPartition]) -> Iterable[tuple[str, list[int]]]:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        by_topic[topic].append(index)
    return by_topic.items()
