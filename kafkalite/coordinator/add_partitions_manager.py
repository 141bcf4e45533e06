"""Asks the transaction coordinators whether partitions belong to a producer's transaction, or adds them (KIP-890).

A transactional batch that would begin a transaction in its partition is held until the coordinator has confirmed that
the transaction includes the partition. Producers up to transaction.version 1 have added the partition themselves, and
it is verified; for later ones the broker adds it.

A coordinator on this broker is called, and mostly answers at once. The requests for a coordinator on another broker are
sent in batches, one at a time to each broker. A producer has one place in the next batch: a newer epoch ends the wait
of an older one, and a retry that of the request it repeats.

Offsets that a producer commits are verified, too; their partition is one of `__consumer_offsets`.
Source: kafka.server.AddPartitionsToTxnManager, KafkaApis.handleProduceRequest (3.9; adding as in 4.0, KAFKA-18654).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from kafkalite.common.clock import Clock
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import GROUP_METADATA_TOPIC, TopicPartition
from kafkalite.coordinator.offset_manager import TransactionalCommit
from kafkalite.coordinator.transaction_coordinator import TransactionCoordinator
from kafkalite.log.state.transaction_verification import VerificationGuard
from kafkalite.replication.replica_manager import ReplicaManager

Errors = Mapping[TopicPartition, ErrorCode]
OnResult = Callable[[Errors], None]
"""Gets the partitions that must not be appended to, with their errors: none if all are confirmed."""

_NO_SEQUENCE = -1
ADD_RETRY_MS = 20
ADD_RETRIES_MS = 100
"""The markers of the last transaction may still be in flight when its producer continues: adding is tried again."""


class AddPartitionsRequest(NamedTuple):
    """Partitions of one transaction, to add (`adds`) or to verify."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    adds: bool


AddPartitionsResponse = ErrorCode | Mapping[str, Errors]
"""The error of a request as a whole, NETWORK_EXCEPTION without a response, or by transactional id those of the
partitions, NONE included."""

Send = Callable[[int, Sequence[AddPartitionsRequest], Callable[[AddPartitionsResponse], None]], None]
"""Sends AddPartitionsToTxn to a broker, and calls back once."""


def send_nothing(
    broker_id: int, requests: Sequence[AddPartitionsRequest], on_response: Callable[[AddPartitionsResponse], None]
) -> None:
    """The `Send` of a broker that cannot reach any other."""
    on_response(ErrorCode.NETWORK_EXCEPTION)


class AddPartitionsToTxnManager:
    """Adds and verifies partitions. `coordinator_of` gives the broker that coordinates a transactional id, -1 if none
    does at the moment. `is_enabled` is transaction.partition.verification.enable."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        broker_id: int,
        coordinator_of: Callable[[str], int],
        clock: Clock,
        send: Send,
        replicas: ReplicaManager,
        is_enabled: Callable[[], bool],
    ) -> None:
        self._coordinator = coordinator
        self._broker_id = broker_id
        self._coordinator_of = coordinator_of
        self._clock = clock
        self._remote = _RemoteCoordinators(send)
        self._replicas = replicas
        self.is_enabled = is_enabled

    def verify_or_add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        adds: bool,
        on_result: OnResult,
        renew: Callable[[], bool] = lambda: False,
    ) -> None:
        """Calls `on_result` once: before this returns if the coordinator is here and has nothing to wait for.

        A marker of the last transaction may come while the coordinator is asked, and ends the pending verifications.
        `renew` begins those again, and returns whether there were any; then partitions that were added are added again.
        The errors are those of the newest Produce version. TRANSACTION_ABORTABLE is not known to versions before 11.
        """
        request = AddPartitionsRequest(transactional_id, producer_id, producer_epoch, tuple(partitions), adds)
        retry_until_ms = self._clock.monotonic_ms() + ADD_RETRIES_MS

        def retry() -> None:
            renew()
            self._ask(request, on_response)

        def on_response(errors: Errors) -> None:
            failed = {each: _PRODUCERS_ERROR.get(error, error) for each, error in errors.items() if error}
            is_busy = ErrorCode.CONCURRENT_TRANSACTIONS in failed.values()
            if is_busy and adds and self._clock.monotonic_ms() < retry_until_ms:
                self._clock.call_later(ADD_RETRY_MS, retry)
            elif adds and not failed and renew():
                self._ask(request, on_response)
            else:
                on_result(failed)

        self._ask(request, on_response)

    def verify_commit(
        self, index: int, request: TransactionalCommit, done: Callable[[ErrorCode, VerificationGuard | None], None], /
    ) -> None:
        """Verifies that a transaction includes the partition of its group (`VerifyCommit`), or adds the partition."""
        key = GROUP_METADATA_TOPIC, index
        guard = None

        def begin() -> ErrorCode:
            nonlocal guard
            try:
                guard = self._replicas.require(*key).producers.begin_verification(*request.producer, _NO_SEQUENCE)
            except KafkaError as error:
                return error.code
            return ErrorCode.NONE

        def renew() -> bool:
            before = guard
            begin()
            return guard is not None and guard is not before

        error = begin() if request.adds_partition or self.is_enabled() else ErrorCode.NONE
        if guard is None:
            done(error, None)
            return

        def on_result(errors: Errors) -> None:
            done(errors.get(key, ErrorCode.NONE), guard)

        identity = request.transactional_id, *request.producer
        self.verify_or_add(*identity, [key], request.adds_partition, on_result, renew)

    def _ask(self, request: AddPartitionsRequest, on_response: OnResult) -> None:
        broker_id = self._coordinator_of(request.transactional_id)
        if broker_id == self._broker_id:
            self._ask_here(request, on_response)
        elif broker_id < 0:
            on_response(dict.fromkeys(request.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            self._remote.ask(broker_id, request, on_response)

    def _ask_here(self, request: AddPartitionsRequest, on_response: OnResult) -> None:
        transactional_id, producer_id, producer_epoch, partitions, adds = request
        if adds:
            waiter = _Waiter(partitions, on_response)
            self._coordinator.add_partitions(transactional_id, producer_id, producer_epoch, partitions, waiter)
        else:
            verify = self._coordinator.verify_partitions
            on_response(verify(transactional_id, producer_id, producer_epoch, partitions))


_PRODUCERS_ERROR: Mapping[ErrorCode, ErrorCode] = {ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH}
"""Codes that answers to a Produce do not have."""


class _Waiter:
    """Receives the outcome of adding partitions here."""

    __slots__ = ("_on_response", "_partitions")

    def __init__(self, partitions: Sequence[TopicPartition], on_response: OnResult) -> None:
        self._partitions = partitions
        self._on_response = on_response

    def answer(self, result: ErrorCode, /) -> None:
        self._on_response(dict.fromkeys(self._partitions, result))


class _Waiting(NamedTuple):
    """A request that waits for its batch, or for the response to it."""

    request: AddPartitionsRequest
    on_response: OnResult

    def fail(self, error: ErrorCode) -> None:
        self.on_response(dict.fromkeys(self.request.partitions, error))


class _RemoteCoordinators:
    """The requests for the coordinators on other brokers.

    Invariant: `_waiting` has a broker only while it is in `_in_flight`.
    """

    __slots__ = ("_in_flight", "_send", "_waiting")

    def __init__(self, send: Send) -> None:
        self._send = send
        self._in_flight: set[int] = set()
        self._waiting: dict[int, dict[str, _Waiting]] = {}  # by broker and transactional id

    def ask(self, broker_id: int, request: AddPartitionsRequest, on_response: OnResult) -> None:
        added = _Waiting(request, on_response)
        if broker_id not in self._in_flight:
            self._send_batch(broker_id, [added])
            return
        waiting = self._waiting.setdefault(broker_id, {})
        earlier = waiting.get(request.transactional_id)
        if earlier is not None and earlier.request.producer_epoch > request.producer_epoch:
            added.fail(ErrorCode.INVALID_PRODUCER_EPOCH)
            return
        waiting[request.transactional_id] = added
        if earlier is not None:
            is_fenced = earlier.request.producer_epoch < request.producer_epoch
            earlier.fail(ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else ErrorCode.NETWORK_EXCEPTION)

    def _send_batch(self, broker_id: int, batch: Sequence[_Waiting]) -> None:
        self._in_flight.add(broker_id)
        self._send(broker_id, [each.request for each in batch], partial(self._on_response, broker_id, batch))

    def _on_response(self, broker_id: int, batch: Sequence[_Waiting], response: AddPartitionsResponse) -> None:
        self._in_flight.discard(broker_id)
        if (waiting := self._waiting.pop(broker_id, None)) is not None:
            self._send_batch(broker_id, list(waiting.values()))
        for each in batch:
            if not isinstance(response, ErrorCode):
                errors = response.get(each.request.transactional_id)
                if errors is None:
                    each.fail(ErrorCode.NETWORK_EXCEPTION)
                else:
                    each.on_response(errors)
            elif response == ErrorCode.UNSUPPORTED_VERSION:  # the broker cannot verify, so there is nothing to ask
                each.on_response({})
            elif response == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:  # no fault of the producer
                each.fail(ErrorCode.INVALID_TXN_STATE)
            else:
                each.fail(response)
