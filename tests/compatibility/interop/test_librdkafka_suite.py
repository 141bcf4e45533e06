"""librdkafka's own tests with group.protocol=consumer, in their long form: a failure here is one at Kafka 4.3.0."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite.testing import Broker
from tests.compatibility.interop.conftest import BrokerProcess
from tests.compatibility.interop.java_tools import JavaTools
from tests.compatibility.interop.librdkafka_suite import VERSION, LibrdkafkaSuite, built_librdkafka

ECOSYSTEM = "Consumer protocol"
BROKER_SETTINGS = {
    "num.partitions": "4",
    "auto.create.topics.enable": "true",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.share.min.record.lock.duration.ms": "1000",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:admin",
}
IS_COMPACTED = True
GROUPS = (
    "0014 0018 0019 0020 0030 0033 0040 0042 0049 0050 0051 0056 0059 0060 0061 0064 0067 0069 0083 0084 0089 "
    "0091 0099 0102 0107 0112 0113 0118 0119 0122 0127 0130 0132 0137 0139 0140 0142"
)
FETCHES = (
    "0015 0022 0026 0029 0031 0034 0036 0041 0052 0053 0054 0070 0073 0077 0082 0085 0092 0093 0098 0101 0109 0111 0129"
)
PRODUCERS = (
    "0001 0002 0003 0005 0007 0008 0011 0012 0013 0016 0017 0021 0035 0038 0039 0044 0048 0055 0057 0063 0065 0068 "
    "0075 0076 0081 0086 0088 0090 0094 0103 0110 0114 0115 0123 0125 0126 0135 0150"
)
OUTRUN = "0045"
ANSWER_S = 0.002
SHARE_GROUPS = "0170 0171 0172 0173 0174 0175 0176 0177 0178 0179 0180 0181 0184 0185 0186 0190"

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]


@pytest.mark.parametrize(
    ("family", "numbers"),
    [
        ("groups and subscriptions", GROUPS),
        ("fetches", FETCHES),
        ("producers, transactions, admin", PRODUCERS),
        ("share groups", SHARE_GROUPS),
    ],
    ids=["groups", "fetches", "producers", "share"],
)
def test_librdkafkas_own_tests(
    family: str,
    numbers: str,
    broker: BrokerProcess,
    tools_4_3: Callable[[str], JavaTools],
    proved: Callable[[str, str, str], None],
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    proved("librdkafka's test-runner", VERSION, f"its own tests, long form, group.protocol=consumer: {family}")
    home = built_librdkafka()
    broker.excused += ["closed"]  # tests cut connections on purpose
    here = LibrdkafkaSuite(home, tools_4_3(broker.bootstrap), tmp_path / "here").run_all(numbers.split())
    print(f"{family}: {len(here)} numbers, skipped {[one.number for one in here if one.is_skipped]}")
    failed = {one.number: one.reason for one in here if one.is_failed}
    if failed:
        at_kafka = tools_4_3(request.getfixturevalue("kafka_4_3").bootstrap)
        there = LibrdkafkaSuite(home, at_kafka, tmp_path / "there").run_all(failed)
        print("\n".join(f"{one.number} at Kafka: {one.reason}" for one in there))
        only_here = {one.number: failed[one.number] for one in there if not one.is_failed}
        assert not only_here, "\n".join(f"{number}: {reason}" for number, reason in only_here.items())
    assert sum(one.is_skipped for one in here) < len(here) / 4, here


def test_a_number_that_a_fast_broker_outruns(
    tools_4_3: Callable[[str], JavaTools], proved: Callable[[str, str, str], None], tmp_path: Path
) -> None:
    """A member of librdkafka 2.15.1 that is subscribed and unsubscribed at once hangs, or joins without its timeout, if
    an assignment is answered in less than a millisecond meanwhile. Kafka takes longer for that."""
    what = "its own test 0045, group.protocol=consumer; heartbeats are answered after 2 ms as at Kafka"
    proved("librdkafka's test-runner", VERSION, what)
    settings = {name.replace(".", "_"): value for name, value in BROKER_SETTINGS.items()}
    for name in ("authorizer_class_name", "allow_everyone_if_no_acl_found", "super_users"):
        del settings[name]
    with Broker(**settings) as broker:
        broker.faults.delay(ANSWER_S, "ConsumerGroupHeartbeat", has_effect=True, times=None)
        suite = LibrdkafkaSuite(built_librdkafka(), tools_4_3(broker.bootstrap_servers), tmp_path)
        failed = [one for one in suite.run_all(OUTRUN.split()) if one.is_failed]
    assert not failed, failed
