"""Share groups (KIP-932): heartbeats, records that are fetched and acknowledged, offsets, and the share coordinator."""

from __future__ import annotations

import base64
from typing import Any
from uuid import UUID

from kafkalite.common.names import ZERO_UUID
from kafkalite.protocol.messages import share_groups, share_state
from kafkalite.protocol.messages.groups import DeleteGroupsRequest, FindCoordinatorRequest, ListGroupsRequest
from tests.compatibility.differential.asking import batch, produce
from tests.compatibility.differential.asking_shares import (
    ACCEPT,
    GAP,
    HEARTBEAT,
    REJECT,
    RELEASE,
    RENEW,
    Given,
    acknowledge,
    beat,
    fetch,
    first_fetch,
    joined,
)
from tests.compatibility.differential.engine import Explained, Teller, in_versions_of_4_3, once_in_4_3, tries

DESCRIBE = 1
NO_TOPIC = Explained(
    "a topic id that does not exist is refused with UNKNOWN_TOPIC_ID in its row",
    "Kafka fails with UNKNOWN_SERVER_ERROR",
    "**",
)


def describe(*groups: str, **fields: Any) -> share_groups.ShareGroupDescribeRequest:
    return share_groups.ShareGroupDescribeRequest(group_ids=list(groups), **fields)


@in_versions_of_4_3(1)
def heartbeats(t: Teller) -> None:
    group, topic = t.group(), t.topic()
    t.ask("without an id", beat(group, "", 0, topic))
    t.ask("a blank id", beat(group, " ", 0, topic))
    t.ask("an id that is too long", beat(group, "x" * 37, 0, topic))
    t.ask("a group without a name", beat("", "m", 0, topic))
    t.ask("a blank group", beat(" ", "m", 0, topic))
    t.ask("a blank rack", beat(group, "m", 0, topic, rack_id=" "))
    t.ask("no topics", beat(group, "m", 0))
    t.ask("topics unsaid", beat(group, "m", 0, subscribed_topic_names=None))
    t.ask("an epoch that there is not", beat(group, "m", -2))
    t.ask("an unknown group", beat(t.name("none"), "m", 1))
    t.ask("leaving an unknown group", beat(t.name("none"), "m", -1))
    joined(t, group, "m", topic)
    t.ask("an unknown member", beat(group, "other", 1))
    t.ask("an unknown one leaves", beat(group, "other", -1))
    t.ask("an epoch to come", beat(group, "m", 99))
    t.ask("it leaves", beat(group, "m", -1))
    t.ask("and again", beat(group, "m", -1))


@in_versions_of_4_3(1)
def descriptions(t: Teller) -> None:
    group, topic = t.group(), t.topic()
    t.ask("an unknown group", describe(group))
    t.ask("no name", describe(""))
    t.ask("none", describe())
    joined(t, group, "m", topic)
    t.aside(beat(group, "m", -1), HEARTBEAT)
    answer = t.aside(describe(group, include_authorized_operations=True), DESCRIBE)
    for described in answer.groups:
        described.group_epoch = described.assignment_epoch = 0  # how often it was assigned is a matter of time
    t.note("an empty group", answer, DESCRIBE)
    answer = t.aside(ListGroupsRequest(types_filter=["share"], states_filter=["Empty"]), 5)
    answer.groups = [each for each in answer.groups if each.group_id == group]  # other stories have some as well
    t.note("listed by type", answer, 5)


@in_versions_of_4_3(1, 2)
def what_becomes_of_records(t: Teller) -> None:
    group, topic = t.group(), t.topic()
    t.aside(produce(topic, batch(*(b"%d" % n for n in range(10)))), 9)
    joined(t, group, "m", topic)
    epoch = first_fetch(t, "the records", group, "m", topic)
    t.ask("nothing more", fetch(t, group, "m", epoch, topic))
    t.ask("accepted", acknowledge(t, group, "m", epoch + 1, topic, (0, 2, [ACCEPT])))
    t.ask("accepted again", acknowledge(t, group, "m", epoch + 2, topic, (0, 2, [ACCEPT])))
    t.ask("one each", acknowledge(t, group, "m", epoch + 3, topic, (3, 5, [ACCEPT, RELEASE, REJECT])))
    t.ask("the one that was released", fetch(t, group, "m", epoch + 4, topic))
    t.ask("with the next fetch", fetch(t, group, "m", epoch + 5, topic, (4, 4, [REJECT]), (6, 7, [ACCEPT])))
    t.ask("a gap", acknowledge(t, group, "m", epoch + 6, topic, (8, 8, [GAP])))
    t.ask("beyond the end", acknowledge(t, group, "m", epoch + 7, topic, (9, 12, [ACCEPT])))
    t.ask("far beyond the end", acknowledge(t, group, "m", epoch + 8, topic, (100, 101, [ACCEPT])))
    t.ask("the end of the session", acknowledge(t, group, "m", -1, topic))
    t.ask("there is none", acknowledge(t, group, "m", epoch + 9, topic, (9, 9, [ACCEPT])))


@in_versions_of_4_3(1, 2)
def bad_acknowledgements(t: Teller) -> None:
    group, topic = t.group(), t.topic()
    t.aside(produce(topic, batch(*(b"%d" % n for n in range(10)))), 9)
    joined(t, group, "m", topic)
    epoch = first_fetch(t, "the records", group, "m", topic)
    cases: list[tuple[str, tuple[Given, ...]]] = [
        ("a type that there is not", ((0, 0, [5]),)),
        ("a negative type", ((0, 0, [-1]),)),
        ("a renewal", ((0, 0, [RENEW]),)),
        ("no types", ((0, 0, []),)),
        ("too few types", ((0, 2, [ACCEPT, ACCEPT]),)),
        ("from the back", ((2, 1, [ACCEPT]),)),
        ("overlapping", ((0, 3, [ACCEPT]), (2, 5, [ACCEPT]))),
        ("not in order", ((5, 6, [ACCEPT]), (1, 2, [ACCEPT]))),
        ("good", ((0, 1, [ACCEPT]), (2, 3, [REJECT]))),
        ("one of two is refused", ((4, 4, [ACCEPT]), (1, 1, [ACCEPT]))),
    ]
    for label, given in cases:
        t.ask(label, acknowledge(t, group, "m", epoch, topic, *given))
        epoch += 1
    t.ask("the rest is released", acknowledge(t, group, "m", epoch, topic, (4, 9, [RELEASE])))
    t.ask("what is left", fetch(t, group, "m", epoch + 1, topic))
    t.ask("another topic", acknowledge(t, group, "m", epoch + 2, UUID(int=77), (0, 0, [ACCEPT])))
    t.ask("another partition", acknowledge(t, group, "m", epoch + 3, topic, (0, 0, [ACCEPT]), partition=5))


@in_versions_of_4_3(1, 2)
def sessions(t: Teller) -> None:
    group, topic = t.group(), t.topic()
    t.aside(produce(topic, batch(b"a", b"b")), 9)
    joined(t, group, "m", topic)
    t.ask("no session", fetch(t, group, "m", 5, topic))
    t.ask("none to end", fetch(t, group, "m", -1, topic))
    t.ask("acknowledged at its beginning", fetch(t, group, "m", 0, topic, (0, 0, [ACCEPT])))
    t.ask("acknowledged at its beginning, alone", acknowledge(t, group, "m", 0, topic, (0, 0, [ACCEPT])))
    t.ask("no group", fetch(t, None, "m", 0, topic))  # type: ignore[arg-type]
    t.ask("no member", fetch(t, group, "", 0, topic))
    t.ask("no member at all", fetch(t, group, None, 0, topic))  # type: ignore[arg-type]
    t.ask("a member with a long name", fetch(t, group, "x" * 37, 0, topic))
    epoch = first_fetch(t, "the records", group, "m", topic)
    t.ask("an epoch left out", fetch(t, group, "m", epoch + 1, topic))
    t.aside(fetch(t, group, "m", epoch, topic), t.v)
    t.ask("an epoch of before", fetch(t, group, "m", epoch, topic))
    t.ask("the end", fetch(t, group, "m", -1, topic, (0, 0, [ACCEPT])))
    epoch = first_fetch(t, "the other record again", group, "m", topic)
    t.ask("a partition that there is not", fetch(t, group, "m", epoch, topic, partition=9))
    t.ask("a topic that there is not", fetch(t, group, "m", epoch + 1, UUID(int=77)), but=NO_TOPIC)


@in_versions_of_4_3(2)
def renewals(t: Teller) -> None:
    group, topic = t.group(), t.topic()
    t.aside(produce(topic, batch(b"a", b"b", b"c")), 9)
    joined(t, group, "m", topic)
    epoch = first_fetch(t, "the records", group, "m", topic)
    none = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0, "is_renew_ack": True}
    t.ask("renewed", acknowledge(t, group, "m", epoch, topic, (0, 0, [RENEW]), is_renew_ack=True))
    t.ask("renewed by a fetch", fetch(t, group, "m", epoch + 1, topic, (0, 1, [RENEW, ACCEPT]), **none))
    t.ask("renewed and fetched", fetch(t, group, "m", epoch + 2, topic, (0, 0, [RENEW]), is_renew_ack=True))
    t.ask("renewed too late", acknowledge(t, group, "m", epoch + 2, topic, (1, 1, [RENEW]), is_renew_ack=True))


@in_versions_of_4_3(1)
def limits_of_records(t: Teller) -> None:
    group, topic = t.group(), t.topic()
    for start in range(0, 30, 10):
        t.aside(produce(topic, batch(*(b"%d" % n for n in range(start, start + 10)))), 9)
    joined(t, group, "m", topic)
    epoch = first_fetch(t, "five, so the batch", group, "m", topic, max_records=5)
    t.ask("twelve", fetch(t, group, "m", epoch, topic, max_records=12, batch_size=4))
    t.ask("none", fetch(t, group, "m", epoch + 1, topic, max_records=0))


@in_versions_of_4_3(2)
def limits_that_count(t: Teller) -> None:
    group, topic = t.group(), t.topic()
    for start in range(0, 30, 10):
        t.aside(produce(topic, batch(*(b"%d" % n for n in range(start, start + 10)))), 9)
    joined(t, group, "m", topic)
    limited = {"max_records": 5, "share_acquire_mode": 1}
    epoch = first_fetch(t, "five", group, "m", topic, **limited)
    t.ask("five more", fetch(t, group, "m", epoch, topic, **limited))
    t.ask("across a batch", fetch(t, group, "m", epoch + 1, topic, **limited | {"max_records": 7}))
    t.ask("given back", acknowledge(t, group, "m", epoch + 2, topic, (0, 16, [RELEASE])))
    t.ask("three of them", fetch(t, group, "m", epoch + 3, topic, **limited | {"max_records": 3}))


@once_in_4_3
def offsets(t: Teller) -> None:
    group, topic = t.group(), t.topic()
    t.aside(produce(topic, batch(*(b"%d" % n for n in range(10)))), 9)
    t.ask("an unknown group", offsets_of(group, topic), 1)
    t.ask("altered in an unknown group", alter(group, topic, 3), 0)
    t.ask("deleted in an unknown group", delete(group, topic), 0)
    joined(t, group, "m", topic)
    t.ask("altered under members", alter(group, topic, 3), 0)
    t.ask("deleted under members", delete(group, topic), 0)
    t.aside(beat(group, "m", -1), HEARTBEAT)
    t.ask("of a topic", offsets_of(group, topic), 1)
    t.ask("of all", offsets_of(group), 0)
    t.ask("of a topic that there is not", offsets_of(group, t.name("none")), 1)
    t.ask("altered", alter(group, topic, 3), 0)
    t.ask("altered at a topic that there is not", alter(group, t.name("none"), 3), 0)
    t.ask("altered at a partition that there is not", alter(group, topic, 3, partition=7), 0)
    t.ask("after that", offsets_of(group, topic), 1)
    t.ask("deleted at a topic that there is not", delete(group, t.name("none")), 0)
    t.ask("deleted", delete(group, topic), 0)
    t.ask("without", offsets_of(group), 1)
    t.ask("the group is deleted", DeleteGroupsRequest(groups_names=[group]), 2)
    t.ask("and gone", describe(group), DESCRIBE)


def offsets_of(group: str, *topics: str) -> share_groups.DescribeShareGroupOffsetsRequest:
    rows = [share_groups.DescribeShareGroupOffsetsTopic(topic_name=name, partitions=[0]) for name in topics]
    one = share_groups.DescribeShareGroupOffsetsGroup(group_id=group, topics=rows or None)
    return share_groups.DescribeShareGroupOffsetsRequest(groups=[one])


def alter(group: str, topic: str, offset: int, partition: int = 0) -> share_groups.AlterShareGroupOffsetsRequest:
    row = share_groups.AlterShareGroupOffsetsPartition(partition_index=partition, start_offset=offset)
    rows = [share_groups.AlterShareGroupOffsetsTopic(topic_name=topic, partitions=[row])]
    return share_groups.AlterShareGroupOffsetsRequest(group_id=group, topics=rows)


def delete(group: str, *topics: str) -> share_groups.DeleteShareGroupOffsetsRequest:
    rows = [share_groups.DeleteShareGroupOffsetsTopic(topic_name=name) for name in topics]
    return share_groups.DeleteShareGroupOffsetsRequest(group_id=group, topics=rows)


@once_in_4_3
def durable_state(t: Teller) -> None:
    topic = t.topic()
    key = f"{t.name('g')}:{_text(t.id_of(topic))}:0"
    for _ in tries("a share coordinator"):
        found = t.aside(FindCoordinatorRequest(key_type=2, coordinator_keys=[key]), 6)
        known = t.aside(summary(t, topic), 0).results[0].partitions[0]
        if not found.coordinators[0].error_code and not known.error_code:
            break
    t.ask("nothing is known", read(t, topic), 0)
    t.ask("a summary of nothing", summary(t, topic), 1)
    t.ask("written to nothing", write(t, topic, (0, 4, 2, 1), start=0), 1)
    t.ask("initialized", initialize(t, topic, 5, 10), 0)
    t.ask("by an older epoch", initialize(t, topic, 4, 0), 0)
    t.ask("read by the leader", read(t, topic, leader_epoch=3), 0)
    t.ask("read by an old leader", read(t, topic, leader_epoch=2), 0)
    t.ask("written", write(t, topic, (10, 14, 2, 1), (15, 19, 0, 2), start=10, state_epoch=5, leader_epoch=3), 0)
    t.ask("a state epoch of before", write(t, topic, (10, 14, 2, 1), start=10, state_epoch=4, leader_epoch=3), 1)
    t.ask("an old leader", write(t, topic, (10, 14, 2, 1), start=10, state_epoch=5, leader_epoch=2), 1)
    t.ask("over it", write(t, topic, (12, 17, 4, 3), start=-1, state_epoch=5, leader_epoch=3, complete=4), 1)
    t.ask("what stands", read(t, topic, leader_epoch=3), 0)
    t.ask("a summary", summary(t, topic), 1)
    t.ask("moved on", write(t, topic, start=16, state_epoch=5, leader_epoch=3, complete=2), 1)
    t.ask("what stands then", read(t, topic, leader_epoch=3), 0)
    t.ask("no group", read(t, topic, group=""), 0)
    t.ask("no topic", read(t, ZERO_UUID), 0)
    t.ask("a partition that there is not", write(t, topic, start=1, partition=9), 1)
    t.ask("deleted", forget(t, topic), 0)
    t.ask("deleted again", forget(t, topic), 0)
    t.ask("nothing again", summary(t, topic), 1)


def _text(topic_id: UUID) -> str:
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def _named(t: Teller, topic: str | UUID, group: str | None) -> tuple[str, UUID]:
    return t.name("g") if group is None else group, topic if isinstance(topic, UUID) else t.id_of(topic)


def read(t: Teller, topic: str | UUID, leader_epoch: int = -1, group: str | None = None) -> Any:
    group_id, topic_id = _named(t, topic, group)
    row = share_state.ReadSharePartition(partition=0, leader_epoch=leader_epoch)
    rows = [share_state.ReadShareTopic(topic_id=topic_id, partitions=[row])]
    return share_state.ReadShareGroupStateRequest(group_id=group_id, topics=rows)


def summary(t: Teller, topic: str) -> Any:
    group_id, topic_id = _named(t, topic, None)
    row = share_state.ReadSharePartition(partition=0, leader_epoch=-1)
    rows = [share_state.ReadShareTopic(topic_id=topic_id, partitions=[row])]
    return share_state.ReadShareGroupStateSummaryRequest(group_id=group_id, topics=rows)


def initialize(t: Teller, topic: str, epoch: int, start: int) -> Any:
    group_id, topic_id = _named(t, topic, None)
    row = share_state.InitializeSharePartition(partition=0, state_epoch=epoch, start_offset=start)
    rows = [share_state.InitializeShareTopic(topic_id=topic_id, partitions=[row])]
    return share_state.InitializeShareGroupStateRequest(group_id=group_id, topics=rows)


def write(
    t: Teller,
    topic: str,
    *ranges: tuple[int, int, int, int],
    start: int,
    state_epoch: int = 0,
    leader_epoch: int = 0,
    complete: int = -1,
    partition: int = 0,
) -> Any:
    """`ranges`: first and last offset, delivery state, delivery count."""
    group_id, topic_id = _named(t, topic, None)
    row = share_state.WriteSharePartition(
        partition=partition,
        state_epoch=state_epoch,
        leader_epoch=leader_epoch,
        start_offset=start,
        delivery_complete_count=complete,
        state_batches=[
            share_state.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in ranges
        ],
    )
    rows = [share_state.WriteShareTopic(topic_id=topic_id, partitions=[row])]
    return share_state.WriteShareGroupStateRequest(group_id=group_id, topics=rows)


def forget(t: Teller, topic: str) -> Any:
    group_id, topic_id = _named(t, topic, None)
    rows = [share_state.DeleteShareTopic(topic_id=topic_id, partitions=[share_state.DeleteSharePartition(partition=0)])]
    return share_state.DeleteShareGroupStateRequest(group_id=group_id, topics=rows)
