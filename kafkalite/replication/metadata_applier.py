"""Applies the cluster metadata to this broker: performs the effects of `reconciliation.decide`.

Leadership that is lost is given up in the turn of the loop in which the change arrives. Leadership that is won waits
for the logs: names of topics stand in a queue, each at most once, and a task reconciles one after another. So changes
may come in any order and any number; only the latest metadata matters.
Source: kafka.server.ReplicaManager, which gets the changes in the controller's LeaderAndIsr and StopReplica.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from kafkalite.common.clock import Clock, TimerGroup
from kafkalite.common.errors import KafkaError, StorageError
from kafkalite.common.names import NO_LEADER
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.metadata.cluster_metadata import NO_CONTROLLER, Change, ClusterMetadata, RegistrationState, TopicRecord
from kafkalite.replication.hosted_replicas import Topic
from kafkalite.replication.partition import OfflinePartition, Partition
from kafkalite.replication.reconciliation import (
    BecomeFollower,
    BecomeLeader,
    ChangeReplication,
    Configure,
    DropReplica,
    Effect,
    RaiseLeaderEpoch,
    RemoveTopic,
    Resign,
    StopFollowing,
    WriteLeaderEpoch,
    decide,
)
from kafkalite.replication.replica_manager import EARLY_EPOCHS_MIN, ReplicaManager

logger = logging.getLogger(__name__)

_LOGS_PER_TURN = 32  # logs opened before the loop serves other requests
_TOPICS_AT_ONCE = 500  # of which the epochs are written together
_TOPICS_PER_TURN = 20  # reconciled before the loop serves other requests: 5 ms if each has five elections
_RETRY_MS = 2_000  # until a log that could not be opened is tried again, since the disk may have room then
_OF_A_TOPIC = (
    Change.TOPIC_CREATED,
    Change.TOPIC_DELETED,
    Change.PARTITIONS_ADDED,
    Change.PARTITION_STATE,
    Change.TOPIC_CONFIG,
)


class MetadataApplier:
    """Reconciles `replicas` with `metadata`: all topics at `load`, one when `reconcile` is awaited, and each that
    another broker changes between `start` and `stop`."""

    def __init__(self, metadata: ClusterMetadata, replicas: ReplicaManager, clock: Clock) -> None:
        self._metadata = metadata
        self._replicas = replicas
        self._retries = TimerGroup(clock)
        self._opening = asyncio.Lock()
        self._due: dict[str, None] = {}  # topics to reconcile
        self._is_due = asyncio.Event()
        self._is_busy = False
        self._is_done = asyncio.Event()  # set when no topic is due any more
        self._task: asyncio.Task[None] | None = None
        self._unlisten: Callable[[], None] = lambda: None

    async def load(self) -> None:
        """Load the topics from metadata and disk at start. Raises StorageError, ConfigError."""
        await self._replicas.check_logs()
        for name in list(self._metadata.topics):
            await self.reconcile(name)
        self._replicas.finish_load()

    def start(self) -> None:
        self._unlisten = self._metadata.listen(self._on_change)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="kafkalite-metadata")
        topics = self._metadata.topics  # all were reconciled by `load`, and few have changed since
        for topic in list(self._replicas):
            record = topics.get(topic.name)
            if record is None or record.partitions is not topic.states or record.config != topic.overrides:
                self.release_leadership(topic.name)
                self._due[topic.name] = None
        self._add_missing()
        self._is_due.set()

    async def stop(self) -> None:
        self._unlisten()
        self._retries.cancel()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def _add_missing(self) -> None:
        """Reconcile the topics that are not here, such as those whose first election was awaited."""
        by_name = self._replicas.by_name
        missing = [name for name in self._metadata.topics if name not in by_name]
        if missing:
            self._due.update(dict.fromkeys(missing))
            self._is_due.set()

    def reconcile_all(self) -> None:
        """Reconcile all topics, for instance after a change of this broker's registration."""
        for name in list(self._replicas.by_name):
            self.release_leadership(name)
        self._due.update(dict.fromkeys(self._metadata.topics))
        self._is_due.set()

    async def wait_until_led(self) -> None:
        """Return when this broker is registered, there is a controller, every partition that is kept here has a leader,
        and those that this broker leads are open."""
        while self._due or self._is_busy or not self._has_leaders():
            self._is_done.clear()
            await self._is_done.wait()

    def _has_leaders(self) -> bool:
        me, metadata = self._replicas.hosted.role.broker_id, self._metadata
        if metadata.registration_state is not RegistrationState.MEMBER or metadata.controller_id == NO_CONTROLLER:
            return False
        return not any(
            state.leader == NO_LEADER and me in state.replicas and (me in state.isr or not state.isr)
            for topic in metadata.topics.values()
            for state in topic.partitions.values()
        )

    def _on_change(self, change: Change, name: str) -> None:
        if change is Change.REGISTRATION:
            self._replicas.hosted.on_registration()
            self.reconcile_all()
        elif change is Change.BROKERS:
            if self._replicas.roles is not None:
                self._replicas.roles.on_brokers()
            self._add_missing()  # the last broker that could be elected may be gone
        elif change in _OF_A_TOPIC:
            self.release_leadership(name)
            self._due[name] = None
            self._is_due.set()
        elif change is Change.CONTROLLER:
            self._is_due.set()  # `wait_until_led` checks again

    async def _run(self) -> None:
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            self._is_busy = True
            while self._due:
                await self._reconcile_some(list(islice(self._due, _TOPICS_AT_ONCE)))
            self._is_busy = False
            self._is_done.set()

    async def _reconcile_some(self, names: Sequence[str]) -> None:
        elected = [log_and_epoch for name in names for log_and_epoch in self._elected(name)]
        is_written = await self._replicas.write_early(elected)
        unwritten_max = 0 if len(elected) >= EARLY_EPOCHS_MIN else EARLY_EPOCHS_MIN
        reconciled = []
        for at, name in enumerate(names, 1):
            # elections since then are written early with the next ones; the topic stays due
            unwritten = self._unwritten_count(name) if name in self._due and is_written else 0
            if name in self._due and unwritten <= unwritten_max:
                unwritten_max -= unwritten
                await self._reconcile_due(name)
                reconciled.append(name)
            if at % _TOPICS_PER_TURN == 0:
                await asyncio.sleep(0)
        await self._write_epochs(reconciled)

    async def _reconcile_due(self, name: str) -> None:
        try:
            await self._reconcile(name)
        except KafkaError as error:
            logger.error("topic %s: %s", name, error)
        except Exception:
            logger.exception("topic %s is not served as it should be", name)

    # One topic

    def _elected(self, name: str) -> Iterator[tuple[PartitionLog, int]]:
        """The logs that begin an epoch, because this broker was elected, and those epochs."""
        topic, role = self._replicas.by_name.get(name), self._replicas.hosted.role
        if topic is None or not any(map(role.is_replicated, topic.states.values())):
            return  # spares most topics of a broker that has many the decision
        for effect in self._decide(name, topic):
            if not isinstance(effect, BecomeLeader):
                continue
            index = effect.partition
            log, state = self._replicas.log_of(name, index), topic.states.get(index)
            if log is None or state is None or index in topic.followers or index in topic.partitions:
                continue
            if role.is_replicated(state) and log.epochs.latest < state.leader_epoch:
                yield log, state.leader_epoch

    def _unwritten_count(self, name: str) -> int:
        """The elections whose epochs are not on the disk, and would be fsynced in the loop."""
        return sum(not log.epochs.is_recorded(epoch, log.end_offset) for log, epoch in self._elected(name))

    def has_elections(self, name: str) -> bool:
        """Whether this broker has been elected for partitions that it does not lead yet."""
        return _has(BecomeLeader, self._decide(name, self._replicas.by_name.get(name)))

    def release_leadership(self, name: str) -> list[Effect]:
        """Perform, in this turn of the loop, every effect that needs no log to be opened: give up lost leadership,
        remove a deleted topic, apply new settings and leader epochs. Returns the other effects."""
        topic = self._replicas.by_name.get(name)
        effects = self._decide(name, topic)
        if topic is not None:
            self._perform_now(topic, effects)
        return [effect for effect in effects if isinstance(effect, BecomeLeader | BecomeFollower | WriteLeaderEpoch)]

    def _perform_now(self, topic: Topic, effects: Sequence[Effect]) -> None:
        record = self._metadata.topics.get(topic.name)
        if record is not None and record.topic_id == topic.topic_id:
            elected = (effect.partition for effect in effects if isinstance(effect, BecomeLeader))
            topic.unopened = {index for index in elected if _is_first_election(topic, index)}
            topic.states = record.partitions
        for effect in effects:
            self._perform(topic, effect)
        self._replicas.hosted.update_replicas(topic)

    def _perform(self, topic: Topic, effect: Effect) -> None:
        match effect:
            case RemoveTopic():
                self._replicas.remove(topic.name, keeps_logs=effect.keeps_logs)
            case Resign():
                self._replicas.hosted.resign(topic, effect.partition)
            case StopFollowing():
                self._replicas.hosted.stop_following(topic, effect.partition)
            case DropReplica():
                self._replicas.hosted.drop_replica(topic, effect.partition)
            case ChangeReplication():
                try:
                    self._replicas.hosted.change_replication(topic, effect.partition)
                except StorageError as error:
                    logger.error("%s-%d cannot get its replicas: %s", topic.name, effect.partition, error)
                    self._retries.call_later(_RETRY_MS, lambda: self._try_again(topic.name))
            case RaiseLeaderEpoch():  # a client that asks for the old epoch is refused
                partition = topic.partitions[effect.partition]
                partition.leader_epoch = effect.leader_epoch
                partition.wake_all()
            case Configure():
                self._replicas.configure(topic, effect.overrides)

    async def reconcile(self, name: str) -> None:
        """Perform all effects of one topic. May be called at any time, and repeatedly. Raises StorageError when a log
        cannot be created; in a cluster that partition is offline then, until a later try succeeds, and the others are
        led nevertheless."""
        try:
            await self._reconcile(name)
        finally:
            await self._write_epochs([name])

    async def _reconcile(self, name: str) -> None:
        """As `reconcile`, but for epochs that the metadata must have."""
        async with self._opening:
            self._due.pop(name, None)
            effects = self.release_leadership(name)
            record = self._metadata.topics.get(name)
            if record is None:
                return
            known = self._replicas.by_name.get(name)
            if known is None and self._awaits_first_election(record):
                return
            topic = known or self._replicas.begin(record)
            if await self._link_logs(topic, effects):
                effects = self.release_leadership(name)  # the metadata may have changed meanwhile
            led, fault = await self._take_roles(topic, effects)
            if known is None:
                self._replicas.add(topic)
            if len(led) + len(topic.followers) >= _LOGS_PER_TURN:  # the metadata may have changed in the turns between
                self.release_leadership(name)
            for partition in led:
                if topic.partitions.get(partition.index) is partition:
                    self._replicas.on_election(partition)
        if fault is not None:
            self._retries.call_later(_RETRY_MS, lambda: self._try_again(name))
            raise fault

    def _awaits_first_election(self, record: TopicRecord) -> bool:
        """Whether none of its partitions was elected yet, or not all of them: their states are written together, and
        read one after another. At the start a topic may have had leaders for long, and a state that cannot be read."""
        partitions = record.partitions.values()
        is_begun = self._task is None and not all(one.is_new for one in partitions)
        return not is_begun and any(map(self._metadata.awaits_election, partitions))

    def _try_again(self, name: str) -> None:
        """Opens logs that could not be opened, with a full disk for instance; none in a directory that has failed."""
        topic = self._replicas.by_name.get(name)
        if topic is not None:
            for index, partition in tuple(topic.partitions.items()):
                if partition.is_offline and not self._replicas.is_offline(name, index):
                    self._replicas.hosted.resign(topic, index)
        self._due[name] = None
        self._is_due.set()

    async def _link_logs(self, topic: Topic, effects: Sequence[Effect]) -> bool:
        """Takes over logs of brokers on the same disk. Returns whether that took more than a turn of the loop."""
        hosted = self._replicas.hosted
        followed = [(effect.partition, effect.leader) for effect in effects if isinstance(effect, BecomeFollower)]
        linked = [one for one in followed if hosted.may_link(topic, *one)]
        await asyncio.gather(*(hosted.link_log(topic, *one) for one in linked))
        return bool(linked)

    async def _take_roles(self, topic: Topic, effects: Sequence[Effect]) -> tuple[list[Partition], StorageError | None]:
        """Opens the partitions that this broker was elected for and does not lead yet, and those that it is to follow.
        Returns the ones that it leads, and the first error of those that are offline."""
        led: list[Partition] = []
        fault: StorageError | None = None
        opened = 0
        while not _has(RemoveTopic, effects):
            record, role = self._metadata.topics.get(topic.name), self._replicas.hosted.role
            for effect in effects:
                if not isinstance(effect, BecomeLeader | BecomeFollower):
                    continue
                try:
                    led += self._take_role(topic, effect)
                except StorageError as error:
                    if self._task is None:  # the caller takes it back, and no task would try it again
                        raise
                    logger.error("%s-%d cannot be kept: %s", topic.name, effect.partition, error)
                    fault = fault or error
                    if isinstance(effect, BecomeLeader):
                        partition = OfflinePartition(topic.name, effect.partition, str(error), effect.leader_epoch)
                        topic.partitions[effect.partition] = partition
                        topic.unopened.discard(effect.partition)
                        led.append(partition)
                opened += 1
                if opened % _LOGS_PER_TURN == 0:
                    await asyncio.sleep(0)
                    if record is not self._metadata.topics.get(topic.name) or role != self._replicas.hosted.role:
                        effects = self._decide(topic.name, topic)
                        if not _has(RemoveTopic, effects):
                            self._perform_now(topic, effects)
                        break
            else:
                break
        return led, fault

    def _take_role(self, topic: Topic, effect: BecomeLeader | BecomeFollower) -> list[Partition]:
        if isinstance(effect, BecomeFollower):
            self._replicas.hosted.become_follower(topic, effect.partition, effect.leader_epoch, effect.leader)
            return []
        partition = self._replicas.hosted.become_leader(topic, effect.partition, effect.leader_epoch)
        return [] if partition is None else [partition]

    async def _write_epochs(self, names: Iterable[str]) -> None:
        """The epochs that the metadata must have, of many partitions together: a broker that comes back may need
        thousands. An epoch that cannot be written now is tried again when its topic is reconciled next;
        raises KafkaError if no task does that."""
        epochs = {
            (name, effect.partition): effect.leader_epoch
            for name in names
            for effect in self._decide(name, self._replicas.by_name.get(name))
            if isinstance(effect, WriteLeaderEpoch)
        }
        if not epochs:
            return
        try:
            await self._metadata.writes.set_leader_epochs(epochs)
        except KafkaError as error:
            if self._task is None:
                raise
            logger.warning(
                "%d new leader epochs, such as of %s-%d, are not all written yet: %s",
                len(epochs),
                *next(iter(epochs)),
                error,
            )
        for name in dict.fromkeys(name for name, _ in epochs):
            self.release_leadership(name)

    def _decide(self, name: str, topic: Topic | None) -> list[Effect]:
        return decide(
            self._metadata.topics.get(name),
            None if topic is None else self._replicas.local(topic),
            self._replicas.hosted.role,
            is_deletion_ordered=self._metadata.is_deletion_ordered(name),
        )


def _is_first_election(topic: Topic, index: int) -> bool:
    """Whether no client has seen a partition for which this broker is elected now. `topic` has its former states."""
    state = topic.states.get(index)
    return state is None or state.is_new or index in topic.unopened


def _has(kind: type[Effect], effects: Sequence[Effect]) -> bool:
    return any(isinstance(effect, kind) for effect in effects)
