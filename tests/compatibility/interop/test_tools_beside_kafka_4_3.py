"""Tools of Kafka 4.3 print the same at kafkalite as at Kafka 4.3.0, for the same commands in turn.

kafka-groups and the commands of consumer, share and streams groups while a group has a member and after it,
kafka-features, kafka-client-metrics and kafka-configs of groups, with refusals. Left out are addresses, times, and the
order of what Java keeps in hash maps; kafkalite has no feature that describes a KRaft controller, and those lines are
not compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.compatibility.interop.conftest import BrokerProcess
from tests.compatibility.interop.java_tools import JavaTools
from tests.compatibility.interop.reference_broker import ReferenceBroker
from tests.compatibility.interop.tool_runner import ToolRunner
from tests.support.consumer_members import ConsumerMember, ShareGroupMember
from tests.support.streams_members import StreamsMember, counting_topology
from tests.support.wait import DEADLINE_S, until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ECOSYSTEM = "Java"
CLIENT = "kafka-clients and its tools"
VERSION = "4.3.0"
COUNT = 20

LISTED = (
    *("", "--consumer", "--group-type classic", "--group-type consumer", "--protocol consumer", "--protocol nothing"),
    *("--share", "--streams", "--group-type odd", "--consumer --group-type classic"),
)
CONSUMER_GROUPS_LISTED = (
    *("", "--state", "--type", "--state Stable", "--state stable,empty", "--type classic"),
    *("--type consumer --state", "--state odd", "--type odd"),
)
DESCRIBED = ("", "--members", "--members --verbose", "--state", "--state --verbose", "--offsets", "--offsets --verbose")
REFUSED_TO_A_MEMBER = (
    "--reset-offsets --group new --topic t --to-earliest --execute",
    "--delete --group new",
    "--delete-offsets --group new --topic t",
)
OF_EMPTY_GROUPS = (
    "--list --state",
    *(
        f"--reset-offsets --group new --topic t {where} --dry-run"
        for where in (
            *("--to-earliest", "--to-latest", "--to-offset 2", "--to-offset 99", "--shift-by -1", "--to-current"),
            *("--to-datetime 2023-11-14T22:13:20.005", "--by-duration PT1H"),
        )
    ),
    "--reset-offsets --group new --topic t --to-latest",
    "--reset-offsets --group new --topic t:0,2 --to-latest --execute",
    "--reset-offsets --group new --topic t:1 --shift-by 2 --execute",
    "--reset-offsets --group new --all-topics --to-earliest --export --dry-run",
    "--reset-offsets --group new --all-topics --to-current --execute",
    "--reset-offsets --group new --topic missing --to-earliest --execute",
    "--describe --group new",
    "--delete-offsets --group new --topic t:1",
    "--delete-offsets --group new --topic missing",
    "--describe --group new --offsets",
    "--delete --group none",
    "--delete --group new",
    "--delete --group new --group old",
    "--list",
)
_FLOW = "--group flow"
STREAMS_GROUPS_WITH_A_MEMBER = (
    *("--list", "--list --state", "--list --state stable,empty", "--list --state Empty", "--list --state odd"),
    *(f"--describe {_FLOW} {kind}".strip() for kind in DESCRIBED),
    *("--describe --all-groups", "--describe --all-groups --state --verbose", "--describe --group none"),
    "--describe --group other --state",
    *(f"--delete {_FLOW}", "--delete --group none", f"--delete-offsets {_FLOW} --input-topic t"),
    f"--reset-offsets {_FLOW} --input-topic t --to-earliest --execute",
)
EMPTY_STREAMS_GROUPS = (
    "--list --state",
    *(f"--describe {_FLOW} {kind}".strip() for kind in DESCRIBED),
    *(
        f"--reset-offsets {_FLOW} --input-topic t {where} --dry-run"
        for where in (
            *("--to-earliest", "--to-latest", "--to-offset 2", "--to-offset 99", "--shift-by -1", "--to-current"),
            *("--to-datetime 2023-11-14T22:13:20.005", "--by-duration PT1H"),
        )
    ),
    f"--reset-offsets {_FLOW} --input-topic t:0,2 --to-latest --execute",
    f"--reset-offsets {_FLOW} --all-input-topics --to-earliest --export --dry-run",
    f"--reset-offsets {_FLOW} --all-input-topics --to-current --execute",
    f"--reset-offsets {_FLOW} --input-topic missing --to-earliest --execute",
    f"--delete-offsets {_FLOW} --input-topic t:1",
    f"--delete-offsets {_FLOW} --input-topic missing",
    f"--reset-offsets {_FLOW} --all-input-topics --to-earliest --execute --delete-all-internal-topics",
    *(f"--delete {_FLOW}", f"--delete {_FLOW}", "--list"),
)
SHARE_GROUPS_LISTED = ("", "--state", "--state Stable", "--state stable,empty", "--state odd")
SHARE_GROUPS_DESCRIBED = ("", "--offsets", "--offsets --verbose", "--members", "--members --verbose", "--state")
REFUSED_TO_A_SHARE_MEMBER = (
    "--reset-offsets --group shared --topic t --to-earliest --execute",
    "--delete --group shared",
    "--delete-offsets --group shared --topic t",
)
OF_EMPTY_SHARE_GROUPS = (
    "--list --state",
    *(
        f"--reset-offsets --group shared --topic t {where} --dry-run"
        for where in ("--to-earliest", "--to-latest", "--to-datetime 2023-11-14T22:13:20.005")
    ),
    "--reset-offsets --group shared --topic t --to-latest",
    "--reset-offsets --group shared --topic t:1 --to-latest --execute",
    "--describe --group shared",
    "--reset-offsets --group shared --all-topics --to-earliest --execute",
    "--describe --group shared --verbose",
    "--reset-offsets --group shared --topic missing --to-earliest --execute",
    "--reset-offsets --group none --topic t --to-earliest --execute",
    "--delete-offsets --group shared --topic missing",
    "--delete-offsets --group none --topic t",
    "--delete-offsets --group shared --topic t",
    "--describe --group shared --offsets",
    "--delete --group none",
    "--delete --group shared",
    "--list",
)
METRICS = (
    "--list",
    "--describe",
    "--alter --name a --metrics org.apache.kafka.consumer. --interval 1000 "
    "--match client_id=a.*,client_software_name=java",
    *("--describe --name a", "--describe", "--list", "--alter --name a --interval 5", "--alter --name a --match odd"),
    *("--alter --name a --match client_id=[", "--alter --name a --metrics ", "--describe --name a"),
    *("--describe --name none", "--delete --name a", "--delete --name none", "--list"),
)
_GROUP = "--entity-type groups --entity-name g"
CONFIGS = (
    *(f"{_GROUP} --describe", f"{_GROUP} --describe --all"),
    f"{_GROUP} --alter --add-config consumer.session.timeout.ms=50000,consumer.heartbeat.interval.ms=6000",
    *(f"{_GROUP} --describe", "--group g --describe", "--entity-type groups --describe"),
    *(
        f"{_GROUP} --alter --add-config {setting}"
        for setting in (
            *("consumer.session.timeout.ms=1", "consumer.session.timeout.ms=abc", "odd=1"),
            *("share.isolation.level=read_committed", "share.auto.offset.reset=odd", "streams.num.standby.replicas=9"),
        )
    ),
    f"{_GROUP} --alter --delete-config odd",
    f"{_GROUP} --describe --all",
    f"{_GROUP} --alter --delete-config consumer.session.timeout.ms,consumer.heartbeat.interval.ms",
    *(f"{_GROUP} --describe", "--entity-type groups --entity-default --describe"),
    "--entity-type client-metrics --entity-name b --alter --add-config interval.ms=500",
    *("--entity-type client-metrics --describe", "--client-metrics b --describe"),
    "--client-metrics b --alter --delete-config interval.ms",
)
FEATURES = (
    *("describe", "upgrade --feature group.version=1", "upgrade --feature odd=1", "upgrade --feature group.version=9"),
    *("downgrade --feature group.version=0 --dry-run", "downgrade --feature group.version=0", "describe"),
    *("upgrade --feature group.version=1", "upgrade --feature transaction.version=2", "disable --feature odd"),
    *("version-mapping", "version-mapping --release-version 4.2", "feature-dependencies --feature group.version=1"),
    "downgrade --feature transaction.version=1 --unsafe",
)
OF_CONTROLLERS = re.compile(r"^Feature: (?:eligible|kraft|metadata|share|streams)\S+ .*\n", re.MULTILINE)


class Place(NamedTuple):
    """A broker and Kafka's tools at it."""

    bootstrap: str
    tools: ToolRunner

    def printed(self, tool: str, command: str) -> tuple[str, int]:
        """The output without what differs from broker to broker, and the exit code."""
        text, code = self.tools.run(tool, *command.split(" "))
        text = text.replace(self.bootstrap, "BROKER").replace("\r", "")
        text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.+Z-]+", "TIME", text)
        text = re.sub(r"Epoch: \d+", "Epoch: N", OF_CONTROLLERS.sub("", text))
        text = re.sub(r"(?<=Valid states are: ).*", lambda found: ", ".join(sorted(found[0].split(", "))), text)
        return re.sub(r"[ \t]+", " ", text), code


@pytest.fixture(scope="module")
def places(broker: BrokerProcess, kafka_4_3: ReferenceBroker) -> Iterator[list[Place]]:
    """kafkalite and Kafka, both with the same topic and records."""
    with ToolRunner(VERSION, broker.bootstrap) as ours, ToolRunner(VERSION, kafka_4_3.bootstrap) as theirs:
        found = [Place(broker.bootstrap, ours), Place(kafka_4_3.bootstrap, theirs)]
        for place in found:
            place.tools.run(
                "TopicCommand", *["--create", "--topic", "t", "--partitions", "3", "--config", "retention.ms=-1"]
            )
            producer = Producer({"bootstrap.servers": place.bootstrap})
            for number in range(9):
                producer.produce("t", b"x", partition=number % 3, timestamp=1_700_000_000_000 + number)
            assert producer.flush(DEADLINE_S) == 0
        yield found


def compare(places: list[Place], tool: str, *commands: str) -> None:
    """All commands at both, and every difference in one failure."""
    differing = []
    for command in commands:
        ours, theirs = (place.printed(tool, command) for place in places)
        if ours != theirs:
            differing.append(f"{tool} {command}\n{ours[1]}: {ours[0]}\n-- at Kafka {theirs[1]}: {theirs[0]}")
    assert not differing, "\n\n".join(differing)


def topics_of(place: Place, prefix: str) -> list[str]:
    found = AdminClient({"bootstrap.servers": place.bootstrap}).list_topics(timeout=DEADLINE_S).topics
    return [name for name in found if name.startswith(prefix)]


def commit(bootstrap: str, group: str, *partitions: int) -> None:
    """Offset 1 of the partitions, of 0 if none are given."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})

    def is_committed() -> bool:
        try:
            consumer.commit(offsets=[TopicPartition("t", each, 1) for each in partitions or (0,)], asynchronous=False)
        except KafkaException:  # the coordinator has only just begun to load
            return False
        return True

    until(is_committed, "a commit")
    consumer.close()


def test_groups_with_and_without_members(places: list[Place], proved: Callable[[str, str, str], None]) -> None:
    what = "kafka-groups, kafka-consumer-groups: every option, with a member and without: what they print at Kafka"
    proved(CLIENT, VERSION, what)
    members = []
    for place in places:
        commit(place.bootstrap, "old")
        member = ConsumerMember(place.bootstrap, "new", "m1", subscribed_topic_names=["t"])
        members.append(member)
        until(lambda member=member: member.confirm() or member.owned, "the assignment")  # type: ignore[misc]
    compare(places, "GroupsCommand", *(f"--list {filters}".strip() for filters in LISTED))
    compare(places, "ConsumerGroupCommand", *(f"--list {filters}".strip() for filters in CONSUMER_GROUPS_LISTED))
    for member in members:
        member.confirm()
    which = [f"--group {group}" for group in ("new", "old", "none")]
    described = [f"--describe {group} {kind}".strip() for group in which for kind in DESCRIBED]
    described += [f"--describe --all-groups {kind}".strip() for kind in ("", "--state", "--members")]
    compare(places, "ConsumerGroupCommand", *described)
    for member in members:
        member.confirm()
    compare(places, "ConsumerGroupCommand", *REFUSED_TO_A_MEMBER)
    for member in members:
        member.leave()
    compare(places, "ConsumerGroupCommand", *OF_EMPTY_GROUPS)


def test_streams_groups_with_and_without_members(places: list[Place], proved: Callable[[str, str, str], None]) -> None:
    what = "kafka-streams-groups: list, describe, reset, delete, with a member and without: what it prints at Kafka"
    proved(CLIENT, VERSION, what)
    members = []
    for place in places:
        commit(place.bootstrap, "other")
        member = StreamsMember(place.bootstrap, "flow", "m1", counting_topology("flow", "t"))
        members.append(member)
        # a heartbeat between the creations of two topics would advance the epoch once more
        until(lambda place=place: len(topics_of(place, "flow-")) == 2, "the internal topics")  # type: ignore[misc]
        until(lambda member=member: member.confirm() or member.active, "the tasks")  # type: ignore[misc]
        member.confirm()
    compare(places, "StreamsGroupCommand", *STREAMS_GROUPS_WITH_A_MEMBER)
    compare(places, "GroupsCommand", "--list --streams", "--list --group-type streams", "--list --protocol streams")
    for member in members:
        member.leave()
    for place in places:
        commit(place.bootstrap, "flow", *range(3))
    compare(places, "StreamsGroupCommand", *EMPTY_STREAMS_GROUPS)
    compare(places, "TopicCommand", "--list --exclude-internal")


def test_share_groups_with_and_without_members(places: list[Place], proved: Callable[[str, str, str], None]) -> None:
    proved(CLIENT, VERSION, "kafka-share-groups: every option, with a member and without: what it prints at Kafka")
    members = []
    for place in places:
        member = ShareGroupMember(place.bootstrap, "shared", "m1", subscribed_topic_names=["t"])
        members.append(member)
        until(lambda member=member: member.beat() or member.owned, "the assignment")  # type: ignore[misc]
    compare(places, "ShareGroupCommand", *(f"--list {filters}".strip() for filters in SHARE_GROUPS_LISTED))
    for member in members:
        member.beat()
    which = [f"--group {group}" for group in ("shared", "none")] + ["--all-groups"]
    described = [f"--describe {group} {kind}".strip() for group in which for kind in SHARE_GROUPS_DESCRIBED]
    compare(places, "ShareGroupCommand", *described)
    for member in members:
        member.beat()
    compare(places, "ShareGroupCommand", *REFUSED_TO_A_SHARE_MEMBER)
    for member in members:
        member.leave()
    compare(places, "ShareGroupCommand", *OF_EMPTY_SHARE_GROUPS)


def test_client_metrics(places: list[Place], proved: Callable[[str, str, str], None]) -> None:
    proved(CLIENT, VERSION, "kafka-client-metrics: every option, with refusals: what it prints at Kafka")
    compare(places, "ClientMetricsCommand", *METRICS)


def test_configs_of_groups(places: list[Place], proved: Callable[[str, str, str], None]) -> None:
    proved(CLIENT, VERSION, "kafka-configs of groups and client metrics, with refusals: what it prints at Kafka")
    compare(places, "ConfigCommand", *CONFIGS)


def test_features(places: list[Place], proved: Callable[[str, str, str], None]) -> None:
    proved(CLIENT, VERSION, "kafka-features: every command, with refusals: what it prints at Kafka")
    compare(places, "FeatureCommand", *FEATURES)


def test_verifiable_clients(
    places: list[Place], tools_4_3: Callable[[str], JavaTools], proved: Callable[[str, str, str], None]
) -> None:
    proved(CLIENT, VERSION, "VerifiableProducer, VerifiableConsumer of the consumer protocol: the facts as at Kafka")
    facts = []
    for place in places:
        tools = tools_4_3(place.bootstrap)
        tools.create_topic("verified", 1)
        produced = tools("VerifiableProducer", "--topic", "verified", "--max-messages", COUNT, "--acks", -1)
        words = ["--topic", "verified", "--group-id", "verified", "--group-protocol", "consumer", "--verbose"]
        words += ["--reset-policy", "earliest", "--max-messages", str(COUNT)]
        facts.append([without_rates(line) for line in (produced + tools("VerifiableConsumer", *words)).splitlines()])
    assert facts[0] == facts[1]
    assert sum('"record_data"' in line for line in facts[0]) == COUNT


def without_rates(line: str) -> str:
    return re.sub(r'"(timestamp|avg_throughput|target_throughput)":[-\d.]+', r'"\1":N', line)
