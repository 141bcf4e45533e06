"""Faults on demand: what is chosen, what a client gets instead of its answer, and what the broker has done by then."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from bench import wire
from bench.records import record_batch
from kafkalite import Broker
from kafkalite.api.dispatch import Dispatcher
from kafkalite.common.errors import ConfigError, ErrorCode
from kafkalite.testing import Cluster
from kafkalite.testing.controlled_broker import fault_from_option, read_faults
from kafkalite.testing.faults.fault import RequestPattern, error_code
from kafkalite.testing.requests.recorded_request import api_name
from tests.support.descriptors import open_below, open_files
from tests.support.wait import DEADLINE_S, until


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("orders")
        broker.create_topic("others")
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[wire.Connection]:
    with wire.Connection(broker.bootstrap_servers, timeout_s=30) as client:
        yield client


def produce(client: wire.Connection, topic: str = "orders") -> int:
    """Raises wire.BrokerError."""
    return client.produce(wire.produce_frame(topic, 0, record_batch(1, 10)))


# which requests


def test_names_of_apis_and_errors_are_taken_in_any_spelling() -> None:
    assert {api_name(name) for name in ("InitProducerId", "INIT_PRODUCER_ID", "init_producer_id")} == {"InitProducerId"}
    assert error_code("request_timed_out") == error_code(7) == ErrorCode.REQUEST_TIMED_OUT
    with pytest.raises(ValueError, match="similar: Produce"):
        api_name("PRODUCES")
    with pytest.raises(ValueError, match="similar: NOT_LEADER_OR_FOLLOWER"):
        error_code("NOT_LEADER_FOR_PARTITION_OR_FOLLOWER")
    with pytest.raises(ValueError, match=r"no API is named 'xyz'$"):
        api_name("xyz")
    with pytest.raises(ValueError, match="SaslAuthenticate belongs to a login"):
        api_name("SASL_AUTHENTICATE")
    for nothing in ("NONE", 0):  # the client would take a record for stored that is not
        with pytest.raises(ValueError, match="NONE is no error"):
            error_code(nothing)
    with pytest.raises(ValueError, match="number 9999"):
        error_code(9999)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"times": "2"}, "times is a whole number or None, not '2'"),
        ({"times": 1.5}, "times is a whole number"),
        ({"after": True}, "after is a whole number, not True"),
        ({"seed": [1]}, "seed is a whole number"),
        ({"probability": "x"}, "probability is a number, not 'x'"),
        ({"topic": 5}, "topic is text, not 5"),
        ({"client_id": 5}, "client_id is text, not 5"),
        ({"must_fire": "no"}, "must_fire is true or false, not 'no'"),
        ({"has_effect": "no"}, "has_effect is true or false, not 'no'"),
        ({"tims": 2}, "no fault takes 'tims'; similar: times"),
        ({"api": 5}, "api is text, not 5"),
        ({"error": None}, "error is text, not None"),
        ({"fault": "delay", "seconds": "1"}, "seconds is a number, not '1'"),
    ],
)
def test_arguments_of_a_wrong_type_are_named(broker: Broker, wrong: dict[str, object], words: str) -> None:
    whole = {"fault": "error", "api": "PRODUCE", "error": "REQUEST_TIMED_OUT"} | wrong
    if whole["fault"] == "delay":
        del whole["error"]
    with pytest.raises(ValueError, match=words):
        broker.faults.load([{"fault": "delay", "seconds": 1}, whole])
    assert broker.faults.active == []  # the first one is not left behind


@pytest.mark.parametrize("wrong", [{"times": 0}, {"after": -1}, {"probability": 0.0}, {"probability": 1.5}])
def test_numbers_that_choose_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="times is 1 or more"):
        RequestPattern("Produce", **wrong)  # type: ignore[arg-type]


def test_the_nth_request_and_no_other(broker: Broker, client: wire.Connection) -> None:
    broker.faults.error("Produce", "REQUEST_TIMED_OUT", after=1, times=2)
    results = []
    for _ in range(5):
        try:
            results.append(produce(client))
        except wire.BrokerError:
            results.append(-1)
    assert results == [0, -1, -1, 1, 2]
    assert [str(fired).partition(" ")[2] for fired in broker.faults.fired] == [
        "error REQUEST_TIMED_OUT for Produce: Produce v7 from 'bench'"
    ] * 2


def test_a_probability_chooses_the_same_with_the_same_seed(broker: Broker, client: wire.Connection) -> None:
    def run() -> list[bool]:
        results = []
        with broker.faults.error("Produce", "REQUEST_TIMED_OUT", times=None, probability=0.5, seed=7):
            for _ in range(20):
                try:
                    produce(client)
                    results.append(True)
                except wire.BrokerError:
                    results.append(False)
        return results

    first = run()
    assert first == run() and len(set(first)) == 2


def test_other_topics_and_other_clients_are_served(broker: Broker, client: wire.Connection) -> None:
    broker.faults.error("Produce", "REQUEST_TIMED_OUT", topic="orders", times=None)
    broker.faults.error("Produce", "REQUEST_TIMED_OUT", client_id="somebody", times=None, must_fire=False)
    assert produce(client, "others") == 0
    with pytest.raises(wire.BrokerError):
        produce(client)
    broker.faults.check()
    assert (len(broker.records("orders")), len(broker.records("others"))) == (0, 1)


def test_without_faults_connections_call_the_dispatcher_itself(broker: Broker, client: wire.Connection) -> None:
    """So they cost a request nothing: before the first fault and after the last one connections call the same object, a
    Dispatcher as it is in any broker, with the routes that it had."""
    served = broker.server.server

    def in_place() -> tuple[object, ...]:
        handlers = {id(processor.handler): processor.handler for processor in served.processors}
        [handler] = handlers.values()
        assert isinstance(handler, Dispatcher) and type(handler) is Dispatcher and not hasattr(handler, "__dict__")
        [connected] = [one for one in served.clients() if one.port == client.socket.getsockname()[1]]
        return (
            handler,
            dict(handler._routes),
            handler._produce,
            handler._fetch,
            connected.authenticator,
            set(connected.fast_paths),
        )

    produce(client)
    at_first = in_place()
    with broker.faults.error("Produce", "REQUEST_TIMED_OUT"):
        assert served.handler is not at_first[0]
        with pytest.raises(wire.BrokerError):
            produce(client)
    assert in_place() == at_first
    broker.faults.delay(0.0, "Produce")
    broker.requests.start()
    produce(client)
    broker.faults.clear()
    assert served.handler is not at_first[0]  # requests are still recorded
    broker.requests.stop()
    assert in_place() == at_first
    fault = broker.faults.throttle(60, "Produce", must_fire=False)
    fault.remove()  # it has never fired
    assert in_place() == at_first and served.handler is at_first[0]


# how many have fired


def test_a_fault_that_never_fires_fails_its_block_and_the_check(broker: Broker, client: wire.Connection) -> None:
    with (
        pytest.raises(AssertionError, match="the fault never fired: disconnect for Fetch of orders"),
        broker.faults.disconnect("Fetch", topic="orders"),
    ):
        produce(client)
    with broker.faults.disconnect("Fetch", must_fire=False) as fault:
        assert broker.faults.active == [fault]
    with pytest.raises(KeyError), broker.faults.disconnect("Fetch"):
        raise KeyError  # the error of the block is not hidden
    broker.faults.check()
    broker.faults.delay(1, "Metadata")
    with pytest.raises(AssertionError, match="delay of 1 s for Metadata"):
        broker.faults.check()
    broker.faults.clear()
    broker.faults.check()


# what becomes of a request


def test_an_error_comes_before_the_effect_or_after_it(broker: Broker, client: wire.Connection) -> None:
    with broker.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER"), pytest.raises(wire.BrokerError):
        produce(client)
    assert len(broker.records("orders")) == 0
    with broker.faults.error("Produce", "REQUEST_TIMED_OUT", has_effect=True), pytest.raises(wire.BrokerError):
        produce(client)
    assert len(broker.records("orders")) == 1


def test_a_connection_is_closed_before_the_effect_or_after_it(broker: Broker) -> None:
    for has_effect in (False, True):
        with (
            broker.faults.disconnect("Produce", has_effect=has_effect),
            wire.Connection(broker.bootstrap_servers) as client,
            pytest.raises((ConnectionError, wire.BrokerError)),
        ):
            produce(client)
        assert len(broker.records("orders")) == int(has_effect)


@pytest.mark.parametrize("has_effect", [False, True])
def test_a_delay_goes_by_the_brokers_clock(broker: Broker, client: wire.Connection, has_effect: bool) -> None:
    broker.clock.freeze()
    with broker.faults.delay(3_600, "Produce", has_effect=has_effect):
        client_socket = client.socket
        client_socket.sendall(wire.produce_frame("orders", 0, record_batch(1, 10)))
        until(lambda: bool(broker.faults.fired), "the request has come")
        assert len(broker.call(lambda: broker.asynchronous.records("orders"))) == int(has_effect)
        client_socket.settimeout(0.02)
        with pytest.raises(TimeoutError):
            client_socket.recv(1)
        client_socket.settimeout(30)
        broker.clock.advance(hours=1)
        assert struct.unpack(">i", client_socket.recv(4, socket.MSG_WAITALL))[0] > 0
    assert len(broker.records("orders")) == 1


def test_a_request_that_is_held_neither_keeps_others_nor_the_end_waiting(
    broker: Broker, client: wire.Connection
) -> None:
    broker.faults.blackhole("Produce", has_effect=True)
    client.socket.sendall(wire.produce_frame("orders", 0, record_batch(1, 10)))
    broker.wait_for("orders", 1)
    with wire.Connection(broker.bootstrap_servers) as other:
        assert produce(other) == 1
    broker.reset()
    assert client.socket.recv(1) == b"", "the connection is closed"
    assert broker.faults.fired == [] == broker.faults.active


@pytest.mark.parametrize("size", [None, 0, 5])
def test_a_part_of_an_answer_and_then_the_end(broker: Broker, client: wire.Connection, size: int | None) -> None:
    with broker.faults.truncate_response("Produce", size):
        client.socket.sendall(wire.produce_frame("orders", 0, record_batch(1, 10)))
        got = b""
        while part := client.socket.recv(100):
            got += part
    assert len(got) == size if size is not None else 4 < len(got) < 40
    assert len(broker.records("orders")) == 1


def test_a_throttled_client_is_told_so_and_its_next_request_waits(broker: Broker, client: wire.Connection) -> None:
    broker.clock.freeze()
    broker.requests.start()
    with broker.faults.throttle(30, "Produce"):
        produce(client)
    [one] = broker.requests.of("Produce")
    assert getattr(one.response, "throttle_time_ms", 0) == 30_000
    client.socket.sendall(wire.produce_frame("orders", 0, record_batch(1, 10)))
    until(lambda: len(broker.requests.of("Produce")) == 2, "the second request has come")
    assert len(broker.records("orders")) == 1
    broker.clock.advance(seconds=30)
    assert len(broker.wait_for("orders", 2)) == 2


def test_records_are_corrupt_on_the_wire_and_whole_in_the_log(broker: Broker, client: wire.Connection) -> None:
    produce(client)
    produce(client)
    partition = broker.server.replica_manager.by_name["orders"].partitions[0]
    region = broker.call(lambda: partition.log.read(0, 1 << 20, 2))
    assert region is not None
    stored = region.read()
    fetch = wire.fetch_frame("orders", 0, 0, 1 << 20)
    with broker.faults.corrupt("orders"):
        spoiled = bytes(client.exchange(fetch)._data)
    whole = bytes(client.exchange(fetch)._data)
    assert stored in whole and stored not in spoiled
    assert sum(a != b for a, b in zip(spoiled, whole, strict=True)) == 2, "a bit of each batch"


def test_a_fetch_without_records_is_none_that_can_be_corrupt(broker: Broker, client: wire.Connection) -> None:
    empty = bytes(client.exchange(wire.fetch_frame("orders", 0, 0, 1 << 20, max_wait_ms=0))._data)
    with broker.faults.corrupt() as fault:
        assert bytes(client.exchange(wire.fetch_frame("orders", 0, 0, 1 << 20, max_wait_ms=0))._data) == empty
        assert fault.fired == 0 and broker.faults.fired == []
        produce(client)
        fetch = wire.fetch_frame("orders", 0, 0, 1 << 20)
        spoiled = bytes(client.exchange(fetch)._data)
        assert spoiled != bytes(client.exchange(fetch)._data) and fault.fired == 1 == len(broker.faults.fired)


# the broker itself


def test_a_crash_keeps_the_files_and_the_port(broker: Broker, client: wire.Connection) -> None:
    produce(client)
    port = broker.port
    broker.faults.crash()
    with pytest.raises((ConnectionError, wire.BrokerError)):
        produce(client)
    with pytest.raises(RuntimeError, match="crash it once"):
        broker.crash()
    broker.faults.restart()
    assert (broker.port, len(broker.records("orders"))) == (port, 1)
    with wire.Connection(broker.bootstrap_servers) as again:
        assert produce(again) == 1
    with pytest.raises(RuntimeError, match="has not crashed"):
        broker.restart()
    broker.faults.crash(power_cut=True)
    with pytest.raises(RuntimeError, match="crash it once"):
        broker.faults.crash()
    assert [str(fired).partition(" ")[2] for fired in broker.faults.fired] == ["crash: kill -9", "crash: power cut"]


def test_a_crash_ends_what_a_fault_has_held_back(broker: Broker, client: wire.Connection) -> None:
    broker.faults.throttle(3_600, "Produce")
    produce(client)
    broker.crash()
    broker.restart()
    broker.faults.clear()
    with wire.Connection(broker.bootstrap_servers) as again:
        assert produce(again) == 1


def test_a_power_cut_loses_what_no_fsync_has_brought_to_the_disk(broker: Broker) -> None:
    broker.create_topic("safe", flush_messages=1)
    broker.create_topic("rolled", segment_bytes=200)
    for number in range(6):
        for topic in ("orders", "safe", "rolled"):
            broker.produce(topic, f"{number}" * 50)
    broker.crash(power_cut=True)
    broker.restart()
    assert [len(broker.records(topic)) for topic in ("orders", "safe")] == [0, 6]
    assert 0 < len(broker.records("rolled")) < 6, "segments are flushed when the next one begins"
    broker.produce("orders", "again")
    assert [record.offset for record in broker.records("orders")] == [0]


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_a_crash_leaves_no_descriptor_and_no_thread(tmp_path: Path, place: str) -> None:
    for is_first in (True, False):  # the first one loads modules
        with Broker(data_dir=None if place == "memory" else tmp_path) as broker:
            broker.produce("orders", "x")
            directory = broker.data_dir
            broker.crash()
            assert open_below(directory) == []
            broker.restart()
        if is_first:
            before = len(open_files()), threading.active_count()
    assert (len(open_files()), threading.active_count()) == before


def test_a_crashed_broker_leaves_nothing_behind() -> None:
    with Broker() as broker:
        directory = broker.data_dir
        broker.crash()
        assert directory.is_dir()
    assert not directory.exists()
    with broker:
        assert broker.topics == {}


def test_a_broker_in_the_loop_of_others_cannot_crash() -> None:
    async def story() -> None:
        async with Broker() as broker:
            with pytest.raises(RuntimeError, match="enter it with `with`"):
                broker.faults.crash()
            await broker.create_topic("orders")
            broker.faults.error("Produce", "REQUEST_TIMED_OUT")

            def ask() -> None:
                with wire.Connection(broker.bootstrap_servers) as client, pytest.raises(wire.BrokerError):
                    produce(client)

            await asyncio.to_thread(ask)
            assert len(broker.faults.fired) == 1

    asyncio.run(story())


def test_each_broker_of_a_cluster_makes_its_own_faults() -> None:
    with Cluster(2) as cluster:
        cluster.create_topic("orders", replicas=2)
        leader = cluster.wait_for_leader("orders", 0)
        faults = cluster.brokers[leader].faults
        with wire.Connection(cluster.brokers[leader].bootstrap_servers) as client:
            with faults.error("Produce", "NOT_ENOUGH_REPLICAS"), pytest.raises(wire.BrokerError):
                produce(client)
            assert produce(client) == 0


# others to a client


def test_what_is_not_there_cannot_be_disturbed(broker: Broker) -> None:
    with pytest.raises(ValueError, match="group 'billing' not found"):
        broker.faults.rebalance("billing")
    with pytest.raises(ValueError, match="group 'billing' not found"):
        broker.faults.expire_session("billing", "x")
    with pytest.raises(ValueError, match=r"transactional\.id 'shop'"):
        broker.faults.fence("shop")


def test_disruptions_are_on_the_list_too(broker: Broker) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "shop"})
    producer.init_transactions(DEADLINE_S)
    broker.faults.fence("shop")
    with pytest.raises(ValueError):
        broker.faults.rebalance("nobody")
    [fired] = broker.faults.fired
    assert (fired.fault, fired.request) == ("fence", "transactional.id 'shop'")


# files


def test_faults_are_loaded_from_lists(broker: Broker, client: wire.Connection) -> None:
    broker.faults.load([{"fault": "error", "api": "PRODUCE", "error": "NOT_LEADER_OR_FOLLOWER", "topic": "orders"}])
    with pytest.raises(wire.BrokerError):
        produce(client)
    for wrong, words in (
        ({"fault": "explode"}, "a fault is one of error, delay"),
        ({"api": "Produce"}, "not None"),
        ({"fault": "delay", "second": 1}, "delay: missing|delay: got an unexpected|second"),
        ({"fault": "error", "api": "Produce", "error": "OOPS"}, "no error is named 'OOPS'"),
        ({"fault": "disconnect", "api": "Produce", "tims": 2}, "tims"),
        ({"fault": "delay", 5: 1}, "a mapping of names"),
    ):
        with pytest.raises(ValueError, match=words):
            broker.faults.load([wrong])  # type: ignore[list-item]  # a file may have anything
    with pytest.raises(ValueError, match="faults are a list"):
        broker.faults.load({"fault": "delay"})  # type: ignore[arg-type]


def test_a_file_is_json_or_yaml(tmp_path: Path) -> None:
    faults = [{"fault": "delay", "seconds": 0.5, "api": "FETCH", "times": None}]
    (tmp_path / "faults.json").write_text(json.dumps(faults))
    (tmp_path / "faults.yaml").write_text("- {fault: delay, seconds: 0.5, api: FETCH, times: null}\n")
    assert read_faults(str(tmp_path / "faults.json")) == faults == read_faults(str(tmp_path / "faults.yaml"))


def test_a_fault_of_the_command_line_is_that_of_a_file() -> None:
    assert fault_from_option("error,api=PRODUCE,error=NOT_LEADER_OR_FOLLOWER,topic=7,times=null,after=2") == {
        "fault": "error",
        "api": "PRODUCE",
        "error": "NOT_LEADER_OR_FOLLOWER",
        "topic": "7",
        "times": None,
        "after": 2,
    }
    assert fault_from_option("delay, seconds=0.5, has_effect=true")["has_effect"] is True
    for wrong, words in (
        ("", "a fault is one of"),
        ("error,api", "'api' is not name=value"),
        ("error,=x", "is not name=value"),
        ("delay,seconds=1,seconds=2", "given twice"),
        ("error,fault=delay,seconds=1", "given twice"),
        ("delay,seconds=soon", "seconds is a number"),
        ("delay,seconds=[1]", "seconds is a number"),
    ):
        with pytest.raises(ConfigError, match=words):
            fault_from_option(wrong)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.json", "{}", "it is no list of faults"),
        ("a.json", "[1]", "it is no list of faults"),
        ("a.json", "[", "Expecting value"),
        ("a.yaml", "- {fault: [", "while parsing"),
        ("a.yaml", "- {fault: explode}", "a fault is one of"),
        ("missing.json", None, "No such file"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, name: str, text: str | None, words: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=words):
        read_faults(str(tmp_path / name))
