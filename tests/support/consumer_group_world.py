"""Consumer groups without a loop: time moves when told, the log is a list that can refuse or dawdle, topics are a dict.

`World.beat` sends a heartbeat and returns its answer; `World.restart` reads the log into a new coordinator.
"""

from __future__ import annotations

import itertools
import re
import uuid
from types import SimpleNamespace

from kafkalite.common.errors import ErrorCode
from kafkalite.coordinator.group.consumer.group_environment import ConsumerGroupConfig, GroupEnvironment, GroupTotals
from kafkalite.coordinator.group.consumer.heartbeat import ConsumerHeartbeat, HeartbeatResult
from kafkalite.coordinator.group.group import JoinRequest, SyncRequest
from kafkalite.coordinator.group_coordinator import GroupCoordinator
from kafkalite.coordinator.group_store import GroupLoader
from kafkalite.metadata.cluster_metadata import Change, PartitionRecord, TopicRecord
from kafkalite.protocol.codec.codec import versioned
from kafkalite.protocol.records import ConsumerProtocolSubscription, TopicPartitions
from kafkalite.record.batch import build_batch_at
from kafkalite.server.topics_view import TopicsView
from tests.support.manual_clock import ManualClock

REBALANCE_MS = 60_000
SESSION_MS = 45_000
HEARTBEAT_MS = 5_000


def topic_id(name):
    return uuid.uuid5(uuid.NAMESPACE_DNS, name)


class Topics:
    """A cluster's topics, as its metadata would show them."""

    def __init__(self, **counts):
        self.topics = {}
        self.brokers = {}
        self._listeners = []
        self.changes = 0
        for name, count in counts.items():
            self.create(name, count)

    def listen(self, listener):
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def create(self, name, count, id_=None):
        self.topics[name] = self._record(name, count, id_ or topic_id(name))
        self._notify(Change.TOPIC_CREATED, name)

    def grow(self, name, count):
        self.topics[name] = self._record(name, count, self.topics[name].topic_id)
        self._notify(Change.PARTITIONS_ADDED, name)

    def delete(self, name):
        del self.topics[name]
        self._notify(Change.TOPIC_DELETED, name)

    def _record(self, name, count, id_):
        return TopicRecord(name, id_, {each: PartitionRecord((1,), 1, 0, (1,), 0) for each in range(count)}, {})

    def _notify(self, change, name):
        self.changes += 1
        for listener in self._listeners:
            listener(change, name)


def no_consumer_groups():
    """The surroundings of a coordinator whose consumer groups, if there were any, would find no topics."""
    return GroupEnvironment(TopicsView(Topics()), lambda group_id: ConsumerGroupConfig(), compile_regex, GroupTotals())


def compile_regex(text):
    """Python's expressions instead of linear ones."""
    try:
        pattern = re.compile(text)
    except re.error as fault:
        raise ValueError(str(fault)) from None
    return PythonRegex(pattern)


class PythonRegex:
    def __init__(self, pattern):
        self.pattern = pattern
        self.fails = False

    async def select(self, names):
        if self.fails:
            raise RuntimeError("the matching fails")
        return [name for name in names if self.pattern.fullmatch(name)]


class Answered:
    """A waiter; `result` is None while it waits."""

    def __init__(self):
        self.result = None

    def answer(self, result):
        assert self.result is None, "answered twice"
        self.result = result


class World:
    """One coordinator of one partition. `refuses` is the error that the log answers, `dawdles` holds its answers."""

    def __init__(self, topics=None, **settings):
        self.topics = topics or Topics(foo=4, bar=2)
        self.config = ConsumerGroupConfig(**{"assignment_interval_ms": 0} | settings)
        self.clock = ManualClock()
        self.log = []
        self.refuses = ErrorCode.NONE
        self.dawdles = False
        self.held = []
        self.held_count = 0  # records that the log has not answered for
        self.resolving = []
        self.matching_fails = False
        self._uuids = itertools.count(1)
        self._start()

    def _start(self):
        broker = SimpleNamespace(
            offsets_topic_num_partitions=1,
            group_initial_rebalance_delay_ms=0,
            group_min_session_timeout_ms=1,
            group_max_session_timeout_ms=1_800_000,
            group_max_size=2**31 - 1,
            offset_metadata_max_bytes=4096,
            offsets_retention_minutes=10_080,
        )

        self.view = TopicsView(self.topics)
        environment = GroupEnvironment(self.view, lambda group_id: self.config, self._compile_regex, GroupTotals())
        self.coordinator = GroupCoordinator(
            broker, self.clock, self._append, environment, new_uuid=lambda: f"u{next(self._uuids)}", **self._settings()
        )
        self.coordinator.consumer_groups._spawn = self.resolving.append

    def _settings(self):
        """Settings of the coordinator for groups of other kinds."""
        return {}

    def _compile_regex(self, text):
        regex = compile_regex(text)
        regex.fails = self.matching_fails
        return regex

    def _append(self, partition, records, done, *, producer=None, guard=None):
        if self.refuses:
            done(self.refuses)
            return
        self.log.extend(records)
        if self.dawdles:
            self.held.append(done)
            self.held_count += len(records)
        else:
            done(ErrorCode.NONE)

    def catch_up(self, error=ErrorCode.NONE):
        """The dawdling log answers."""
        held, self.held, self.held_count = self.held, [], 0
        for done in held:
            done(error)

    def load(self):
        """Owns its partition, as a broker does at its start."""
        loader = GroupLoader()
        loader.read([build_batch_at(0, [record]) for record in self.log])
        assert list(loader.finish()) == []
        self.coordinator.store.load(0, loader)
        return self

    def restart(self, *, compacted=False):
        """The broker dies; another reads what is in the log."""
        if compacted:
            last = {key: at for at, (key, _) in enumerate(self.log)}
            self.log = [record for at, record in enumerate(self.log) if last[record[0]] == at]
        held, self.held, self.held_count = self.held, [], 0
        self.stop_resolving()
        self.coordinator.close()
        for done in held:  # as a partition that is not led any more
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._start()
        self.load()

    def stop_resolving(self):
        for task in self.resolving:
            task.close()
        self.resolving.clear()

    def resolve(self, *, fails=False):
        """All matching of regular expressions that was begun is done, or fails."""
        tasks, self.resolving[:] = list(self.resolving), []
        self.matching_fails = fails
        for task in tasks:
            for _ in iter(lambda task=task: _step(task), False):
                pass
        self.matching_fails = False

    # --- requests

    def send(self, member, epoch, *, group="g", version=1, client="c", **fields):
        """A heartbeat; returns its waiter."""
        if "topics" in fields:
            fields["topic_names"] = fields.pop("topics")
        if "regex" in fields:
            fields["topic_regex"] = fields.pop("regex")
        if "owns" in fields:
            owns = fields.pop("owns")
            fields["owned"] = None if owns is None else {topic_id(name): list(some) for name, some in owns.items()}
        request = ConsumerHeartbeat(member, epoch, client, "/10.0.0.1", **fields)
        waiter = Answered()
        if not fields.keys() - {"instance_id"}:  # as the handler asks first
            names = request.instance_id, (request.client_id, request.client_host)
            interval_ms = self.coordinator.consumer_groups.keep_alive(group, member, epoch, *names)
            if interval_ms is not None:
                waiter.answer(HeartbeatResult(ErrorCode.NONE, None, member, epoch, interval_ms))
                return waiter
        self.coordinator.consumer_groups.heartbeat(group, request, version, waiter)
        return waiter

    def beat(self, member, epoch, **fields):
        answer = self.send(member, epoch, **fields).result
        assert answer is not None
        return answer

    def join(self, member, *topics, **fields):
        fields = {"rebalance_timeout_ms": REBALANCE_MS, "owns": {}, "topics": list(topics)} | fields
        return self.beat(member, 0, **fields)

    def leave(self, member, epoch=-1, **fields):
        return self.beat(member, epoch, **fields)

    def classic_join(self, member_id="", topics=("foo",), *, instance=None, owned=(), group="g", known=False, **fields):
        rows = [TopicPartitions(topic=name, partitions=list(some)) for name, some in owned]
        subscription = ConsumerProtocolSubscription(topics=list(topics), user_data=None, owned_partitions=rows)
        values = {"rebalance_timeout_ms": REBALANCE_MS, "session_timeout_ms": 10_000} | fields
        protocols = fields.pop("protocols", (("range", versioned(subscription, 1)),))
        values.pop("protocols", None)
        request = JoinRequest(
            member_id, instance, "c", "/10.0.0.1", values["rebalance_timeout_ms"], values["session_timeout_ms"],
            "consumer", protocols, known, True,
        )  # fmt: skip
        waiter = Answered()
        self.coordinator.join(group, request, waiter)
        return waiter

    def classic_sync(self, member_id, generation, assignments=(), *, group="g", instance=None, protocol="range"):
        request = SyncRequest(member_id, instance, generation, "consumer", protocol, dict(assignments), True)
        waiter = Answered()
        self.coordinator.sync(group, request, waiter)
        return waiter

    def classic_beat(self, member_id, generation, *, group="g", instance=None):
        return self.coordinator.heartbeat(group, member_id, instance, generation)

    def classic_leave(self, *identities, group="g"):
        waiter = Answered()
        self.coordinator.leave(group, [one if isinstance(one, tuple) else (one, None) for one in identities], waiter)
        return waiter.result

    # --- looks

    def group(self, group="g"):
        return self.coordinator.store.by_id.get(group)

    def member(self, member, group="g"):
        return self.group(group).tables.members[member]

    def assigned(self, member, group="g"):
        return named(self.member(member, group).current.assigned)

    def kinds(self, since=0):
        """The kinds of records in the log, with a minus for tombstones."""
        return [-kind if value is None else kind for kind, value in self.records(since)]

    def records(self, since=0):
        return [(int.from_bytes(key[:2]), value) for key, value in self.log[since:]]


def named(partitions):
    """Partitions by the names of foo, bar and the like, as sorted lists."""
    names = {topic_id(name): name for name in ("foo", "bar", "baz", "foo-1", "foo-2")}
    return {names[each]: sorted(some) for each, some in partitions.items()}


def _step(coroutine):
    try:
        coroutine.send(None)
    except StopIteration:
        return False
    return True
