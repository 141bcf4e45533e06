"""The metrics of the coordinators: groups by kind and state, and transactions, a few at a time.

Kafka's queue of events, its threads and its batches of records have no counterpart here, where a group is changed in
the turn of the loop in which its request comes.
Source: the MBeans of kafka.coordinator.group.GroupMetadataManager, GroupCoordinatorMetrics and
GroupCoordinatorRuntimeMetrics (4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

from kafkalite.common.metrics import COUNTER, GAUGE, Column, Metrics, Row
from kafkalite.coordinator.group.classic.group_state import GroupState
from kafkalite.coordinator.group.consumer.group_environment import GroupTotals
from kafkalite.coordinator.group.group import CLASSIC, CONSUMER, SHARE, STREAMS, Group
from kafkalite.coordinator.group_coordinator import GroupCoordinator
from kafkalite.coordinator.internal_topic import InternalTopic
from kafkalite.coordinator.transaction.transaction_state import STATE_OF_ID, TransactionState
from kafkalite.coordinator.transaction_coordinator import TransactionCoordinator
from kafkalite.server.coordinators import Coordinators

T = TypeVar("T")

_PER_PAUSE = 500  # groups or transactional ids that are counted at once
_MODERN_GROUPS = "kafka_server_group_coordinator_metrics"
_STATES_OF_CONSUMER_GROUPS = ("Empty", "Assigning", "Reconciling", "Stable", "Dead")
_STATES_OF_SHARE_GROUPS = ("Empty", "Stable", "Dead")
_STATES_OF_STREAMS_GROUPS = ("Empty", "NotReady", "Assigning", "Reconciling", "Stable", "Dead")
_GROUP_KINDS = Column(f"{_MODERN_GROUPS}_group_count", "Groups by their protocol.", GAUGE)
_CONSUMER_GROUP_STATES = Column(f"{_MODERN_GROUPS}_consumer_group_count", "Consumer groups by their state.", GAUGE)
_SHARE_GROUP_STATES = Column(f"{_MODERN_GROUPS}_share_group_count", "Share groups by their state.", GAUGE)
_STREAMS_GROUP_STATES = Column(
    f"{_MODERN_GROUPS}_streams_group_count", "Groups of Kafka Streams by their state.", GAUGE
)
_REBALANCES = (
    Column(
        f"{_MODERN_GROUPS}_consumer_group_rebalance_count", "Rebalances of consumer groups that were begun.", COUNTER
    ),
    Column(f"{_MODERN_GROUPS}_share_group_rebalance_count", "Rebalances of share groups that were begun.", COUNTER),
    Column(
        f"{_MODERN_GROUPS}_streams_group_rebalance_count",
        "Rebalances of groups of Kafka Streams that were begun.",
        COUNTER,
    ),
)
_OFFSET_COLUMNS = (
    Column(f"{_MODERN_GROUPS}_offset_commit_count", "Offsets that were committed.", COUNTER),
    Column(f"{_MODERN_GROUPS}_offset_expiration_count", "Offsets that have expired.", COUNTER),
    Column(f"{_MODERN_GROUPS}_offset_deletion_count", "Offsets that clients have deleted.", COUNTER),
    Column(
        f"{_MODERN_GROUPS}_group_completed_rebalance_count", "Rebalances of classic groups that have ended.", COUNTER
    ),
)
_OFFSETS = Column("kafka_coordinator_group_groupmetadatamanager_numoffsets", "Committed offsets of all groups.")
_GROUPS = "kafka_coordinator_group_groupmetadatamanager_numgroups"
_GROUP_COLUMNS = (
    Column(_GROUPS, "Groups of the classic protocol."),
    *(Column(_GROUPS + one.value.lower(), f"Groups in state {one.value}.") for one in GroupState),
)
_TRANSACTION_COLUMNS = (
    Column("kafkalite_transactions_open", "Open transactions whose coordinator is this broker."),
    Column("kafkalite_transactions_oldest_open_seconds", "For how long the oldest of them has been open."),
    Column("kafkalite_transactions_ending", "Ended transactions whose markers are not all written yet."),
)
_TRANSACTIONAL_IDS = Column("kafkalite_transactional_ids", "Transactional ids whose coordinator is this broker.")


def add_coordinator_metrics(metrics: Metrics, coordinators: Coordinators) -> None:
    transactions = coordinators.transactions
    metrics.table(_GROUP_COLUMNS, (), partial(_groups, coordinators.groups))
    metrics.table((_GROUP_KINDS,), ("protocol",), partial(_group_kinds, coordinators.groups))
    for column, kind, states in (
        (_CONSUMER_GROUP_STATES, CONSUMER, _STATES_OF_CONSUMER_GROUPS),
        (_SHARE_GROUP_STATES, SHARE, _STATES_OF_SHARE_GROUPS),
        (_STREAMS_GROUP_STATES, STREAMS, _STATES_OF_STREAMS_GROUPS),
    ):
        metrics.table((column,), ("state",), partial(_group_states, coordinators.groups, kind, states))
    totals = coordinators.group_totals
    metrics.table(_REBALANCES, (), lambda: [Row((), _rebalances(totals))])
    metrics.table((_OFFSETS,), (), partial(_offsets, coordinators.groups))
    metrics.table(_OFFSET_COLUMNS, (), partial(_offset_counts, coordinators.groups))
    add_internal_topic_metrics(metrics, _MODERN_GROUPS, coordinators.offsets_topic)
    metrics.table(_TRANSACTION_COLUMNS, (), partial(_transactions, transactions))
    metrics.table((_TRANSACTIONAL_IDS,), ("state",), partial(_transactional_ids, transactions))


def _rebalances(totals: GroupTotals) -> tuple[int, ...]:
    return totals.rebalances, totals.share_rebalances, totals.streams_rebalances


def add_internal_topic_metrics(metrics: Metrics, group: str, topic: InternalTopic) -> None:
    """Add the metrics of `group` that Kafka's coordinators have alike: led partitions by state, times of loads."""
    counts = Column(f"{group}_num_partitions", f"Led partitions of {topic.name} by state.", GAUGE)
    load_times = (
        Column(f"{group}_partition_load_time_max", "Milliseconds, of the loads that ended in the last 30 s."),
        Column(f"{group}_partition_load_time_avg", "Milliseconds, of the same."),
    )
    metrics.table((counts,), ("state",), partial(_partition_counts, topic))
    metrics.table(load_times, (), partial(_load_times, topic))


def _count(items: Iterable[T], counts: dict[str, int], name_of: Callable[[T], str | None]) -> Iterator[None]:
    """Count the items by name, with pauses; those without a name are left out."""
    for number, each in enumerate(items, start=1):
        name = name_of(each)
        if name is not None:
            counts[name] += 1
        if number % _PER_PAUSE == 0:
            yield None


def _state_if(kind: str) -> Callable[[Group], str | None]:
    return lambda group: group.state_name if group.kind == kind else None


def _groups(groups: GroupCoordinator) -> Iterator[Row | None]:
    """By state, of the classic protocol."""
    counts = {state.value: 0 for state in GroupState}
    yield from _count(groups.store, counts, _state_if(CLASSIC))
    yield Row((), (sum(counts.values()), *counts.values()))


def _group_kinds(groups: GroupCoordinator) -> Iterator[Row | None]:
    counts = dict.fromkeys((CLASSIC, CONSUMER, SHARE, STREAMS), 0)
    yield from _count(groups.store, counts, lambda group: group.kind)
    yield from (Row((kind,), (count,)) for kind, count in counts.items())


def _group_states(groups: GroupCoordinator, kind: str, states: Iterable[str]) -> Iterator[Row | None]:
    counts = dict.fromkeys(states, 0)
    yield from _count(groups.store, counts, _state_if(kind))
    yield from (Row((state,), (count,)) for state, count in counts.items())


def _offsets(groups: GroupCoordinator) -> Iterator[Row | None]:
    count = 0
    for number, group in enumerate(groups.store, start=1):
        count += sum(map(len, group.offsets.by_topic.values()))
        if number % _PER_PAUSE == 0:
            yield None
    yield Row((), (count,))


def _offset_counts(groups: GroupCoordinator) -> Iterator[Row]:
    offsets = groups.offsets
    yield Row((), (offsets.commit_count, offsets.expiration_count, offsets.deletion_count, groups.completed_rebalances))


def _partition_counts(topic: InternalTopic) -> Iterator[Row]:
    return (Row((state,), (count,)) for state, count in topic.partition_counts().items())


def _load_times(topic: InternalTopic) -> Iterator[Row]:
    """Absent when nothing was loaded lately, as Kafka's are NaN."""
    if times_ms := topic.recent_load_times_ms():
        yield Row((), (max(times_ms), sum(times_ms) / len(times_ms)))


def _transactions(transactions: TransactionCoordinator) -> Iterator[Row]:
    store = transactions.store
    oldest_open_s = transactions.oldest_open_ms() / 1000
    yield Row((), (len(store.open), oldest_open_s, len(store.ending)))


def _transactional_ids(transactions: TransactionCoordinator) -> Iterator[Row | None]:
    """The number of transactional ids in each stored state."""
    states = STATE_OF_ID[: STATE_OF_ID.index(TransactionState.DEAD)]
    counts = dict.fromkeys((state.value for state in states), 0)
    yield from _count(transactions.store, counts, lambda each: each.state.value)
    yield from (Row((state,), (count,)) for state, count in counts.items())
