"""Answers of coordinators: errors of one partition among several, and groups of each type, at new and old brokers."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kafkalite.client.group_admin import GroupAdmin
from kafkalite.client.group_description import Group, ListedGroup, Member, sentences_of, steps_of
from kafkalite.client.group_rows import lag_of
from kafkalite.common.errors import ConfigError, ErrorCode, Unanswered
from kafkalite.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)
from kafkalite.protocol.messages.group_offsets import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kafkalite.protocol.messages.groups import DescribedGroup, DescribeGroupsResponse
from kafkalite.protocol.messages.share_groups import (
    DescribedShareGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from kafkalite.protocol.messages.streams_groups import (
    DescribedStreamsGroup,
    DescribedStreamsGroupMember,
    DescribedSubtopology,
    DescribedTopology,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsTaskIds,
    StreamsTasks,
)


class Coordinator:
    """Answers about two partitions with these error codes; the codes of one answer after the other."""

    def __init__(self, *codes: tuple[ErrorCode, ErrorCode]) -> None:
        self.codes = list(codes)

    def find_coordinator(self, key: str, key_type: int) -> tuple[int, int]:
        return 0, 1

    def client(self, broker_id: int) -> Coordinator:
        return self

    def ask(self, request: Any, version: int) -> Any:
        codes = self.codes.pop(0)
        if isinstance(request, OffsetFetchRequest):
            fetched = [
                OffsetFetchResponsePartition(partition_index=index, committed_offset=7, error_code=code)
                for index, code in enumerate(codes)
            ]
            return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=fetched)])
        committed = [
            OffsetCommitResponsePartition(partition_index=index, error_code=code) for index, code in enumerate(codes)
        ]
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=committed)])


def admin(*codes: tuple[ErrorCode, ErrorCode]) -> GroupAdmin:
    return GroupAdmin(cast("Any", Coordinator(*codes)), 10.0)


NONE, DENIED, MOVED = ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NOT_COORDINATOR


def test_an_offset_that_cannot_be_read_is_not_left_out() -> None:
    assert admin((NONE, NONE)).offsets("g") == {("t", 0): 7, ("t", 1): 7}
    with pytest.raises(Unanswered, match="the offset of g in t-1 cannot be read: TOPIC_AUTHORIZATION_FAILED"):
        admin((NONE, DENIED)).offsets("g")


def test_a_commit_is_sent_again_whichever_partition_says_so() -> None:
    offsets = {("t", 0): 1, ("t", 1): 1}
    assert admin((DENIED, MOVED), (NONE, NONE)).commit("g", offsets) == []
    assert admin((NONE, DENIED)).commit("g", offsets) == ["t-1 keeps its offset: TOPIC_AUTHORIZATION_FAILED"]


def test_a_lag_without_an_offset_or_an_end_is_none() -> None:
    assert (lag_of(None, 3), lag_of(3, None), lag_of(1, 3), lag_of(5, 3)) == (None, None, 2, -2)


class Broker:
    """Has the groups `classic`, `modern`, `queue` and `app`, and describes those of newer types or not. `asked` are the
    requests."""

    def __init__(self, *, has_consumer_groups: bool, refusal: ErrorCode = ErrorCode.GROUP_ID_NOT_FOUND) -> None:
        self.has_consumer_groups = has_consumer_groups
        self.refusal = refusal
        self.asked: list[tuple[str, ...]] = []

    def find_coordinator(self, key: str, key_type: int) -> tuple[int, int]:
        return 0, 1

    def client(self, broker_id: int) -> Broker:
        return self

    @property
    def address(self) -> str:
        return "here:9092"

    def refresh(self) -> dict[str, int]:
        return {}

    def partition_count(self, topic: str) -> int:
        return 1 if topic == "narrow" else 2

    def serves(self, request: type[Any]) -> bool:
        return self.has_consumer_groups

    def newest(self, request: type[Any], known: int) -> int:
        return known

    def ask(self, request: Any, version: int) -> Any:
        if isinstance(request, ConsumerGroupDescribeRequest):
            self.asked.append(("consumer", *request.group_ids))
            return ConsumerGroupDescribeResponse(groups=[self._consumer_group(name) for name in request.group_ids])
        if isinstance(request, ShareGroupDescribeRequest):
            self.asked.append(("share", *request.group_ids))
            return ShareGroupDescribeResponse(groups=[self._share_group(name) for name in request.group_ids])
        if isinstance(request, StreamsGroupDescribeRequest):
            self.asked.append(("streams", *request.group_ids))
            return StreamsGroupDescribeResponse(groups=[self._streams_group(name) for name in request.group_ids])
        self.asked.append(("classic", *request.groups))
        return DescribeGroupsResponse(groups=[self._classic_group(name) for name in request.groups])

    def _consumer_group(self, name: str) -> DescribedConsumerGroup:
        is_here = name == "modern" and self.refusal != ErrorCode.UNSUPPORTED_VERSION
        return DescribedConsumerGroup(
            group_id=name,
            error_code=ErrorCode.NONE if is_here else self.refusal,
            group_state="Stable" if is_here else "",
            group_epoch=3,
            assignment_epoch=3,
        )

    def _share_group(self, name: str) -> DescribedShareGroup:
        is_here = name == "queue" and self.refusal != ErrorCode.UNSUPPORTED_VERSION
        error_code = ErrorCode.NONE if is_here else self.refusal
        return DescribedShareGroup(group_id=name, error_code=error_code, group_state="Empty", group_epoch=7)

    def _streams_group(self, name: str) -> DescribedStreamsGroup:
        if name != "app" or self.refusal == ErrorCode.UNSUPPORTED_VERSION:
            return DescribedStreamsGroup(group_id=name, error_code=self.refusal)
        tasks = StreamsTasks(
            active_tasks=[StreamsTaskIds(subtopology_id="0", partitions=[0, 1])],
            standby_tasks=[StreamsTaskIds(subtopology_id="1", partitions=[1])],
        )
        topology = DescribedTopology(
            subtopologies=[
                DescribedSubtopology(
                    subtopology_id="0", source_topics=["wide", "narrow"], repartition_sink_topics=["r"]
                )
            ]
        )
        return DescribedStreamsGroup(
            group_id=name,
            group_state="Stable",
            group_epoch=5,
            assignment_epoch=4,
            topology=topology,
            members=[DescribedStreamsGroupMember(member_id="m", member_epoch=4, assignment=tasks)],
        )

    def _classic_group(self, name: str) -> DescribedGroup:
        is_here = name == "classic"
        code = ErrorCode.NONE if is_here else ErrorCode.GROUP_ID_NOT_FOUND
        return DescribedGroup(group_id=name, group_state="Stable" if is_here else "Dead", error_code=code)


def described_at(broker: Broker, group_id: str) -> Group:
    return GroupAdmin(cast("Any", broker), 10.0).describe(group_id)


def test_a_group_is_described_by_the_api_of_its_type() -> None:
    broker = Broker(has_consumer_groups=True)
    assert described_at(broker, "modern").epoch == 3
    assert described_at(broker, "classic").group_type == "classic"
    with pytest.raises(ConfigError, match="group nobody not found at here:9092"):
        described_at(broker, "nobody")
    assert broker.asked[:3] == [("consumer", "modern"), ("consumer", "classic"), ("classic", "classic")]
    broker.asked.clear()
    queue = described_at(broker, "queue")
    assert (queue.group_type, queue.epoch, queue.state) == ("share", 7, "Empty")
    assert broker.asked == [("consumer", "queue"), ("classic", "queue"), ("share", "queue")]
    broker.asked.clear()
    app = described_at(broker, "app")
    assert (app.group_type, app.epoch, app.target_epoch, app.state) == ("streams", 5, 4, "Stable")
    assert app.topology == ("subtopology 0 reads wide narrow, writes r",)
    [member] = app.members
    assert member.partitions == {("wide", 0), ("wide", 1), ("narrow", 0)}
    assert (member.tasks, member.target_tasks) == ({"0": [0, 1], "1 standby": [1]}, {})
    assert [kind for kind, *_ in broker.asked] == ["consumer", "classic", "share", "streams"]


@pytest.mark.parametrize(
    "broker",
    [Broker(has_consumer_groups=False), Broker(has_consumer_groups=True, refusal=ErrorCode.UNSUPPORTED_VERSION)],
)
def test_a_broker_without_consumer_groups_describes_classic_ones(broker: Broker) -> None:
    assert described_at(broker, "classic").epoch is None
    with pytest.raises(ConfigError):
        described_at(broker, "modern")


def test_many_groups_are_described_in_one_request_of_each_type() -> None:
    broker = Broker(has_consumer_groups=True)
    admin = GroupAdmin(cast("Any", broker), 10.0)
    types = {"classic": "classic", "modern": "consumer", "queue": "share", "gone": "consumer", "app": "streams"}
    listed = [ListedGroup(name, "Stable", kind, None, 1) for name, kind in types.items()]
    assert sorted(admin.describe_many(listed)) == ["app", "classic", "modern", "queue"]
    assert broker.asked == [
        ("consumer", "modern", "gone"),
        ("classic", "classic", "gone"),
        ("share", "queue"),
        ("streams", "app"),
    ]
    untyped = [ListedGroup(name, "Stable", None, None, 1) for name in ("classic", "modern")]
    assert {name: each.group_type for name, each in admin.describe_many(untyped).items()} == {
        "classic": "classic",
        "modern": "consumer",
    }


def test_steps_name_holders_and_heirs() -> None:
    first, second, third = ("t", 0), ("t", 1), ("t", 2)

    def member(name: str, epoch: int, has: set[Any], gets: set[Any]) -> Member:
        return Member(name, None, "", "", frozenset(has), epoch, frozenset(gets))

    members = (
        member("a", 1, {first, second}, {first}),
        member("b", 2, set(), {second, third}),
        member("c", 1, set(), set()),
    )
    group = Group(
        "g", 1, "Reconciling", "consumer", "uniform", (*members, member("d", -2, set(), set())), "consumer", 3, 2
    )
    assert sentences_of(group) == [
        "the target assignment of group epoch 3 is computed with a heartbeat to come",
        "a has not confirmed the revocation of t-1, for which b waits",
        "t-2 goes to b with its next heartbeat",
        "c is at epoch 1, and takes the next one with a heartbeat",
    ]
    assert [step.partition for step in steps_of(group)] == [second, third, None]
