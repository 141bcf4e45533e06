"""ElectLeaders."""

from __future__ import annotations

from kafkalite.protocol.messages.partition_admin import ElectLeadersRequest, TopicPartitions
from tests.compatibility.differential.cases_topics import delete, gone_from
from tests.compatibility.differential.engine import Explained, Teller, every_version, in_versions

PREFERRED, UNCLEAN = 0, 1

NO_TIME = Explained(
    "an election is answered at once, also with a timeout of 0 or less",
    "Kafka's controller is another thread, and answers REQUEST_TIMED_OUT before it has looked",
    "error_code",
    "replica_election_results.*.partition_result.*.error_code",
)


def elect(*asked: tuple[str, list[int]], kind: int = PREFERRED, **more: int) -> ElectLeadersRequest:
    topics = [TopicPartitions(topic=name, partitions=partitions) for name, partitions in asked]
    return ElectLeadersRequest(election_type=kind, topic_partitions=topics, **more)


@every_version("ElectLeaders")
def the_leader_is_right(t: Teller) -> None:
    topic, other = t.topic(partitions=2), t.topic("other")
    for kind in (PREFERRED, UNCLEAN) if t.v else (PREFERRED,):
        t.ask(f"two partitions, {kind}", elect((topic, [0, 1]), kind=kind))
        t.ask(f"two topics, {kind}", elect((topic, [1]), (other, [0]), kind=kind))
        t.ask(f"all there is, {kind}", ElectLeadersRequest(election_type=kind, topic_partitions=None))
        t.ask(f"in no time, {kind}", elect((topic, [0]), kind=kind, timeout_ms=0), but=NO_TIME)
        t.ask(f"in less, {kind}", elect((topic, [0]), kind=kind, timeout_ms=-1), but=NO_TIME)
        t.ask(f"the groups' topic, {kind}", elect(("__consumer_offsets", [0, 4, 5]), kind=kind))


@every_version("ElectLeaders")
def what_is_not_there(t: Teller) -> None:
    topic = t.topic(partitions=2)
    for kind in (PREFERRED, UNCLEAN) if t.v else (PREFERRED,):
        t.ask(f"unknown topic, {kind}", elect((t.name("none"), [0, 1]), kind=kind))
        t.ask(f"unknown partitions, {kind}", elect((topic, [2, -1]), kind=kind))
        t.ask(f"one of three, {kind}", elect((topic, [1, 2]), (t.name("none"), [0]), kind=kind))
        t.ask(f"nothing asked for, {kind}", elect(kind=kind))
        t.ask(f"a topic without partitions, {kind}", elect((topic, []), kind=kind))
        t.ask(f"a topic without a name, {kind}", elect(("", [0]), kind=kind))
        t.ask(f"a name that cannot be, {kind}", elect(("d/x", [0]), kind=kind))


@every_version("ElectLeaders")
def one_twice(t: Teller) -> None:
    topic = t.topic(partitions=2)
    t.ask("a partition", elect((topic, [0, 0])))
    t.ask("a topic", elect((topic, [0]), (topic, [0, 1])))


@in_versions(0, 2)
def deleted(t: Teller) -> None:
    topic = t.topic()
    t.aside(delete(topic), 6)
    gone_from(t, topic)
    t.ask("gone", elect((topic, [0])))
    topic = t.topic()
    t.ask("made again", elect((topic, [0])))


@in_versions(1, 2)
def of_no_kind(t: Teller) -> None:
    topic = t.topic()
    for kind in (2, -1, 127):
        t.ask(f"{kind}", elect((topic, [0]), kind=kind))
        t.ask(f"{kind} of what is not there", elect((t.name("none"), [0]), kind=kind))
        t.ask(f"{kind} of nothing", elect(kind=kind))
