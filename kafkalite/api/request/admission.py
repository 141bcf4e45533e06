"""Admission of produce requests: the only path by which clients' batches reach the logs.

`ProduceAdmission` holds every rule that decides whether a batch may be appended. The handler and the fast path both go
through it, so a rule that is added here applies to both. The fast path calls `append` of a partition itself where
`append_directly` says that no rule is left.

A fast path recognises requests that were admitted before. It may reuse a `TopicAdmission` only while the
`AdmissionEpoch` under which it was made is current. Each change that may alter the outcome of a rule (configuration,
access control lists, quotas) advances the epoch, and the next request of each kind is handled in full again.

A batch of a transaction that is open in its partition is appended at once. Before a batch opens it, the handler has the
transaction's coordinator verify the partition, or add it (Produce 12). Each partition has its own answer: an error, or
the result of its append (KIP-890).
Source: kafka.server.KafkaApis.handleProduceRequest, kafka.server.ReplicaManager.appendToLocalLog, handleProduceAppend
(3.9; for Produce 12 4.0).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kafkalite.common.clock import Clock
from kafkalite.common.errors import COORDINATOR_MOVES, ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.common.sampled_rate import SampledRate
from kafkalite.log.partition.partition_log import AppendResult
from kafkalite.log.state.transaction_verification import VerificationGuard
from kafkalite.protocol.messages.produce import ProduceRequest
from kafkalite.record.batch import HEADER_BYTES, MAGIC, TRANSACTIONAL, parse_header
from kafkalite.replication.hosted_replicas import Topic
from kafkalite.replication.partition import Partition
from kafkalite.replication.replica_manager import ReplicaManager

ACKS_ALL = -1
FIRST_VERSION_OF_BATCHES = 3  # older versions carry message sets of v0 and v1, or a batch nevertheless
_ADMIN_CLIENT_ID = "__admin_client"  # may write to internal topics, as in Kafka
_ANY_CODEC_VERSION = 7  # batches from requests of older versions may have any codec, as in Kafka

Append = Callable[["Partition", Any, int, int], "AppendResult | None"]
"""Appends records to a partition: (partition, records, now_ms, version of the request)."""


def append_directly(partition: Partition, records: memoryview, now_ms: int, version: int) -> AppendResult:
    """Append a batch of a request without a transactional id."""
    return partition.append(records, now_ms, version)


class AdmissionEpoch:
    """Counts the changes that may affect admission.

    Invariant: two equal requests under an equal `value` get the same admission.
    """

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def advance(self) -> None:
        self.value += 1


class ProduceAdmission:
    """The rules for produce requests. An outcome holds as long as `epoch` has the same value."""

    __slots__ = ("_by_name", "epoch")

    def __init__(self, topics: ReplicaManager) -> None:
        self._by_name = topics.by_name
        self.epoch = AdmissionEpoch()

    def request_error(self, request: ProduceRequest) -> ErrorCode | None:
        """The error for the whole request, or None."""
        if request.acks not in (1, ACKS_ALL, 0):
            return ErrorCode.INVALID_REQUIRED_ACKS
        return None

    def topic(
        self, name: str, acks: int, client_id: str | None, version: int, append: Append = append_directly
    ) -> TopicAdmission | None:
        """The admission of one client's batches to a topic; None if the topic does not exist."""
        topic = self._by_name.get(name)
        if topic is None:
            return None
        if append is not append_directly or _is_conditional(topic, acks, version):
            return TopicAdmission(topic, acks, client_id, version, append)
        # One object serves all such requests, whatever their acks and client: to make one costs 0.3 us.
        admitted: TopicAdmission | None = topic.admission
        if admitted is None:
            admitted = topic.admission = TopicAdmission(topic, acks=1, client_id=None, version=version)
        return admitted


class TopicAdmission:
    """The admission of batches to one topic, for requests with equal acks, client id and version.

    `append(partition, batch, now_ms, version)` appends a batch to a partition of `topic` that is led here, and raises
    KafkaError with the code for the producer. Where no rule depends on the partition or the batch, it is the function
    that was given, such as `append_directly`.
    """

    __slots__ = ("_acks", "_append", "_client_id", "append", "topic")

    def __init__(
        self, topic: Topic, acks: int, client_id: str | None, version: int, append: Append = append_directly
    ) -> None:
        self.topic = topic
        self._acks = acks
        self._client_id = client_id
        self._append = append
        self.append: Append = self.check_and_append if _is_conditional(topic, acks, version) else append

    def check_and_append(
        self, partition: Partition, records: memoryview | None, now_ms: int, version: int
    ) -> AppendResult | None:
        """Evaluate the rules one by one, and append. `records` may be missing, or a message set of an old version; the
        result is None if that was empty."""
        topic = self.topic
        if topic.internal and self._client_id != _ADMIN_CLIENT_ID:
            message = f"{topic.name} is internal and takes no client's records"
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
        if records is None:
            raise KafkaError(ErrorCode.INVALID_RECORD, "the partition's data has no record batch")
        if self._acks == ACKS_ALL and topic.config.min_insync_replicas > 1:
            partition.check_in_sync()
        if version < FIRST_VERSION_OF_BATCHES:
            from kafkalite.record.validation.batch_validation import Rules
            from kafkalite.record.validation.format_conversion import to_batch

            converted = to_batch(records, Rules(partition.log.config))
            if converted is None:
                return None
            records, version = converted, _ANY_CODEC_VERSION
        return self._append(partition, records, now_ms, version)


OVER_QUOTA = KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
"""Raised by a `CountedAppend` before anything is appended: the client has to wait, and the long way
answers with the throttle time."""


class CountedAppend:
    """Appends the batch of a fast path, if its bytes may be counted without a wait.

    It is called with the wall clock, and reads the monotonic one when the current sample of the rate should be over. If
    the wall clock is set, it reads too early, or continues the sample, whose room is limited.
    """

    __slots__ = ("_append", "_clock", "_ends_wall_ms", "_more_bytes", "_rate")

    def __init__(self, append: Append | None, rate: SampledRate, more_bytes: int, clock: Clock) -> None:
        """`append` is None where it is the partition's own. `more_bytes`: of the request, besides the batch."""
        self._append = append
        self._rate = rate
        self._more_bytes = more_bytes
        self._clock = clock
        self._ends_wall_ms = 0.0

    def __call__(self, partition: Partition, records: memoryview, now_ms: int, version: int) -> AppendResult | None:
        if now_ms >= self._ends_wall_ms or not self._rate.record_in_passing(len(records) + self._more_bytes):
            monotonic_ms = self._clock.monotonic_ms()
            if self._rate.admit(len(records) + self._more_bytes, monotonic_ms) > 0:
                raise OVER_QUOTA
            self._ends_wall_ms = now_ms + self._rate.ends_ms - monotonic_ms
        if self._append is None:
            return partition.append(records, now_ms, version)
        return self._append(partition, records, now_ms, version)


def append_for(transactional_id: str | None) -> Append:
    """The function that appends the batches of a request."""
    return append_directly if transactional_id is None else append_transactional


def append_transactional(
    partition: Partition, records: memoryview, now_ms: int, version: int, guard: VerificationGuard | None = None
) -> AppendResult:
    """Append a batch of a request with a transactional id. Raises UnverifiedTransaction if it would be the first of its
    transaction in the partition, and `guard` does not verify it."""
    return partition.append(records, now_ms, version, transactional=True, guard=guard)


def _is_conditional(topic: Topic, acks: int, version: int) -> bool:
    """Whether a rule depends on the partition, the batch or the client."""
    return (
        version < FIRST_VERSION_OF_BATCHES
        or topic.internal
        or (acks == ACKS_ALL and topic.config.min_insync_replicas > 1)
    )


FIRST_VERSION_THAT_ADDS = 12
FIRST_VERSION_WITH_ABORTABLE = 11
_PREFIX_BYTES = 12
_TRANSIENT = COORDINATOR_MOVES | {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NETWORK_EXCEPTION}


class TransactionRefused(KafkaError):
    """A transactional batch is refused before its append. The message, if there is one, is for the client, too."""


class ProducersBatch(NamedTuple):
    producer_id: int
    epoch: int
    first_sequence: int
    is_transactional: bool


class VerifiedAdmission:
    """The admission of one request, whose transactional batches are verified or refused."""

    __slots__ = ("_admission", "_errors", "_guards", "_version")

    def __init__(
        self,
        admission: ProduceAdmission,
        version: int,
        errors: dict[TopicPartition, KafkaError],
        guards: Mapping[TopicPartition, VerificationGuard],
    ) -> None:
        self._admission = admission
        self._version = version
        self._errors = errors
        self._guards = guards

    def with_errors(self, errors: Mapping[TopicPartition, ErrorCode]) -> VerifiedAdmission:
        """The admission with the errors of the coordinator."""
        for each, error in errors.items():
            self._errors[each] = _producers_error(error, self._version)
        return self

    def topic(self, name: str, acks: int, client_id: str | None, version: int) -> TopicAdmission | None:
        admitted = self._admission.topic(name, acks, client_id, version, partial(self._append, name))
        if admitted is not None and self._errors:
            admitted.append = partial(self._append_unless_refused, admitted)
        return admitted

    def _append(self, topic: str, partition: Partition, records: memoryview, now_ms: int, version: int) -> AppendResult:
        return append_transactional(partition, records, now_ms, version, self._guards.get((topic, partition.index)))

    def _append_unless_refused(
        self, admitted: TopicAdmission, partition: Partition, records: memoryview, now_ms: int, version: int
    ) -> AppendResult | None:
        error = self._errors.get((admitted.topic.name, partition.index))
        if error is not None:
            raise error
        return admitted.check_and_append(partition, records, now_ms, version)


def transactional_batch(records: memoryview | None) -> ProducersBatch | None:
    """The identity of a transactional batch. None for other batches, and for bytes that are not exactly one batch: they
    will be refused."""
    found = producers_batch(records)
    return found if found is not None and found.is_transactional else None


def producers_batch(records: memoryview | None) -> ProducersBatch | None:
    """The identity of an idempotent producer's batch. None for others, and for bytes that are not exactly one batch."""
    if records is None or len(records) < HEADER_BYTES:
        return None
    _, length, _, magic, _, attributes, _, _, _, producer_id, epoch, sequence, _ = parse_header(records)
    if producer_id < 0 or magic != MAGIC or length + _PREFIX_BYTES != len(records):
        return None
    return ProducersBatch(producer_id, epoch, sequence, bool(attributes & TRANSACTIONAL))


def _producers_error(error: ErrorCode, version: int) -> TransactionRefused:
    """The coordinator's error as the client's version knows it, so that the client retries where this may help."""
    if error == ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_VERSION_WITH_ABORTABLE:
        error = ErrorCode.INVALID_TXN_STATE
    if error == ErrorCode.INVALID_TXN_STATE:
        return TransactionRefused(error, "Partition was not added to the transaction")
    if error == ErrorCode.CONCURRENT_TRANSACTIONS and version >= FIRST_VERSION_THAT_ADDS:
        return TransactionRefused(error)
    if error in _TRANSIENT:
        message = "Unable to verify the partition has been added to the transaction. Underlying error: "
        return TransactionRefused(ErrorCode.NOT_ENOUGH_REPLICAS, message + error.name)
    return TransactionRefused(error)
