"""The transaction coordinator: producer ids of transactional producers, their transactions, time-outs and expiry.

Requests and results are values; `kafkalite.api.handlers` has the messages. A `Transaction` decides, and the effects of
its decisions are performed here: a record is appended to `__transaction_state`, then requests are answered and markers
written. With a single replica an append is complete when it returns, so most requests are answered synchronously.
Source: kafka.coordinator.transaction.{TransactionCoordinator, TransactionStateManager, ProducerIdManager} (3.9);
KIP-98, KIP-664.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial

from kafkalite.common.clock import Clock, TimerGroup
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.names import GROUP_METADATA_TOPIC, ProducerIdAndEpoch, TopicPartition
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.coordinator.marker_writer import MarkerJob, MarkerWriter, TransactionMarker
from kafkalite.coordinator.runtime.effects import (
    TRANSACTION_APPEND_ERROR,
    AppendRecords,
    EffectPerformer,
    Records,
    SetTimer,
    Waiter,
)
from kafkalite.coordinator.transaction.transaction import Transaction
from kafkalite.coordinator.transaction.transaction_state import (
    NO_PRODUCER_ID,
    AllocateProducerId,
    EndTransactionResult,
    InitProducerIdResult,
    SendMarkers,
    Then,
    TransactionEffect,
    TransactionState,
    TransactionTimer,
    transaction_key,
)
from kafkalite.coordinator.transaction_store import TransactionStore

logger = logging.getLogger(__name__)

IDS_PER_TURN = 1_000  # checked for expiry: less than a millisecond
_AHEAD_MAX = 1 << 48  # ids further ahead are ignored: a client may write any id, and must not exhaust all of them
_STATES = {state.value: state for state in TransactionState}


class TransactionCoordinator:
    """All transactional ids whose partition of `__transaction_state` this broker leads, in `store`.

    `coordinator_epoch` gives the leader epoch of such a partition, `group_partition` the partition of
    `__consumer_offsets` of a group. All methods run on the owner's event loop.
    """

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        append: AppendRecords,
        markers: MarkerWriter,
        producer_ids: ProducerIdManager,
        *,
        coordinator_epoch: Callable[[int], int],
        group_partition: Callable[[str], int],
    ) -> None:
        self.store = TransactionStore(config().transaction_state_log_num_partitions, self._on_loaded)
        self._config = config
        self._performer: EffectPerformer[Transaction] = EffectPerformer(
            clock, append, self._on_append, self._on_timer, self._send_markers
        )
        self._perform = self._performer.perform
        self._wall_ms = clock.wall_ms
        self._append_records = append
        self._markers = markers
        self._producer_ids = producer_ids
        self._coordinator_epoch = coordinator_epoch
        self._group_partition = group_partition
        self._timers = TimerGroup(clock)
        self._allocating: set[asyncio.Task[None]] = set()

    # --- requests

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: tuple[int, int] | None,
        waiter: Waiter[InitProducerIdResult],
    ) -> None:
        """InitProducerId. `expected`: the producer id and epoch of a producer that continues (KIP-360)."""
        if not transactional_id:
            waiter.answer(InitProducerIdResult(ErrorCode.INVALID_REQUEST))
            return
        if not 0 < timeout_ms <= self._config().transaction_max_timeout_ms:
            waiter.answer(InitProducerIdResult(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
            return
        producer = None if expected is None else ProducerIdAndEpoch(*expected)

        def refuse(error: ErrorCode) -> None:
            waiter.answer(InitProducerIdResult(error))

        def decide(producer_id: int) -> None:
            transaction, error = self.store.find(transactional_id)
            if error:
                refuse(error)
                return
            if transaction is None and producer_id == NO_PRODUCER_ID:
                self._allocate(decide, refuse)
                return
            now_ms = self._wall_ms()
            if transaction is None:
                transaction = Transaction.new(
                    transactional_id, self.store.partition_for(transactional_id), producer_id, timeout_ms, now_ms
                )
                self.store.add(transaction)
            effects = transaction.init_producer_id(timeout_ms, producer, waiter, now_ms, producer_id)
            self._perform_or_allocate(transaction, effects, decide, refuse)

        decide(NO_PRODUCER_ID)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        waiter: Waiter[ErrorCode],
    ) -> None:
        """AddPartitionsToTxn."""
        transaction, error = self._find_in_use(transactional_id)
        if transaction is None:
            waiter.answer(error)
            return
        effects = transaction.add_partitions(producer_id, producer_epoch, partitions, waiter, self._wall_ms())
        self._perform(transaction, effects)

    def add_offsets(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        group_id: str,
        waiter: Waiter[ErrorCode],
    ) -> None:
        """AddOffsetsToTxn: adds the partition of `__consumer_offsets` that keeps the group's offsets."""
        partition = GROUP_METADATA_TOPIC, self._group_partition(group_id)
        self.add_partitions(transactional_id, producer_id, producer_epoch, [partition], waiter)

    def verify_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether each of these is a partition of the producer's open transaction."""
        transaction, error = self._find_in_use(transactional_id)
        if transaction is None:
            return dict.fromkeys(partitions, error)
        return transaction.verify_partitions(producer_id, producer_epoch, partitions)

    def end_transaction(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        waiter: Waiter[EndTransactionResult],
        *,
        commit: bool,
        transaction_version: int,
    ) -> None:
        """EndTxn: `waiter` is answered when the outcome is stored; the markers may still be in flight."""

        def refuse(error: ErrorCode) -> None:
            waiter.answer(EndTransactionResult(error))

        def decide(new_producer_id: int) -> None:
            transaction, error = self._find_in_use(transactional_id)
            if transaction is None:
                refuse(error)
                return
            effects = transaction.end(
                producer_id,
                producer_epoch,
                waiter,
                self._wall_ms(),
                commit=commit,
                transaction_version=transaction_version,
                new_producer_id=new_producer_id,
            )
            self._perform_or_allocate(transaction, effects, decide, refuse)

        decide(NO_PRODUCER_ID)

    def describe(self, transactional_id: str) -> tuple[Transaction | None, ErrorCode]:
        """DescribeTransactions: the transaction, which the caller must not change or keep; or None and an error."""
        if not transactional_id:
            return None, ErrorCode.INVALID_REQUEST
        transaction, error = self.store.find(transactional_id)
        if transaction is None and not error:
            error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return transaction, error

    def list_transactions(
        self,
        states: Collection[str],
        producer_ids: Collection[int],
        min_duration_ms: int = -1,
    ) -> tuple[ErrorCode, list[str], list[Transaction]]:
        """ListTransactions: the error, the unknown names in `states`, and the transactions in one of `states` (empty:
        any) and of one of `producer_ids` (empty: any) that began more than `min_duration_ms` ago (negative: any)."""
        if self.store.is_closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, [], []
        if self.store.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [], []
        wanted = {_STATES[name] for name in states if name in _STATES}
        now_ms = self._wall_ms()
        found = [
            each
            for each in self.store
            if (not states or each.state in wanted)
            and (not producer_ids or each.producer_id in producer_ids)
            and (min_duration_ms < 0 or now_ms - each.start_ms > min_duration_ms)
        ]
        return ErrorCode.NONE, [name for name in states if name not in _STATES], found

    # --- time

    def oldest_open_ms(self) -> int:
        """For how long the oldest open transaction has been open; 0 if none is."""
        started_ms = min((each.start_ms for each in self.store.open.values()), default=None)
        return 0 if started_ms is None else max(0, self._wall_ms() - started_ms)

    def abort_timed_out(self) -> None:
        """Abort transactions that are open for longer than their timeout.

        The broker calls this every transaction.abort.timed.out.transaction.cleanup.interval.ms.
        """
        now_ms = self._wall_ms()
        for transaction in list(self.store.open.values()):
            effects = transaction.abort_if_timed_out(now_ms)
            if effects:
                logger.info(
                    "the transaction of %s is open for %d ms, and is aborted",
                    transaction.transactional_id,
                    now_ms - transaction.start_ms,
                )
                self._perform(transaction, effects)

    def expire(self) -> None:
        """Remove transactional ids that have not been used for transactional.id.expiration.ms: some in each turn of the
        loop, so that others are served.

        The broker calls this every transaction.remove.expired.transaction.cleanup.interval.ms.
        """
        self._expire_in_turns(list(self.store))

    def close(self) -> None:
        """Ends all timers. The next start completes unfinished transactions."""
        self._performer.close()
        self._timers.cancel()
        self._markers.close()
        self.store.close()
        for task in self._allocating:
            task.cancel()

    # --- effects

    def _on_loaded(self, transaction: Transaction) -> None:
        self._perform(transaction, transaction.on_loaded(self._wall_ms()))

    def _perform_or_allocate(
        self,
        transaction: Transaction,
        effects: Sequence[TransactionEffect],
        decide: Callable[[int], None],
        refuse: Callable[[ErrorCode], None],
    ) -> None:
        if effects and isinstance(effects[0], AllocateProducerId):
            self._allocate(decide, refuse)
        else:
            self._perform(transaction, effects)

    def _on_append(self, transaction: Transaction, then: Then, error: ErrorCode) -> Sequence[TransactionEffect]:
        if error:
            logger.error("the transaction of %s could not be stored: %s", transaction.transactional_id, error.name)
            error = TRANSACTION_APPEND_ERROR.get(error, error)
        is_held = self.store.holds(transaction)
        if not is_held:  # the next coordinator has read the record, or will not find it
            error = ErrorCode.NOT_COORDINATOR
        effects = transaction.on_append(then, error, self._performer.now())
        if not is_held:
            return [effect for effect in effects if not isinstance(effect, SetTimer)]
        self.store.on_change(transaction)
        return effects

    def _on_timer(self, transaction: Transaction, timer: TransactionTimer) -> Sequence[TransactionEffect]:
        return transaction.on_timer(timer) if self.store.holds(transaction) else ()

    def _send_markers(self, transaction: Transaction, effect: SendMarkers) -> None:
        """Markers of partitions that are led here are written before this returns, and thereby before the answer to
        EndTxn leaves: the producer reads its committed offsets, old OffsetFetch without require_stable included. One
        turn later would be a few percent faster, and was seen to break that."""
        epoch = self._coordinator_epoch(transaction.partition)
        marker = TransactionMarker(
            effect.producer_id, effect.producer_epoch, epoch, effect.commit, effect.transaction_version
        )

        def on_written(partition: TopicPartition) -> None:
            self._perform(transaction, transaction.on_marker_written(partition))

        self._markers.write(MarkerJob(marker, effect.partitions, on_written, partial(self.store.holds, transaction)))

    def _allocate(self, then: Callable[[int], None], refuse: Callable[[ErrorCode], None]) -> None:
        """Call `then` with a new producer id: at once, or when a new block of ids is reserved."""
        producer_id = self._producer_ids.try_next()
        if producer_id is not None:
            then(producer_id)
            return

        async def allocate() -> None:
            try:
                producer_id = await self._producer_ids.next()
            except KafkaError as error:
                logger.error("no producer id can be given: %s", error)
                refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
                return
            then(producer_id)

        task = asyncio.ensure_future(allocate())
        self._allocating.add(task)
        task.add_done_callback(self._allocating.discard)

    # --- expiry

    def _expire_in_turns(self, transactions: list[Transaction]) -> None:
        """Checks the last of `transactions`, and the others in later turns."""
        now_ms, expiration_ms = self._wall_ms(), self._config().transactional_id_expiration_ms
        turn = transactions[-IDS_PER_TURN:]
        del transactions[-IDS_PER_TURN:]
        expired: dict[int, list[Transaction]] = {}
        for transaction in turn:
            if self.store.holds(transaction) and transaction.begin_expiry(now_ms, expiration_ms):
                expired.setdefault(transaction.partition, []).append(transaction)
        for partition, theirs in expired.items():
            tombstones: Records = [(transaction_key(each.transactional_id), None) for each in theirs]
            self._append_records(partition, tombstones, partial(self._on_expired, theirs))
        if transactions:
            self._timers.call_later(0, partial(self._expire_in_turns, transactions))

    def _on_expired(self, expired: Sequence[Transaction], error: ErrorCode) -> None:
        for transaction in expired:
            if error:
                transaction.end_expiry()
            elif self.store.holds(transaction):
                self.store.remove(transaction)
        if error:
            logger.warning("%d unused transactional ids could not be removed: %s", len(expired), error.name)

    def _find_in_use(self, transactional_id: str) -> tuple[Transaction | None, ErrorCode]:
        """The transaction, or None and the error."""
        if not transactional_id:
            return None, ErrorCode.INVALID_REQUEST
        transaction, error = self.store.find(transactional_id)
        if transaction is None and not error:
            error = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return transaction, error


class ProducerIdManager:
    """Allocates producer ids one by one from blocks that the cluster metadata reserves.

    A block is recorded as used before its first id is allocated, so no id is allocated twice; after a restart the rest
    of the last block is skipped. A new block at or below an id in a log was allocated before: ZooKeeper was restored
    from a backup, or its counter was deleted. Then the counter is moved above the highest id known here.
    `reserve` reserves the next block, `skip` moves the counter above an id (None: the counter is never behind), and
    `highest_in_logs` is the highest id in any log, or -1.
    """

    __slots__ = ("_block", "_highest_in_logs", "_last", "_reserve", "_reserving", "_skip")

    def __init__(
        self,
        reserve: Callable[[], Awaitable[range]],
        skip: Callable[[int], Awaitable[None]] | None = None,
        highest_in_logs: Callable[[], int] = lambda: -1,
    ) -> None:
        self._reserve = reserve
        self._skip = skip
        self._highest_in_logs = highest_in_logs
        self._block = iter(range(0))
        self._last = -1  # id of the last block
        self._reserving = asyncio.Lock()

    def try_next(self) -> int | None:
        """The next id, or None if the block is used up; then `await next()`."""
        return next(self._block, None)

    async def next(self) -> int:
        """The next id, from a new block if the last one is used up."""
        while (producer_id := self.try_next()) is None:
            async with self._reserving:
                producer_id = self.try_next()  # another caller may have reserved a block meanwhile
                if producer_id is not None:
                    break
                self._block = iter(await self._new_block())
        return producer_id

    async def _new_block(self) -> range:
        block, highest = await self._reserve(), max(self._highest_in_logs(), self._last)
        if self._skip is not None and block.start <= highest < block.start + _AHEAD_MAX:
            logger.warning(
                "producer ids would begin again at %d, and %d is in use: they continue there", block.start, highest
            )
            await self._skip(highest)
            block = await self._reserve()
        self._last = block.stop - 1
        return block
