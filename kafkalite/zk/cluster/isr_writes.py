"""Conditional writes of ISRs by the leaders on this broker, and reads of the states behind them.

One task performs them: writes that arrive while others are in flight go together in the next transaction, each bound to
the version of its state node, to the registrations of the brokers that join, and to their being registered now. The
node of a registration has another version when its broker begins to stop. The view has a write before its leader is
notified of it, so that listeners are notified once, and the next write finds the state that it is based on.

The controller of an Apache Kafka, and tools, learn from /isr_change_notification which ISRs were written; brokers of
ours watch the state nodes themselves. The partitions of some seconds go into one node, as with Kafka: when no ISR has
changed for 5 s, or 60 s after the last such node. The controller deletes it.
Source: kafka.server.ZkAlterPartitionManager, kafka.utils.ReplicationUtils (updateLeaderAndIsr),
kafka.server.IsrChangePropagationConfig; KIP-841, KIP-903.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from kafkalite.common.clock import Clock, Timer
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.metadata.partition_state import IsrState, IsrStates, WriteIsr, WriteOutcome
from kafkalite.zk.client.operations import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    NoNode,
    Operation,
    OperationFailed,
    SetData,
    Unavailable,
)
from kafkalite.zk.client.transactions import Result, perform
from kafkalite.zk.cluster.cluster_view import ClusterView, Known, isr_state, state_node
from kafkalite.zk.znodes import znode_data, znode_paths

if TYPE_CHECKING:
    from kafkalite.zk.client.session import ZooKeeperSession
    from kafkalite.zk.cluster.broker_lifecycle import BrokerLifecycle

logger = logging.getLogger(__name__)

_AT_ONCE = 250  # writes in one transaction; those behind them wait for its answer


class _Waiting(NamedTuple):
    """A write and its caller. `created` is that of the view when it was asked for."""

    key: TopicPartition
    created: tuple[int, int] | None
    write: WriteIsr
    outcome: asyncio.Future[WriteOutcome]

    @property
    def path(self) -> str:
        return znode_paths.state(*self.key)


class IsrWrites(IsrStates):
    """The `IsrStates` of a cluster: reads and writes over the session of `lifecycle`. `on_written` gets each
    partition whose ISR was written."""

    def __init__(
        self, lifecycle: BrokerLifecycle, view: ClusterView, on_written: Callable[[TopicPartition], None]
    ) -> None:
        self._session = lifecycle.session
        self._view = view
        self._refresh = lifecycle.reader.refresh
        self._until_verified = lifecycle.until_verified
        self._on_written = on_written
        self._writes: list[_Waiting] = []
        self._reads: list[tuple[TopicPartition, asyncio.Future[IsrState | None]]] = []
        self._task: asyncio.Task[None] | None = None

    async def write_isr(self, name: str, partition: int, write: WriteIsr) -> WriteOutcome:
        if any(number < 0 for number in write.registrations.values()):
            return WriteOutcome.REFUSED  # brokers without a number, whose registrations cannot be distinguished
        created = self._view.created((name, partition))
        waiting = _Waiting((name, partition), created, write, asyncio.get_running_loop().create_future())
        self._writes.append(waiting)
        self._start()
        return await waiting.outcome

    async def read_isr(self, name: str, partition: int) -> IsrState | None:
        state: asyncio.Future[IsrState | None] = asyncio.get_running_loop().create_future()
        self._reads.append(((name, partition), state))
        self._start()
        return await state

    async def stop(self) -> None:
        """Wait for all requests. The session has ended, so each fails soon."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="kafkalite-isr-writes")

    async def _run(self) -> None:
        try:
            while self._writes or self._reads:
                writes, self._writes = self._writes[:_AT_ONCE], self._writes[_AT_ONCE:]
                await self._perform([each for each in writes if not each.outcome.done()])
                reads, self._reads = self._reads, []
                await self._answer([(key, state) for key, state in reads if not state.done()])
        finally:
            self._task = None

    # writing

    async def _perform(self, writes: Sequence[_Waiting]) -> None:
        outcomes: list[WriteOutcome] = [WriteOutcome.UNKNOWN] * len(writes)
        try:
            if writes:
                outcomes = await self._outcomes(writes)
        except (Unavailable, OperationFailed) as fault:
            logger.info("the outcome of %d writes of in-sync replicas is unknown: %s", len(writes), fault)
        except Exception:
            logger.exception("the outcome of %d writes of in-sync replicas is unknown", len(writes))
        for waiting, outcome in zip(writes, outcomes, strict=True):
            if not waiting.outcome.done():
                waiting.outcome.set_result(outcome)

    async def _outcomes(self, writes: Sequence[_Waiting]) -> list[WriteOutcome]:
        """Raises Unavailable, OperationFailed when the outcome is unknown: mostly nothing was written."""
        await self._until_verified()
        behind = [each.path for each in writes if self._version(each.key) < each.write.expected_epoch]
        if behind:  # the connection was lost behind a write that had been answered
            await self._refresh(behind)
        operations = [self._operations(each) for each in writes]
        sent = [index for index, each in enumerate(operations) if each is not None]
        outcomes = [WriteOutcome.BAD_VERSION] * len(writes)
        fence = self._view.deletion_fence
        try:
            results = await perform(self._session, [operations[index] or () for index in sent], fence)
        except OperationFailed:  # a topic was deleted meanwhile, perhaps one of these
            await self._refresh([znode_paths.TOPIC_DELETIONS])
            raise
        for index, result in zip(sent, results, strict=True):
            outcomes[index] = self._outcome(writes[index], result)
        written = [each for each, outcome in zip(writes, outcomes, strict=True) if outcome is WriteOutcome.WRITTEN]
        with suppress(Unavailable, OperationFailed):  # everything is read again after the next connection
            await self._refresh([each.path for each in written])
        for each in written:
            self._on_written(each.key)
        return outcomes

    def _version(self, key: TopicPartition) -> int:
        known = self._known(key)
        return -1 if known is None else known.node.version

    def _known(self, key: TopicPartition) -> Known[znode_data.StateNode] | None:
        return self._view.states.get(key[0], {}).get(key[1])

    def _operations(self, waiting: _Waiting) -> list[Operation] | None:
        """None if the state has another version already, and no copy of this write can succeed."""
        known, topic, write = self._known(waiting.key), self._view.assignments.get(waiting.key[0]), waiting.write
        if known is None or topic is None or known.node.version != write.expected_epoch:
            return None
        if self._view.created(waiting.key) != waiting.created:
            return None  # another topic of this name
        after = isr_state(known)._replace(isr=write.isr, elr=write.elr)
        node = state_node(known.value, after, topic.value.partitions.get(waiting.key[1], ()))
        data = znode_data.state_json(node._replace(recovery=znode_data.RECOVERED))
        operations: list[Operation] = []
        for broker_id, number in sorted(write.registrations.items()):
            operations.append(Check(znode_paths.registration(broker_id), number))
            operations.append(Check(znode_paths.broker(broker_id), ANY_VERSION))
        return [*operations, SetData(waiting.path, data, write.expected_epoch)]

    def _outcome(self, waiting: _Waiting, result: Result) -> WriteOutcome:
        if result is None:
            return WriteOutcome.WRITTEN
        if isinstance(result, Unavailable):
            return WriteOutcome.UNKNOWN
        if isinstance(result.operation, Check):
            return WriteOutcome.REFUSED
        if not isinstance(result.reason, BadVersion | NoNode):
            logger.error("ZooKeeper refuses the in-sync replicas of %s-%d: %s", *waiting.key, result.reason)
            return WriteOutcome.REFUSED
        return WriteOutcome.BAD_VERSION

    # reading

    async def _answer(self, reads: Sequence[tuple[TopicPartition, asyncio.Future[IsrState | None]]]) -> None:
        fault: Exception | None = None
        try:
            if reads:
                await self._until_verified()
                await self._session.sync()  # the server of this session may lag behind one that did a write
                await self._refresh([znode_paths.state(*key) for key, _ in reads])
        except (Unavailable, OperationFailed) as unavailable:
            fault = unavailable
        except Exception as unexpected:
            logger.exception("the states of %d partitions cannot be read", len(reads))
            fault = unexpected
        for key, state in reads:
            if state.done():
                continue
            if fault is not None:
                state.set_exception(KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"ZooKeeper cannot be read: {fault}"))
                continue
            known = self._known(key)
            state.set_result(None if known is None else isr_state(known))


_CHECK_INTERVAL_MS = 2_500
_QUIET_MS = 5_000
_DELAY_MAX_MS = 60_000
_NODE_PARTITIONS_MAX = 2_000  # with the longest names that is half of what ZooKeeper takes


class IsrChangeNotification:
    """The partitions that are yet to be announced."""

    def __init__(self, session: ZooKeeperSession, clock: Clock) -> None:
        self._session = session
        self._clock = clock
        self._changed: dict[TopicPartition, None] = {}
        self._changed_at_ms = self._announced_at_ms = clock.monotonic_ms()
        self._timer: Timer | None = None
        self._announcing: asyncio.Task[None] | None = None

    def add(self, key: TopicPartition) -> None:
        """Record a partition whose ISR was written."""
        self._changed[key] = None
        self._changed_at_ms = self._clock.monotonic_ms()
        self._check_later()

    def stop(self) -> None:
        self._changed = {}
        if self._timer is not None:
            self._timer.cancel()
        if self._announcing is not None:
            self._announcing.cancel()

    def _check_later(self) -> None:
        if self._timer is None:
            self._timer = self._clock.call_later(_CHECK_INTERVAL_MS, self._check)

    def _check(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        if self._announcing is None and (
            now_ms > self._changed_at_ms + _QUIET_MS or now_ms > self._announced_at_ms + _DELAY_MAX_MS
        ):
            keys, self._changed = list(self._changed), {}
            self._announced_at_ms = now_ms
            self._announcing = asyncio.get_running_loop().create_task(self._announce(keys))
        elif self._changed:
            self._check_later()

    async def _announce(self, keys: Sequence[TopicPartition]) -> None:
        try:
            for first in range(0, len(keys), _NODE_PARTITIONS_MAX):
                data = znode_data.partitions_json(keys[first : first + _NODE_PARTITIONS_MAX])
                await self._session.write([Create(znode_paths.ISR_CHANGE, data, sequential=True)])
        except (Unavailable, OperationFailed) as fault:
            logger.info("%d changed ISRs are announced later: %s", len(keys), fault)
            self._changed = dict.fromkeys([*keys, *self._changed])
        finally:
            self._announcing = None
            if self._changed:
                self._check_later()
