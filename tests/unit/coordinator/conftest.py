"""A coordinator behind its handlers, in a world without a loop: time moves when told, the log is a list that can refuse
or dawdle."""

from __future__ import annotations

import asyncio
import itertools
import struct
from types import SimpleNamespace

import pytest

from kafkalite.api.handlers.group_offsets import GroupOffsetApi
from kafkalite.api.handlers.groups import GroupApi
from kafkalite.api.request.request_context import RequestContext
from kafkalite.common.errors import ErrorCode
from kafkalite.coordinator.group_coordinator import GroupCoordinator
from kafkalite.coordinator.group_store import GroupLoader
from kafkalite.coordinator.runtime.effects import STAYS_IN_LOG
from kafkalite.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafkalite.protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kafkalite.record.batch import build_batch
from kafkalite.record.record import Record
from tests.support.consumer_group_world import no_consumer_groups
from tests.support.manual_clock import ManualClock

PARTITIONS = 3
SESSION_MS = 10_000
REBALANCE_MS = 60_000


class Call:
    """A request that was sent: `answer` is the response, or None while it waits."""

    def __init__(self, outcome):
        self.outcome = outcome

    @property
    def answer(self):
        if isinstance(self.outcome, asyncio.Future):
            return self.outcome.result() if self.outcome.done() else None
        return self.outcome

    @property
    def waits(self):
        return self.answer is None

    @property
    def error(self):
        return None if self.waits else ErrorCode(self.answer.error_code)

    def give_up(self):
        """The client is gone: the network cancels what is parked for it."""
        self.outcome.cancel()


class World:
    def __init__(self, **overrides):
        self.config = SimpleNamespace(
            **{
                "offsets_topic_num_partitions": PARTITIONS,
                "group_initial_rebalance_delay_ms": 0,
                "group_min_session_timeout_ms": 6_000,
                "group_max_session_timeout_ms": 1_800_000,
                "group_max_size": 2**31 - 1,
                "offset_metadata_max_bytes": 4096,
                "offsets_retention_minutes": 10_080,
                "offsets_retention_check_interval_ms": 600_000,
                "offsets_commit_timeout_ms": 5_000,
            }
            | overrides
        )
        self.clock = ManualClock()
        self.loop = asyncio.new_event_loop()  # never runs: it only makes futures
        self.topics = {"orders": 100, "clicks": 2}
        self.log = []  # (partition, key, value) in the order written
        self.verification = ErrorCode.NONE  # the outcome for commits in transactions
        self.verifies_late = False
        self.unverified = []  # callbacks of verifications in progress
        self.verified = []
        self.attributes = {}  # of the batch of a transaction or marker, by its place in the log
        self.refuses = ErrorCode.NONE
        self.dawdles = False
        self.held = []  # what a dawdling log has not answered yet
        self.coordinator = self._new_coordinator()
        for partition in range(PARTITIONS):
            self.load(partition, [])

    def _new_coordinator(self):
        count = itertools.count(1)
        environment = no_consumer_groups()
        return GroupCoordinator(self.config, self.clock, self._append, environment, new_uuid=lambda: f"u{next(count)}")

    def _verify(self, index, request, done):
        self.verified.append((index, request.transactional_id, request.producer, request.adds_partition))
        if self.verifies_late:
            self.unverified.append(done)
        else:
            done(self.verification, None)

    @property
    def store(self):
        return self.coordinator.store

    @property
    def _groups(self):
        return GroupApi(SimpleNamespace(loop=self.loop), None, self.coordinator, None, None, None, None)

    @property
    def offset_api(self):
        replicas = SimpleNamespace(exists=lambda topic, index: 0 <= index < self.topics.get(topic, 0))
        add_partitions = SimpleNamespace(verify_commit=self._verify)
        runtime = SimpleNamespace(loop=self.loop)
        return GroupOffsetApi(runtime, lambda: self.config, replicas, self.coordinator, add_partitions, None)

    def handle(self, handler, request, version, client="c"):
        return handler(request, RequestContext(SimpleNamespace(host="10.0.0.1"), version, client))

    def load(self, partition, batches):
        loader = GroupLoader()
        loader.read(batches)
        assert list(loader.finish()) == []
        self.store.load(partition, loader)

    def _append(self, partition, records, done, *, producer=None, guard=None):
        def answer(error=None):
            error = self.refuses if error is None else error
            if not error or error in STAYS_IN_LOG:
                for record in records:
                    if producer is not None:
                        self.attributes[len(self.log)] = {"transactional": True, **producer._asdict()}
                    self.log.append((partition, *record))
            done(error)

        if self.dawdles:
            self.held.append(answer)
        else:
            answer()

    def log_answers(self, error=None):
        """The log gets round to the oldest append that it has not answered."""
        self.held.pop(0)(error)

    def answered(self, request):
        """The answer to a request that waits for the log, which answers everything when that has been sent."""

        def answer_all():
            while self.held:
                self.log_answers()

        loop = asyncio.new_event_loop()
        try:
            task = loop.create_task(request)
            loop.call_soon(answer_all)
            return loop.run_until_complete(task)
        finally:
            loop.close()

    def batches(self, partition):
        return [
            memoryview(
                build_batch(
                    [Record(0, self.clock.wall_ms(), key, value, ())],
                    base_offset=offset,
                    **self.attributes.get(offset, {}),
                )
            )
            for offset, (at, key, value) in enumerate(self.log)
            if at == partition
        ]

    def restart(self):
        """Another broker process on the same log."""
        self.coordinator.close()
        self.dawdles, self.refuses = False, ErrorCode.NONE
        self.coordinator = self._new_coordinator()
        for partition in range(PARTITIONS):
            self.load(partition, self.batches(partition))

    def passes(self, ms):
        self.clock.advance(ms)

    # --- what clients do

    def join(
        self,
        member_id="",
        *,
        group="g",
        instance=None,
        protocols=(("range", b"m"),),
        version=5,
        client="c",
        session_ms=SESSION_MS,
        rebalance_ms=REBALANCE_MS,
        protocol_type="consumer",
    ):
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms if version else -1,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
        )
        return Call(self.handle(self._groups.join_group, request, version, client))

    def sync(self, member_id, generation, assignments=(), *, group="g", instance=None, version=3, **protocol):
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=assignment)
                for each, assignment in dict(assignments).items()
            ],
            **protocol,
        )
        return Call(self.handle(self._groups.sync_group, request, version))

    def heartbeat(self, member_id, generation, *, group="g", instance=None):
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        return ErrorCode(self.handle(self._groups.heartbeat, request, 4).error_code)

    def leave(self, *identities, group="g", version=3):
        """Each identity is a member id, or (member id, instance id)."""
        members = [
            MemberIdentity(member_id=each[0], group_instance_id=each[1])
            if isinstance(each, tuple)
            else MemberIdentity(member_id=each)
            for each in identities
        ]
        request = LeaveGroupRequest(group_id=group, member_id=members[0].member_id, members=members)
        return self.handle(self._groups.leave_group, request, version)

    def commit(self, offsets, member_id="", generation=-1, **changes):
        """`offsets` maps (topic, partition) to an offset. The codes come back in the same order."""
        call = self.commits(offsets, member_id, generation, **changes)
        return [ErrorCode(each.error_code) for topic in call.answer.topics for each in topic.partitions]

    def commits(
        self,
        offsets,
        member_id="",
        generation=-1,
        *,
        group="g",
        instance=None,
        metadata="",
        version=7,
        retention_ms=-1,
        epoch=-1,
    ):
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=offset,
                            committed_leader_epoch=epoch,
                            committed_metadata=metadata,
                        )
                    ],
                )
                for (topic, index), offset in offsets.items()
            ],
        )
        return Call(self.handle(self.offset_api.offset_commit, request, version))

    def commit_in_transaction(self, offsets, producer_id, member_id="", generation=-1, **changes):
        """The codes in the order of `offsets`."""
        call = self.commits_in_transaction(offsets, producer_id, member_id, generation, **changes)
        return [ErrorCode(each.error_code) for topic in call.answer.topics for each in topic.partitions]

    def commits_in_transaction(
        self,
        offsets,
        producer_id,
        member_id="",
        generation=-1,
        *,
        group="g",
        instance=None,
        metadata="",
        producer_epoch=0,
        epoch=-1,
        version=3,
    ):
        request = TxnOffsetCommitRequest(
            transactional_id=f"t{producer_id}",
            group_id=group,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=offset,
                            committed_leader_epoch=epoch,
                            committed_metadata=metadata,
                        )
                    ],
                )
                for (topic, index), offset in offsets.items()
            ],
        )
        return Call(self.handle(self.offset_api.txn_offset_commit, request, version))

    def ends(self, producer_id, *, is_committed=True, group="g"):
        """The marker of the transaction is written to the group's partition."""
        partition = self.store.partition_for(group)
        self.attributes[len(self.log)] = {
            "transactional": True,
            "control": True,
            "producer_id": producer_id,
            "producer_epoch": 0,
        }
        self.log.append((partition, struct.pack(">hh", 0, is_committed), struct.pack(">hi", 0, 0)))
        self.coordinator.offsets.on_transaction_end(partition, producer_id, is_committed=is_committed)

    def fetch(self, topics=None, *, group="g", version=7, require_stable=False):
        """The raw response; `topics` maps names to partitions, None asks for all."""
        of_many = version >= 8
        asked = None
        if topics is not None:
            asked = [
                OffsetFetchRequestTopic(name=name, partition_indexes=list(indexes)) for name, indexes in topics.items()
            ]
        request = OffsetFetchRequest(group_id=group, topics=asked, require_stable=require_stable)
        if of_many:
            names = [group] if isinstance(group, str) else group
            request = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id=each, topics=asked) for each in names],
                require_stable=require_stable,
            )
        return self.handle(self.offset_api.offset_fetch, request, version)

    def offsets(self, group="g"):
        """{(topic, partition): offset} of everything committed."""
        return {
            (topic.name, each.partition_index): each.committed_offset
            for topic in self.fetch(group=group).topics
            for each in topic.partitions
        }

    def describe(self, group="g"):
        return self.handle(self._groups.describe_groups, DescribeGroupsRequest(groups=[group]), 5).groups[0]

    def state(self, group="g"):
        return self.describe(group).group_state

    def groups(self, *states):
        response = self.handle(self._groups.list_groups, ListGroupsRequest(states_filter=list(states)), 4)
        return {each.group_id: each.group_state for each in response.groups}

    def delete(self, *groups):
        request = DeleteGroupsRequest(groups_names=list(groups))
        response = self.answered(self.handle(self._groups.delete_groups, request, 2))
        return {each.group_id: ErrorCode(each.error_code) for each in response.results}

    # --- short cuts

    def stable(self, *names, group="g", **joining):
        """A stable group of new members, the first of which leads. Returns their ids; each is assigned its own name."""
        ids = []
        for name in names:
            call = self.join(group=group, client=name, version=5, **joining)
            ids.append(call.answer.member_id)
        calls = [self.join(each, group=group, client=name, **joining) for each, name in zip(ids, names, strict=True)]
        calls = [
            self.join(each, group=group, client=name, **joining) if not call.waits else call
            for each, name, call in zip(ids, names, calls, strict=True)
        ]
        generation = next(call.answer.generation_id for call in calls if not call.waits)
        leader = calls[0].answer.leader
        self.sync(leader, generation, {each: name.encode() for each, name in zip(ids, names, strict=True)}, group=group)
        for each in ids:
            self.sync(each, generation, group=group)
        return ids, generation


@pytest.fixture
def world_class():
    return World


@pytest.fixture
def new_world():
    """Makes worlds: `new_world(group_max_size=2)`."""
    worlds = []

    def make(**overrides):
        worlds.append(World(**overrides))
        return worlds[-1]

    yield make
    for world in worlds:
        world.coordinator.close()
        assert not world.coordinator.timer_count, "a closed coordinator has no timers"
        world.loop.close()


@pytest.fixture
def world(new_world):
    return new_world()
