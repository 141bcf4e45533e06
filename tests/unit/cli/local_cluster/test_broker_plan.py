"""The configuration of each of several brokers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkalite.cli.local_cluster.broker_plan import (
    BROKERS_MAX,
    BrokerPlan,
    Cores,
    check_directory,
    plan,
    plan_cores,
    usable_cores,
    with_zookeeper,
)
from kafkalite.cli.local_cluster.broker_process import _properties_text
from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.properties import parse_properties


def configs(properties: dict[str, str], count: int = 3) -> list[BrokerConfig]:
    return [BrokerConfig.load(broker.properties) for broker in plan(properties, count).brokers]


def test_numbers_ports_and_directories_are_counted_up() -> None:
    told = configs({"log.dirs": "/data/one,/data/two", "metrics.listener": "127.0.0.1:9404"})
    assert [one.broker_id for one in told] == [0, 1, 2]
    assert [one.listeners[0].port for one in told] == [9092, 9093, 9094]
    assert [one.metrics_listener for one in told] == ["127.0.0.1:9404", "127.0.0.1:9405", "127.0.0.1:9406"]
    assert told[2].data_dirs == ("/data/one/broker2", "/data/two/broker2")
    planned = plan({"log.dirs": "/data/one,/data/two", "zookeeper.connect": "there:2181/x"}, 2)
    assert (planned.directory, planned.connect) == ("/data/one", "there:2181/x")
    assert planned.brokers[1].properties["zookeeper.connect"] == "there:2181/x"


def test_what_is_configured_is_where_counting_begins() -> None:
    told = configs({"node.id": "7", "listeners": "PLAINTEXT://0.0.0.0:0", "log.dir": "here"}, 2)
    assert [one.broker_id for one in told] == [7, 8]
    assert [one.listeners[0].port for one in told] == [0, 0], "any free one"
    assert [one.data_dirs for one in told] == [("here/broker7",), ("here/broker8",)]


def test_what_clients_are_told_is_counted_up_with_the_ports() -> None:
    several = {
        "listeners": "IN://127.0.0.1:9000,OUT://0.0.0.0:9100",
        "advertised.listeners": "IN://127.0.0.1:9000,OUT://kafka.example:9100",
        "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
    }
    told = configs(several)
    assert [[one.port for one in config.listeners] for config in told] == [[9000, 9100], [9001, 9101], [9002, 9102]]
    assert [config.advertised("OUT").address for config in told] == [f"kafka.example:910{i}" for i in range(3)]


@pytest.mark.parametrize(
    ("properties", "count", "complaint"),
    [
        ({}, 0, f"-n 0 must be from 1 to {BROKERS_MAX}"),
        ({}, BROKERS_MAX + 1, "must be from 1 to"),
        ({"listeners": "PLAINTEXT://:65534"}, 3, "leaves no ports to count up to"),
        (
            {"listeners": "A://:9092,B://:9094", "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"},
            3,
            "9094 would be used by broker 0 and by broker 2; leave 3 ports",
        ),
        ({"metrics.listener": "127.0.0.1:9093"}, 2, "9093 would be used by broker 0 and by broker 1"),
    ],
)
def test_what_cannot_be_is_told(properties: dict[str, str], count: int, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        plan(properties, count)


def test_a_zookeeper_of_our_own_has_shorter_sessions_unless_somebody_chose() -> None:
    broker = BrokerPlan(0, {"broker.id": "0"})
    assert with_zookeeper(broker, "127.0.0.1:1").properties["zookeeper.session.timeout.ms"] == "6000"
    chosen = BrokerPlan(0, {"zookeeper.session.timeout.ms": "9000"})
    assert with_zookeeper(chosen, "127.0.0.1:1").properties["zookeeper.session.timeout.ms"] == "9000"


def test_the_directory_of_a_single_broker_is_left_alone(tmp_path: os.PathLike[str]) -> None:
    check_directory(f"{tmp_path}/none")
    check_directory(f"{tmp_path}")
    with open(f"{tmp_path}/meta.properties", "w"):
        with pytest.raises(ConfigError, match=r"holds the data of a single broker.*docs/zookeeper\.md"):
            check_directory(f"{tmp_path}")
        os.mkdir(f"{tmp_path}/broker0")
        check_directory(f"{tmp_path}")  # there are several in it by now


def test_settings_reach_the_broker_as_they_are() -> None:
    settings = {"a.b": " lead and trail ", "sasl": "x=y:z\\#!\t\n\r\f", "wide": "ä€😀", "empty": "", "spa ce": "1"}
    assert parse_properties(_properties_text(BrokerPlan(0, settings))) == settings


def test_only_what_has_data_is_taken_over(tmp_path: os.PathLike[str]) -> None:
    with pytest.raises(ConfigError, match=r"nothing to take over in .*/broker0"):
        plan({"log.dirs": f"{tmp_path}"}, 2, adopts=True)
    os.mkdir(f"{tmp_path}/broker0")
    with open(f"{tmp_path}/broker0/meta.properties", "w"):
        pass
    assert [broker.adopts for broker in plan({"log.dirs": f"{tmp_path}"}, 2, adopts=True).brokers] == [True, False]
    assert not any(broker.adopts for broker in plan({"log.dirs": f"{tmp_path}"}, 2).brokers)


def cores(properties: dict[str, str], wanted: Cores) -> list[BrokerConfig]:
    return [BrokerConfig.load(broker.properties) for broker in plan_cores(properties, wanted).brokers]


def test_brokers_of_cores_share_what_one_would_have(tmp_path: os.PathLike[str]) -> None:
    found = cores({"log.dirs": f"{tmp_path}"}, Cores(4))
    assert [one.num_partitions for one in found] == [4] * 4
    assert {one.offsets_topic_replication_factor for one in found} == {1}
    assert sum(one.queued_max_request_bytes for one in found) == 128 << 20
    assert sum(one.log_cleaner_dedupe_buffer_size for one in found) == 128 << 20
    assert cores({"log.dirs": f"{tmp_path}"}, Cores(1))[0].socket_request_max_bytes == 100 << 20, "one has it all"
    said = {"num.partitions": "7", "offsets.topic.replication.factor": "2", "socket.request.max.bytes": "50000000"}
    chosen = cores({"log.dirs": f"{tmp_path}", **said}, Cores(2))[0]
    assert (chosen.num_partitions, chosen.offsets_topic_replication_factor) == (7, 2)
    assert (chosen.socket_request_max_bytes, chosen.queued_max_request_bytes) == (50_000_000, -1)
    large = cores({"log.dirs": f"{tmp_path}", "message.max.bytes": "60000000"}, Cores(64))[0]
    assert large.socket_request_max_bytes == 120_000_000, "a request holds the largest batch"


def test_the_machine_has_metrics_of_its_own_before_those_of_its_brokers(tmp_path: os.PathLike[str]) -> None:
    planned = plan_cores({"log.dirs": f"{tmp_path}", "metrics.listener": "127.0.0.1:9404"}, Cores(2))
    assert planned.metrics_listener == "127.0.0.1:9404"
    own = [BrokerConfig.load(broker.properties).metrics_listener for broker in planned.brokers]
    assert own == ["127.0.0.1:9405", "127.0.0.1:9406"]
    with pytest.raises(ConfigError, match="9091 would be used by the metrics of the machine and by broker 0"):
        plan_cores(
            {
                "log.dirs": f"{tmp_path}",
                "metrics.listener": ":9091",
                "listeners": "A://:9091",
                "listener.security.protocol.map": "A:PLAINTEXT",
            },
            Cores(1),
        )


def test_ports_and_cores_are_given_by_turns(tmp_path: os.PathLike[str]) -> None:
    planned = plan_cores({"log.dirs": f"{tmp_path}"}, Cores(3, (9092, 9292, 9492), (4, 6)))
    assert [BrokerConfig.load(broker.properties).listeners[0].port for broker in planned.brokers] == [9092, 9292, 9492]
    assert [broker.cpu for broker in planned.brokers] == [4, 6, 4]
    with pytest.raises(ConfigError, match="--ports names 1 ports for 2 brokers"):
        plan_cores({"log.dirs": f"{tmp_path}"}, Cores(2, (9092,)))
    with pytest.raises(ConfigError, match="--cores 0 must be from 1"):
        plan_cores({"log.dirs": f"{tmp_path}"}, Cores(0))


def test_a_broker_with_partitions_is_not_left_out(tmp_path: os.PathLike[str]) -> None:
    directory = os.fspath(tmp_path)
    for broker_id in range(3):
        os.makedirs(os.path.join(directory, f"broker{broker_id}"))
        with open(os.path.join(directory, f"broker{broker_id}", "meta.properties"), "w"):
            pass
    assert len(plan_cores({"log.dirs": directory}, Cores(2)).brokers) == 2, "the third has none"
    os.mkdir(os.path.join(directory, "broker2", "orders-5"))
    with pytest.raises(ConfigError, match=r"broker2 in .* has orders-5, and would not be started.*--brokers 0,1"):
        plan_cores({"log.dirs": directory}, Cores(2))


@pytest.mark.parametrize(
    ("text", "most"), [("max 100000", 1 << 20), ("100000 100000", 1), ("50000 100000", 1), ("x", 9)]
)
def test_a_control_group_has_time_for_some(tmp_path: Path, text: str, most: int) -> None:
    group = tmp_path / "cpu.max"
    group.write_text(f"{text}\n")
    assert usable_cores(group) == min(len(os.sched_getaffinity(0)), most)
    assert usable_cores(tmp_path / "none") == len(os.sched_getaffinity(0))
