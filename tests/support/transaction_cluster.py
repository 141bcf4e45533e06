"""A cluster of two brokers that answers requests about transactions from tables, without sockets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kafkalite.client.cluster_client import ClusterClient, PartitionPlace
from kafkalite.common.errors import ConfigError, ErrorCode
from kafkalite.common.names import TopicPartition
from kafkalite.protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from kafkalite.protocol.messages.transactions import (
    DescribedProducer,
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeProducersPartition,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


class TransactionCluster(ClusterClient):
    """`transactions` by the coordinator that has them; `producers` by partition. `asked` are (broker id, request,
    version) in their order. `faults` are answered first, one for each request that a coordinator gets."""

    address = "here:9092"
    is_one = False

    def __init__(self) -> None:
        self._clients = {}
        self.brokers = {1: "one:9092", 2: "two:9092"}
        self.places: dict[TopicPartition, PartitionPlace] = {
            ("orders", 0): PartitionPlace(1, (1,)),
            ("orders", 1): PartitionPlace(2, (2,)),
            ("clicks", 0): PartitionPlace(1, (1,)),
            ("alone", 0): PartitionPlace(-1, (3,)),
        }
        self.transactions: dict[int, list[DescribedTransaction]] = {1: [], 2: []}
        self.producers: dict[TopicPartition, list[DescribedProducer]] = {}
        self.faults: list[ErrorCode] = []
        self.marker_error = ErrorCode.NONE
        self.asked: list[tuple[int, Any, int]] = []

    def add(
        self,
        coordinator: int,
        transactional_id: str,
        producer_id: int,
        state: str = "Ongoing",
        partitions: tuple[TopicPartition, ...] = (),
        start_ms: int = -1,
    ) -> None:
        topics = [DescribedTransactionTopic(topic=name, partitions=[index]) for name, index in partitions]
        described = DescribedTransaction(
            transactional_id=transactional_id,
            transaction_state=state,
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=start_ms,
            producer_id=producer_id,
            producer_epoch=3,
            topics=topics,
        )
        self.transactions[coordinator].append(described)

    def begin(self, partition: TopicPartition, producer_id: int, start_offset: int, last_ms: int) -> None:
        """The producer has a transaction open in the partition, or none (-1)."""
        producer = DescribedProducer(
            producer_id=producer_id,
            producer_epoch=3,
            last_sequence=5,
            last_timestamp=last_ms,
            coordinator_epoch=-1,
            current_txn_start_offset=start_offset,
        )
        self.producers.setdefault(partition, []).append(producer)

    # --- as ClusterClient

    def __enter__(self) -> TransactionCluster:
        return self

    def __exit__(self, *_: object) -> None: ...

    @property
    def first(self) -> Any:
        return self.client(1)

    def client(self, broker_id: int) -> Any:
        if broker_id not in self.brokers:
            raise ConfigError(f"broker {broker_id} not found at {self.address}")

        def ask(request: Any, version: int) -> Any:
            self.asked.append((broker_id, request, version))
            return getattr(self, "_" + type(request).__name__)(broker_id, request)

        return SimpleNamespace(ask=ask)

    # --- the answers

    def _fault(self) -> ErrorCode:
        return self.faults.pop(0) if self.faults else ErrorCode.NONE

    def _FindCoordinatorRequest(self, broker_id: int, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        if fault := self._fault():
            return FindCoordinatorResponse(error_code=fault)
        owners = [id for id, known in self.transactions.items() for one in known if one.transactional_id == request.key]
        return FindCoordinatorResponse(node_id=owners[0] if owners else 2)

    def _DescribeTransactionsRequest(
        self, broker_id: int, request: DescribeTransactionsRequest
    ) -> DescribeTransactionsResponse:
        fault = self._fault() or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        known = {one.transactional_id: one for one in self.transactions[broker_id]}
        states = [known.get(id, DescribedTransaction(error_code=fault)) for id in request.transactional_ids]
        return DescribeTransactionsResponse(transaction_states=states)

    def _ListTransactionsRequest(self, broker_id: int, request: ListTransactionsRequest) -> ListTransactionsResponse:
        listed = [
            ListedTransaction(
                transactional_id=one.transactional_id,
                producer_id=one.producer_id,
                transaction_state=one.transaction_state,
            )
            for one in self.transactions[broker_id]
            if not request.producer_id_filters or one.producer_id in request.producer_id_filters
        ]
        unknown = [state for state in request.state_filters if state == "Nonsense"]
        return ListTransactionsResponse(
            error_code=self._fault(), transaction_states=listed, unknown_state_filters=unknown
        )

    def _DescribeProducersRequest(self, broker_id: int, request: DescribeProducersRequest) -> DescribeProducersResponse:
        def one(name: str, index: int) -> DescribeProducersPartition:
            error = ErrorCode.NONE if broker_id in self.places[name, index].replicas else ErrorCode(6)
            producers = self.producers.get((name, index), [])
            return DescribeProducersPartition(partition_index=index, error_code=error, active_producers=producers)

        return DescribeProducersResponse(
            topics=[
                DescribeProducersTopic(
                    name=topic.name, partitions=[one(topic.name, i) for i in topic.partition_indexes]
                )
                for topic in request.topics
            ]
        )

    def _WriteTxnMarkersRequest(self, broker_id: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        (marker,) = request.markers
        (topic,) = marker.topics
        (index,) = topic.partition_indexes
        result = WritableTxnMarkerPartitionResult(partition_index=index, error_code=self.marker_error)
        topics = [WritableTxnMarkerTopicResult(name=topic.name, partitions=[result])]
        return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)])
