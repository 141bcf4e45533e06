"""Produce: appends batches unchanged to their partitions, and answers each partition separately.

Only old message sets (Produce 0-2) are decoded. With acks=-1 the answer waits until the batch is committed: all in-sync
replicas have it. With acks=1 it waits for this broker alone. With one replica both mean the same: a batch is committed
at once, or when it is on the disk (flush.messages).
Source: kafka.server.KafkaApis.handleProduceRequest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Container, Coroutine, Sequence
from typing import Any
from uuid import UUID

from kafkalite.api.request.admission import (
    FIRST_VERSION_THAT_ADDS,
    ProduceAdmission,
    TransactionRefused,
    VerifiedAdmission,
    producers_batch,
    transactional_batch,
)
from kafkalite.api.request.awaited_election import AwaitedElections
from kafkalite.api.request.broker_endpoints import BrokerEndpoints, FindBroker, node_endpoints
from kafkalite.api.request.delayed_produce import DelayedProduce, waits
from kafkalite.api.request.request_context import TOPIC, TRANSACTIONAL_ID, PendingResponse, RequestContext, Runtime
from kafkalite.common.errors import Disconnect, ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.coordinator.add_partitions_manager import AddPartitionsToTxnManager
from kafkalite.log.partition.partition_log import AppendResult
from kafkalite.log.state.transaction_verification import VerificationGuard
from kafkalite.metadata.cluster_metadata import ClusterMetadata, may_be_led_elsewhere
from kafkalite.network.client_connection import ClientConnection, Pending
from kafkalite.protocol.messages import produce as wire
from kafkalite.protocol.messages.metadata import LeaderIdAndEpoch
from kafkalite.record.batch import ATTRIBUTES_AT, MAGIC, MAGIC_AT, TRANSACTIONAL
from kafkalite.record.validation.batch_validation import InvalidRecords
from kafkalite.replication.hosted_replicas import Topic
from kafkalite.replication.partition import Partition
from kafkalite.replication.replica_manager import ReplicaManager
from kafkalite.security.acl.acl import Operation

FIRST_VERSION_WITH_LEADERS = 10
FIRST_VERSION_BY_ID = 13
_CODES_WITH_MESSAGE = (  # from version 8 on these have a message
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
_CODES_WITH_LOG_START = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
)
_NONE_REFUSED: frozenset[str] = frozenset()
WORK_MS_MAX = 500
"""After this time the remaining partitions of a request are refused, and the client retries. A request may name a
thousand partitions, each with a batch to decompress, and no other client is served meanwhile."""

Admission = ProduceAdmission | VerifiedAdmission
Produced = wire.ProduceResponse | Pending | Coroutine[Any, Any, wire.ProduceResponse | None] | None
"""The response, now or later; None for acks=0."""

Outcome = AppendResult | KafkaError | None
"""Of one batch; None for an empty message set of an old version."""


class AppendedTopic(NamedTuple):
    """The batches of a request for one topic: partition's index, partition, outcome. `topic` is None if there is no
    such topic, or the client may not write to it."""

    name: str
    topic_id: UUID
    topic: Topic | None
    outcomes: Sequence[tuple[int, Partition | None, Outcome]]


IN_FLIGHT_MAX = 5
"""Of an idempotent producer: ProducerConfig.MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION_FOR_IDEMPOTENCE."""
_PARTITIONS_MAX = 1_000  # of one connection


class ProduceApi(NamedTuple):
    """The Produce API."""

    runtime: Runtime
    metadata: ClusterMetadata
    brokers: BrokerEndpoints
    replica_manager: ReplicaManager
    admission: ProduceAdmission
    add_partitions: AddPartitionsToTxnManager
    elections: AwaitedElections

    def produce(self, request: wire.ProduceRequest, context: RequestContext) -> Produced:
        """Admit the request, wait at most once, for an election or a verification, and append."""
        refused = _NONE_REFUSED
        if context.api_version >= FIRST_VERSION_BY_ID:
            self._name_topics(request)
        try:
            if context.access is not None:
                refused = _refused_topics(request, context)
            keys = self.elections.expected(request, refused)
            admission = None if keys else self._admit(request, context, refused)
        except KafkaError as error:
            return _all_failed(request, error, refused)
        if isinstance(admission, (ProduceAdmission, VerifiedAdmission)):
            return self._append(request, context, refused, admission)
        _keep_records(request)
        return self._wait_and_append(request, context, refused, keys, admission)

    def _name_topics(self, request: wire.ProduceRequest) -> None:
        """Gives topics the names of their ids; an unknown id has the empty name."""
        by_id = self.replica_manager.by_id
        for topic in request.topic_data:
            topic.name = found.name if (found := by_id.get(topic.topic_id)) is not None else ""

    def _admit(
        self, request: wire.ProduceRequest, context: RequestContext, refused: frozenset[str]
    ) -> Admission | Awaitable[Admission]:
        """The admission of a request; an awaitable while its transaction's coordinator is asked. Raises KafkaError."""
        error_code = self.admission.request_error(request)
        if error_code is not None:
            raise KafkaError(error_code)
        if request.transactional_id is not None:
            return self.verify(request, request.transactional_id, context.api_version, refused)
        return self.admission

    def verify(
        self, request: wire.ProduceRequest, transactional_id: str, version: int, refused: Container[str] = ()
    ) -> VerifiedAdmission | Awaitable[VerifiedAdmission]:
        """The admission of `request` but its topics that are `refused`; an awaitable if the coordinator cannot answer
        at once. Raises TransactionRefused if the request has batches of several producers."""
        batches = {
            (topic.name, data.index): batch
            for topic in request.topic_data
            for data in topic.partition_data
            if topic.name not in refused and (batch := transactional_batch(data.records)) is not None
        }
        identities = {(batch.producer_id, batch.epoch) for batch in batches.values()}
        if len(identities) > 1:
            message = "Transactional records contained more than one producer ID"
            raise TransactionRefused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, message)
        errors: dict[TopicPartition, KafkaError] = {}
        guards: dict[TopicPartition, VerificationGuard] = {}
        verified = VerifiedAdmission(self.admission, version, errors, guards)
        adds = version >= FIRST_VERSION_THAT_ADDS
        if not (adds or self.add_partitions.is_enabled()):
            return verified

        def begin() -> bool:
            before = guards.copy()
            for (topic, index), batch in batches.items():
                try:
                    producers = self.replica_manager.require(topic, index).producers
                    guard = producers.begin_verification(*batch[:3], own_epochs=adds)
                except KafkaError as error:
                    is_late = error.code == ErrorCode.INVALID_PRODUCER_EPOCH
                    errors[topic, index] = TransactionRefused(error.code) if is_late else error
                else:
                    if guard is not None:
                        guards[topic, index] = guard
            return guards != before

        begin()
        if not guards:
            return verified
        pending = PendingResponse(verified.with_errors)
        ((producer_id, epoch),) = identities
        self.add_partitions.verify_or_add(
            transactional_id, producer_id, epoch, list(guards), adds, pending.answer, begin
        )
        return pending.outcome(self.runtime.loop)

    async def _wait_and_append(
        self,
        request: wire.ProduceRequest,
        context: RequestContext,
        refused: frozenset[str],
        keys: list[TopicPartition],
        admission: Awaitable[Admission] | None,
    ) -> wire.ProduceResponse | None:
        """Append when the partitions `keys` are led here, and the batches of a transaction are verified."""
        await self.elections.wait(keys)
        try:
            admitted = admission or self._admit(request, context, refused)
        except KafkaError as error:
            return _all_failed(request, error, refused)
        if isinstance(admitted, Awaitable):
            admitted = await admitted
        response = self._append(request, context, refused, admitted)
        return await response if isinstance(response, DelayedProduce) else response

    def _append(
        self,
        request: wire.ProduceRequest,
        context: RequestContext,
        refused: frozenset[str],
        admission: Admission,
    ) -> wire.ProduceResponse | DelayedProduce | None:
        acks, version = request.acks, context.api_version
        clock = self.runtime.clock
        now_ms = clock.wall_ms()
        deadline_ms = clock.monotonic_ms() + WORK_MS_MAX
        appended: list[AppendedTopic] = []
        topics = request.topic_data
        if refused:
            topics = sorted(topics, key=lambda each: each.name in refused)
        for topic_data in topics:
            name = topic_data.name
            refusal = self._refusal(topic_data, refused, version)
            admitted = None if refusal is not None else admission.topic(name, acks, context.client_id, version)
            outcomes: list[tuple[int, Partition | None, Outcome]] = []
            for data in topic_data.partition_data:
                partition = None
                outcome: Outcome
                try:
                    if refusal is not None:
                        raise KafkaError(refusal)
                    if (outcomes or appended) and clock.monotonic_ms() > deadline_ms:
                        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
                    partition = admitted.topic.partitions.get(data.index) if admitted is not None else None
                    if admitted is None or partition is None:
                        raise KafkaError(self.replica_manager.missing_partition_error(name, data.index))
                    append = admitted.check_and_append if data.records is None else admitted.append
                    outcome = append(partition, data.records, now_ms, version)
                except KafkaError as reason:
                    await_again(self.replica_manager, name, data.index, data.records, reason)
                    outcome = reason
                outcomes.append((data.index, partition, outcome))
            if outcomes:
                topic = admitted.topic if admitted is not None else None
                appended.append(AppendedTopic(name, topic_data.topic_id, topic, outcomes))
        return self.respond(appended, acks, request.timeout_ms, version, context.connection)

    def respond(
        self, appended: list[AppendedTopic], acks: int, timeout_ms: int, version: int, connection: ClientConnection
    ) -> wire.ProduceResponse | DelayedProduce | None:
        """The response to a request whose batches were appended, or refused; None for acks=0. Raises Disconnect for a
        refusal with acks=0."""
        responses: list[wire.TopicProduceResponse] = []
        pending: list[wire.PartitionProduceResponse] = []
        waited: list[tuple[Partition, int]] = []
        failed = False
        for name, topic_id, topic, outcomes in appended:
            answers: list[wire.PartitionProduceResponse] = []
            for index, partition, outcome in outcomes:
                if outcome is None:
                    answers.append(wire.PartitionProduceResponse(index=index, base_offset=-1))
                elif isinstance(outcome, KafkaError):
                    failed = True
                    error = inherited_error(self.metadata, connection, name, index, outcome)
                    answers.append(failure(index, error, topic))
                else:
                    assert partition is not None
                    answers.append(answer := success(index, outcome, partition))
                    last_offset = outcome.last_offset
                    if last_offset >= partition.high_watermark and waits(partition, last_offset, acks):
                        pending.append(answer)
                        waited.append((partition, last_offset))
            responses.append(wire.TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=answers))
        if acks == 0:
            if failed:
                raise Disconnect("acks=0 leaves no other way to report an error to the producer")
            return None
        response = wire.ProduceResponse(responses=responses)
        if not failed and not pending:
            return response
        find = self.brokers.finder_for(connection)
        has_moved = failed  # some partition may be led elsewhere

        def finish() -> wire.ProduceResponse:
            if has_moved and version >= FIRST_VERSION_WITH_LEADERS:
                self.add_leaders(response, find)
            return response

        def refuse(number: int, error: KafkaError) -> None:
            nonlocal has_moved
            has_moved = has_moved or error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            answer = pending[number]
            answer.error_code = error.code
            answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1

        return DelayedProduce(self.runtime.clock, waited, acks, timeout_ms, refuse, finish) if pending else finish()

    def _refusal(self, topic_data: wire.TopicProduceData, refused: frozenset[str], version: int) -> ErrorCode | None:
        """The error of a topic that the client may not write to, or whose id no topic has, or no longer."""
        if topic_data.name in refused:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if version >= FIRST_VERSION_BY_ID:
            topic = self.replica_manager.by_name.get(topic_data.name)
            if topic is None or topic.topic_id != topic_data.topic_id:
                return ErrorCode.UNKNOWN_TOPIC_ID
        return None

    def add_leaders(self, response: wire.ProduceResponse, find: FindBroker) -> None:
        """Add the leaders of partitions that are led elsewhere, and the addresses of their brokers (KIP-951)."""
        leaders = set()
        for topic in response.responses:
            for partition in topic.partition_responses:
                if partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    leader, epoch = self.brokers.leader_of(topic.name, partition.index)
                    partition.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                    leaders.add(leader)
        response.node_endpoints = node_endpoints(leaders, find)


def _refused_topics(request: wire.ProduceRequest, context: RequestContext) -> frozenset[str]:
    """The topics that the client may not write to. Raises KafkaError if its transactional id may not be used, which
    counts only if there are transactional batches. Raises Disconnect if no answer is due."""
    name = request.transactional_id
    is_transactional = any(_is_transactional(data) for topic in request.topic_data for data in topic.partition_data)
    if is_transactional and (name is None or not context.may(Operation.WRITE, TRANSACTIONAL_ID, name)):
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    names = dict.fromkeys(topic.name for topic in request.topic_data)
    if context.api_version >= FIRST_VERSION_BY_ID:
        names.pop("", None)  # of unknown ids
    refused = frozenset(name for name in names if not context.may(Operation.WRITE, TOPIC, name))
    if refused and request.acks == 0:
        raise Disconnect("acks=0 leaves no other way to report TOPIC_AUTHORIZATION_FAILED to the producer")
    return refused


def _is_transactional(data: wire.PartitionProduceData) -> bool:
    records = data.records
    if records is None or len(records) <= ATTRIBUTES_AT + 1 or records[MAGIC_AT] < MAGIC:
        return False
    return bool(records[ATTRIBUTES_AT + 1] & TRANSACTIONAL)


def _keep_records(request: wire.ProduceRequest) -> None:
    """Copy the records: they are appended later, even if the client leaves, and the frame with it."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = memoryview(bytearray(data.records))


def success(index: int, result: AppendResult, partition: Partition) -> wire.PartitionProduceResponse:
    return wire.PartitionProduceResponse(
        index=index,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=partition.log.start_offset,
    )


def failure(index: int, error: KafkaError, topic: Topic | None = None) -> wire.PartitionProduceResponse:
    """The answer for a partition without an append; with the log's start offset if the log refused the batch."""
    response = wire.PartitionProduceResponse(
        index=index, error_code=error.code, base_offset=-1, log_append_time_ms=-1, log_start_offset=-1
    )
    if isinstance(error, TransactionRefused):
        response.error_message = error.message
        return response
    if topic is not None and (isinstance(error, InvalidRecords) or error.code in _CODES_WITH_LOG_START):
        response.log_start_offset = topic.partitions[index].log.start_offset
    if isinstance(error, InvalidRecords):
        response.record_errors = [
            wire.BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=message)
            for at, message in error.record_errors
        ]
    if error.code in _CODES_WITH_MESSAGE:
        response.error_message = error.message
    return response


def _all_failed(
    request: wire.ProduceRequest, error: KafkaError, refused: frozenset[str]
) -> wire.ProduceResponse | None:
    """The answer with `error` for each partition, except those of topics that are refused already."""
    if request.acks == 0:
        raise Disconnect(f"acks=0 produce refused with {error.code.name}")
    responses = []
    for topic in sorted(request.topic_data, key=lambda each: each.name in refused):
        fault = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED) if topic.name in refused else error
        answers = [failure(data.index, fault) for data in topic.partition_data]
        responses.append(
            wire.TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
        )
    return wire.ProduceResponse(responses=responses)


def is_sent_again(error: KafkaError) -> bool:
    """Whether the producer sends the batch again, and that may succeed. A corrupt one stays corrupt."""
    return error.code.is_retriable and error.code is not ErrorCode.CORRUPT_MESSAGE


def await_again(
    replica_manager: ReplicaManager, topic: str, index: int, records: memoryview | None, error: KafkaError
) -> None:
    """A batch was refused. If its producer sends it again, later ones have to wait for it (`awaited_batches`)."""
    if is_sent_again(error) and (batch := producers_batch(records)) is not None:
        log = replica_manager.log_of(topic, index)
        if log is not None:
            log.producers.await_batch(*batch[:3])


def inherited_error(
    metadata: ClusterMetadata, connection: ClientConnection, topic: str, index: int, error: KafkaError
) -> KafkaError:
    """The error for a batch, perhaps that of an earlier one on the same connection.

    An idempotent producer has several batches in flight. If the first is refused for a transient reason (this broker no
    longer leads the partition, its disk is full, replicas are missing) that has passed when the next arrives, the next
    has a sequence number out of order. librdkafka then takes another producer epoch, and sends batches again that other
    partitions may have stored. So the next inherits the first one's error: the producer sends all of them again, in
    order. A lost batch is reported after as many answers as a producer may have in flight.

    A broker that was paused, and does not know yet that another leads, lacks the batches that the other has appended.
    It answers no OUT_OF_ORDER_SEQUENCE_NUMBER, because librdkafka treats that as fatal. Source: kafkalite's own.
    """
    if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and may_be_led_elsewhere(metadata, topic, index):
        error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"it is not known who leads; {error.message}")
    refused, key = connection.refused_batches, (topic, index)
    if is_sent_again(error):
        if refused is None or len(refused) >= _PARTITIONS_MAX:
            refused = connection.refused_batches = {}
        refused[key] = (error.code, IN_FLIGHT_MAX - 1)
    elif error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and refused is not None and key in refused:
        code, left = refused.pop(key)
        if left > 1:
            refused[key] = (code, left - 1)
        return KafkaError(ErrorCode(code), f"behind a batch that was refused; {error.message}")
    return error
