"""The fast path of a heartbeat answers byte for byte as the long way does, and only while there is nothing to tell."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.api.fast_path.heartbeat_fast_path import HeartbeatFastPath
from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.header import decode_response
from kafkalite.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest, HeartbeatTopicPartitions
from tests.support.fast_path_client import Client, topics

KEY = 68


class Member:
    """A member of the group "g" on a connection of its own."""

    def __init__(self, broker: Any, version: int = 1) -> None:
        self.client = Client(broker)
        self.version = version
        self.member_id = str(uuid.uuid4())
        self.epoch = 0
        self.owned: list[HeartbeatTopicPartitions] = []

    def beat(self, **fields: Any) -> Any:
        fields = {"group_id": "g", "member_id": self.member_id, "member_epoch": self.epoch} | fields
        answer = self.client.ask(ConsumerGroupHeartbeatRequest(**fields), self.version)
        _, response = decode_response(ConsumerGroupHeartbeatRequest, self.version, memoryview(answer)[4:])
        if not response.error_code:
            self.epoch = response.member_epoch
        if response.assignment is not None:
            self.owned = response.assignment.topic_partitions
        return response

    def join(self, *names: str) -> Any:
        return self.beat(
            member_epoch=0, rebalance_timeout_ms=60_000, subscribed_topic_names=list(names), topic_partitions=[]
        )

    def confirm(self) -> Any:
        return self.beat(topic_partitions=self.owned)

    @property
    def known(self) -> int:
        fast_path = self.client.connection.fast_paths.get(KEY)
        return len(fast_path._known) if isinstance(fast_path, HeartbeatFastPath) else 0


async def ready(broker: Any) -> None:
    await topics(broker, "t", "another")
    await broker._running.coordinators.offsets_topic.ensure()


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each heartbeat on a known connection: whether it took the fast path."""
    taken: list[bool] = []
    answer = HeartbeatFastPath.answer

    def watched(self: HeartbeatFastPath, frame: memoryview) -> Any:
        found = answer(self, frame)
        taken.append(found is not None)
        return found

    monkeypatch.setattr(HeartbeatFastPath, "answer", watched)
    return taken


@pytest.mark.parametrize("version", (0, 1))
def test_the_same_bytes_as_the_long_way(tell: Callable[..., None], fast: list[bool], version: int) -> None:
    async def story(_: Any, broker: Any) -> None:
        await ready(broker)
        member = Member(broker, version)
        assert member.join("t").member_epoch > 0
        assert member.known == 0
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member.member_id, member_epoch=member.epoch)
        first = member.client.ask(request, version, 41)
        assert member.known == 1 and not fast
        again = member.client.ask(request, version, 41)
        assert fast == [True] and again == first
        later = member.client.ask(request, version, 1 << 30)
        assert later[:4] + first[4:8] + later[8:] == first and int.from_bytes(later[4:8]) == 1 << 30
        # the bytes of version 0 are not those of version 1, and another client is not this one
        request.member_id = str(uuid.uuid4())
        assert fast.pop() and member.client.ask(request, version, 41) != first and fast[-1] is False

    tell(story)


def test_a_change_of_the_group_reaches_the_member(tell: Callable[..., None], fast: list[bool]) -> None:
    async def story(_: Any, broker: Any) -> None:
        await ready(broker)
        one, two = Member(broker), Member(broker)
        one.join("t")
        one.confirm()
        for _ in range(3):
            assert one.beat().assignment is None
        assert fast[-2:] == [True, True]
        broker._running.coordinators.groups.store.by_id["g"].tables.target_timestamp_ms = 0  # assigned long ago
        two.join("t")
        del fast[:]
        revoked = one.beat()
        assert fast == [False] and sum(len(each.partitions) for each in revoked.assignment.topic_partitions) == 1
        for _ in range(2):  # the client has not given it up yet
            assert one.beat().assignment is None
        assert one.confirm().member_epoch == two.epoch
        assert one.beat().error_code == one.beat().error_code == ErrorCode.NONE
        assert fast[-1] and one.known == 1  # the heartbeat of the epoch before is forgotten
        one.beat(member_epoch=-1)
        assert one.beat(member_epoch=two.epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID and not fast[-1]

    tell(story)


def test_it_renews_the_session_as_the_long_way_does(tell: Callable[..., None], fast: list[bool]) -> None:
    async def story(_: Any, broker: Any) -> None:
        await ready(broker)
        member = Member(broker)
        member.join("t")
        group = broker._running.coordinators.groups.store.by_id["g"]
        (deadlines,) = [each for each in group.members.deadlines._by_wait.values() if each]
        for _ in range(3):
            deadlines[member.member_id] -= 1_000
            before = deadlines[member.member_id]
            member.beat()
            assert deadlines[member.member_id] >= before + 1_000
        assert fast == [True, True]

    tell(story)


def test_settings_of_the_group_take_effect(tell: Callable[..., None], fast: list[bool]) -> None:
    async def story(_: Any, broker: Any) -> None:
        await ready(broker)
        member = Member(broker)
        member.join("t")
        assert [member.beat().heartbeat_interval_ms for _ in range(3)] == [5_000] * 3
        configs = broker._running.coordinators.group_configs
        configs.update("g", {"consumer.heartbeat.interval.ms": "7000"})
        assert [member.beat().heartbeat_interval_ms for _ in range(3)] == [7_000] * 3
        assert fast == [True, True, False, True, True]

    tell(story)


def test_what_may_have_changed_is_asked_anew(tell: Callable[..., None], fast: list[bool]) -> None:
    async def story(_: Any, broker: Any) -> None:
        await ready(broker)
        member = Member(broker)
        member.join("t")
        member.beat()
        broker._running.apis.admission_epoch.advance()  # such as by another access list
        member.beat()
        member.beat()
        assert fast == [False, True]
        assert member.beat(subscribed_topic_names=["another"]).error_code == ErrorCode.NONE
        assert not fast[-1]

    tell(story)


def test_a_connection_remembers_no_more_than_some(tell: Callable[..., None]) -> None:
    async def story(_: Any, broker: Any) -> None:
        await ready(broker)
        connection = Client(broker)
        for _ in range(200):
            member = Member(broker)
            member.client = connection
            member.join("t")
            member.beat()
        assert member.known <= 128

    tell(story)
