"""Partitions from a source to its target: fetches that wait at each leader, and `Copies` for what they bring.

A leader of the source always has the next fetch while the batches of the last one are on their way to the target. The
copies are committed when the source has nothing more at the moment (`CommitPace`), or when many bytes are open.
Source: org.apache.kafka.clients.consumer.internals.Fetcher; KIP-447.
"""

from __future__ import annotations

import logging
import select
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from kafkalite.client.blocking_client import BlockingClient
from kafkalite.client.cluster_client import ClusterClient, Retries
from kafkalite.client.fetching import (
    COMMITTED,
    FETCH_VERSION,
    Fetched,
    OutOfRange,
    answered_partitions,
    fetch_request,
    fetched,
)
from kafkalite.client.group_member import NO_MEMBER, Membership
from kafkalite.client.log_offsets import LogOffsets
from kafkalite.client.mirror.copied_partition import CopiedPartition
from kafkalite.common.errors import ConfigError, Malformed, Refused, Unanswered
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.protocol.messages.fetch import FetchRequest

_FETCH_WAIT_MS = 500
_SKIPS_COMMITTED_S = 1.0

logger = logging.getLogger("kafkalite.mirror")


class _Waiting(NamedTuple):
    """A fetch in flight: its connection, and the offsets that it asks for."""

    client: BlockingClient
    asked: Mapping[TopicPartition, int]


B = TypeVar("B")
"""A batch on its way: of `CommittedBatch`, or `PreservedBatch`."""


class Copies(Protocol[B]):
    """Copies at the target, as the copier writes them: in transactions (`OpenTransaction`), or with the offsets of the
    source (`PreservedCopies`). Raises WriteFailed, Unanswered if the target refuses or is away for too long; the object
    is of no use then.

    `began_s` is the time at which something was added that is not committed yet, None if there is nothing; `size_bytes`
    are its records, if it `has_records`.
    """

    began_s: float | None
    size_bytes: int
    has_records: bool

    def begin(self, partitions: Sequence[CopiedPartition], member: Membership) -> None:
        """Sets the position of each partition to the end of its copy, or gives it a fault."""

    def batches(self, fetched: Fetched, position: int) -> tuple[list[B], int]:
        """The batches of a response that are to be added, and the offset behind it. Raises Malformed."""

    def add(self, copied: CopiedPartition, batches: list[B]) -> None:
        """Queues batches of a partition, whose position is behind them."""

    def send(self) -> None:
        """Sends batches that are queued, without waiting for the last answers."""

    def commit(self, member: Membership) -> None:
        """Returns when all that was added is committed; notifies the partitions."""


class CommitPace:
    """Decides when the open copies are committed. `is_behind`: the source had more than what was fetched since the
    last commit.

    While it is behind, an interval is between two commits. Otherwise that would be time for which records wait: they
    wait only as long as the last commit took, so that no more than half of the time is spent on commits, and a tenth of
    the interval at the least."""

    def __init__(self, interval_s: float, transaction_bytes: int, now_s: float) -> None:
        self.is_behind = False
        self._interval_s = interval_s
        self._transaction_bytes = transaction_bytes
        self._committed_s = now_s
        self._took_s = 0.0

    def left_s(self, now_s: float, size_bytes: int, has_records: bool) -> float:
        """The time until a commit is due: none after a quiet while, and when the transaction is large."""
        if size_bytes >= self._transaction_bytes:
            return 0.0
        if not has_records:
            interval_s = _SKIPS_COMMITTED_S
        elif self.is_behind:
            interval_s = self._interval_s
        else:
            interval_s = min(self._interval_s, max(self._took_s, self._interval_s / 10))
        return max(0.0, self._committed_s + interval_s - now_s)

    def on_committed(self, began_s: float, now_s: float) -> None:
        self._committed_s, self._took_s = now_s, now_s - began_s
        self.is_behind = False


class Copier(Generic[B]):
    """Copies the assigned partitions. Raises Unanswered, WriteFailed if a cluster is away or refuses; the object is of
    no use then. Faults of one partition stay with it."""

    def __init__(
        self,
        source: ClusterClient,
        copies: Copies[B],
        retries: Retries,
        *,
        commit_interval_ms: int,
        transaction_bytes: int,
        fetch_bytes: int,
    ) -> None:
        self._source = source
        self._copies = copies
        self._retries = retries
        self._pace = CommitPace(commit_interval_ms / 1000, transaction_bytes, retries.monotonic_s())
        self._fetch_bytes = fetch_bytes
        self._member = NO_MEMBER
        self._partitions: dict[TopicPartition, CopiedPartition] = {}
        self._waiting: dict[int, _Waiting] = {}
        self._needs_metadata = False
        self._turn = 0

    # --- assignment

    def assign(self, wanted: Iterable[CopiedPartition], member: Membership) -> None:
        """Copies these partitions from now on, each from where it was committed last. Nothing may be uncommitted."""
        assert self._copies.began_s is None
        self._member = member
        self._partitions = {one.source: one for one in wanted}
        for one in self._partitions.values():
            one.fault = ""
        if self._partitions:  # also those that were here before: another may have had them meanwhile
            self._copies.begin(list(self._partitions.values()), member)

    def retry_faults(self) -> None:
        """Assigns all partitions again if one has a fault: its cause may be gone."""
        if any(one.fault for one in self._partitions.values()):
            self.commit()
            self.assign(list(self._partitions.values()), self._member)

    # --- copying

    def poll(self, wait_s: float) -> None:
        """Copies what the source has, after at most `wait_s` of waiting, and commits if that is due."""
        if self._needs_metadata:
            self._source.refresh()
            self._needs_metadata = False
        self._fetch_where_idle()
        ready = self._ready(min(wait_s, self._left_s()))
        for broker_id in ready:
            self._receive(broker_id)
        if self._left_s() <= 0:
            self.commit()
        elif self._pace.is_behind:
            self._copies.send()

    def commit(self) -> None:
        """Commits what is copied so far."""
        began_s = self._retries.monotonic_s()
        self._copies.commit(self._member)
        self._pace.on_committed(began_s, self._retries.monotonic_s())

    def _left_s(self) -> float:
        """The time until a commit is due."""
        copies = self._copies
        if copies.began_s is None:
            return float("inf")
        return self._pace.left_s(self._retries.monotonic_s(), copies.size_bytes, copies.has_records)

    def _ready(self, wait_s: float) -> list[int]:
        """The brokers whose response arrives within `wait_s`."""
        if buffered := [broker_id for broker_id, one in self._waiting.items() if one.client.has_buffered]:
            return buffered
        by_socket = {one.client.fileno(): broker_id for broker_id, one in self._waiting.items()}
        poller = select.poll()
        for number in by_socket:
            poller.register(number, select.POLLIN)
        return [by_socket[number] for number, _ in poller.poll(wait_s * 1000)]

    def _fetch_where_idle(self) -> None:
        """Sends a fetch to each leader that has none."""
        led: dict[int, dict[TopicPartition, int]] = {}
        for key, one in self._partitions.items():
            if not one.fault:
                try:
                    led.setdefault(self._source.leader_of(key), {})[key] = one.position
                except (Unanswered, ConfigError):
                    self._needs_metadata = True
        for broker_id, positions in led.items():
            if broker_id not in self._waiting:
                self._send(broker_id, positions)

    def _send(self, broker_id: int, positions: Mapping[TopicPartition, int]) -> None:
        """Another partition is the first with each fetch: a response ends where it is full."""
        keys = list(positions)
        self._turn += 1
        at = self._turn % len(keys)
        asked = {key: positions[key] for key in keys[at:] + keys[:at]}
        client = self._source.reader(broker_id)
        request = fetch_request(asked, isolation=COMMITTED, max_wait_ms=_FETCH_WAIT_MS, max_bytes=self._fetch_bytes)
        client.send(request, FETCH_VERSION)
        self._waiting[broker_id] = _Waiting(client, asked)

    def _receive(self, broker_id: int) -> None:
        client, asked = self._waiting.pop(broker_id)
        answer = client.receive(FetchRequest, FETCH_VERSION)
        brought = []
        for key, data in answered_partitions(answer):
            one = self._partitions.get(key)
            if one is None or one.fault or one.position != asked.get(key):
                continue
            try:
                response = fetched(key, data)
                batches, position = self._copies.batches(response, one.position)
            except OutOfRange:
                self._reposition(one)
            except (Refused, Malformed) as fault:
                one.fail(str(fault))
            except Unanswered:
                self._needs_metadata = True
            else:
                if position > one.position:
                    one.position = position
                    brought.append((one, batches))
                one.counts.lag = _lag(response, position)
        self._fetch_where_idle()  # before the batches are sent: the source works meanwhile
        for one, batches in brought:
            self._copies.add(one, batches)
            self._pace.is_behind |= bool(one.counts.lag)

    def _reposition(self, one: CopiedPartition) -> None:
        """The source has deleted the records at the position, or lost them."""
        offsets = LogOffsets(self._source, self._retries.timeout_s)
        start, end = offsets.starts([one.source])[one.source], offsets.ends([one.source])[one.source]
        if one.position < start:
            one.counts.lost += start - one.position
            logger.warning(
                "%s: the source has deleted %d offsets before they were copied", one.name, start - one.position
            )
            one.position = start
            self._copies.add(one, [])
        elif one.position > end:
            one.fail(f"it is copied up to offset {one.position}, but ends at {end}: it is another topic now")


def _lag(response: Fetched, position: int) -> int:
    """The records up to the last stable offset; none if a response has none at all."""
    return max(0, response.last_stable_offset - position) if response.batches else 0
