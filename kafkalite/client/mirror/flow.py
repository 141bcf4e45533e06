"""The mirror of one source: joins the group that shares its partitions, and copies its own share until it is stopped.

Everything that is needed to continue is in the target: the progress of each partition is a committed offset of the
group, or the end of a copy that keeps the offsets. So after any error the session ends as a whole, and the next one
begins from there: it joins again as the same static member, aborts the transaction that was open, and reads the
progress. The leader of the group follows the topics of the source, and divides the partitions again when there are new
ones.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

from kafkalite.client.cluster_client import ClusterClient, Retries, WriteFailed
from kafkalite.client.group_member import GroupMember, Share
from kafkalite.client.log_offsets import LogOffsets
from kafkalite.client.mirror.copied_partition import CopiedPartition
from kafkalite.client.mirror.copier import Copier, Copies
from kafkalite.client.mirror.flow_status import FlowStatus
from kafkalite.client.mirror.naming import offset_syncs_of
from kafkalite.client.mirror.open_transaction import OpenTransaction
from kafkalite.client.mirror.preserved_copies import PreservedCopies, require_kafkalite
from kafkalite.client.mirror.settings import Endpoint, MirrorSettings
from kafkalite.client.mirror.state_records import OffsetSync, Run
from kafkalite.client.mirror.state_topics import OFFSET_SYNCS_KEPT_MS, StateTopics, read_offset_syncs
from kafkalite.client.mirror.target_topics import TargetTopics
from kafkalite.client.producer.transactions import GroupOffsets
from kafkalite.common.clock import monotonic_s
from kafkalite.common.errors import ConfigError, Malformed, Unanswered
from kafkalite.common.names import TopicPartition
from kafkalite.common.text import read_json

PROTOCOL_TYPE = "kafkalite-mirror"
FAULTS = (Unanswered, WriteFailed, ConfigError, Malformed, OSError)
_POLL_S = 0.25
_BACKOFF_S = 0.002  # between a transaction's markers and the next transaction


class Flow:
    """Copies from `start` to `stop`, in a thread of its own."""

    def __init__(
        self,
        alias: str,
        source: Endpoint,
        settings: MirrorSettings,
        wall_ms: Callable[[], int],
        *,
        monotonic_s: Callable[[], float] = monotonic_s,
    ) -> None:
        self.alias = alias
        self.status = FlowStatus(alias, wall_ms)
        self.naming = settings.naming(alias)
        self.endpoint = source
        self.settings = settings
        self.timeout_s = settings.request_timeout_ms / 1000
        self.wall_ms = wall_ms
        self.monotonic_s = monotonic_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"mirror {alias}", daemon=True)
        self._known: dict[TopicPartition, CopiedPartition] = {}

    @property
    def group_id(self) -> str:
        return f"{self.settings.name}-{self.alias}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends after the commit of what is copied."""
        self._stopping.set()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with (
                    closing(self.endpoint.connect(self.timeout_s)) as source,
                    closing(self.settings.target.connect(self.timeout_s)) as target,
                ):
                    _Session(self, source, target).run()
            except FAULTS as fault:
                self.status.report(str(fault))
            finally:
                self.status.is_copying = False
            self._stopping.wait(self.settings.retry_ms / 1000)

    def partition(self, source: TopicPartition) -> CopiedPartition:
        """The one object for a partition, which outlives sessions: its counts and its map of offsets."""
        if source not in self._known:
            self._known[source] = CopiedPartition(source, (self.naming.copy_of(source[0]), source[1]))
        return self._known[source]

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()


class _Session:
    """From the connection to both clusters to the first error. Raises what FAULTS has."""

    def __init__(self, flow: Flow, source: ClusterClient, target: ClusterClient) -> None:
        self._flow = flow
        self._settings = settings = flow.settings
        self._source = source.open()
        self._target = target.open()
        self._monotonic_s = flow.monotonic_s
        self._retries = Retries(flow.timeout_s, _BACKOFF_S, self._monotonic_s)
        self._topics = TargetTopics(
            source,
            target,
            flow.naming,
            settings.topics,
            flow.timeout_s,
            replication_factor=settings.replication_factor,
            report=flow.status.report,
        )
        self._member = GroupMember(
            target,
            flow.group_id,
            PROTOCOL_TYPE,
            settings.instance,
            self._retries,
            session_timeout_ms=settings.session_timeout_ms,
        )
        self._ready: list[TopicPartition] = []
        if settings.preserves_offsets:
            require_kafkalite(target)
        self._state = state = StateTopics(target, Retries(flow.timeout_s), settings.replication_factor)
        state.create(flow.naming.offset_syncs, kept_ms=OFFSET_SYNCS_KEPT_MS)
        self._leads = False
        self._copier = self._new_copier()

    def run(self) -> None:
        self._divide_again()
        self._flow.status.is_copying = True
        refreshed_s = heard_s = self._monotonic_s()
        while not self._flow.is_stopping:
            now_s = self._monotonic_s()
            if now_s - heard_s >= self._settings.session_timeout_ms / 10_000:
                heard_s = now_s
                if not self._member.heartbeat():
                    self._divide_again()
            if now_s - refreshed_s >= self._settings.refresh_interval_ms / 1000:
                refreshed_s = now_s
                self._source.refresh()
                if self._leads and self._follow_topics() != self._ready:
                    self._divide_again()
                self._copier.retry_faults()
            self._copier.poll(_POLL_S)
        self._copier.commit()

    def _new_copier(self) -> Copier[Any]:
        settings = self._settings
        return Copier(
            self._source,
            self._preserved() if settings.preserves_offsets else self._transactional(),
            self._retries,
            commit_interval_ms=settings.commit_interval_ms,
            transaction_bytes=settings.transaction_bytes,
            fetch_bytes=settings.fetch_bytes,
        )

    def _preserved(self) -> Copies[Any]:
        settings, flow = self._settings, self._flow
        return PreservedCopies(
            self._source,
            self._target,
            self._state,
            flow.naming.offset_syncs,
            self._retries,
            flow.wall_ms,
            pair_interval_ms=settings.groups_interval_ms,
        )

    def _transactional(self) -> Copies[Any]:
        settings, flow = self._settings, self._flow
        source_name = f"cluster {self._source.cluster_id or flow.alias}"
        progress = GroupOffsets(flow.group_id, self._target, self._retries)
        return OpenTransaction(
            self._source,
            self._target,
            settings.producer_options(),
            progress,
            f"{flow.group_id}-{settings.instance}",
            source_name,
            flow.naming.offset_syncs,
            self._retries,
            flow.wall_ms,
        )

    def _divide_again(self) -> None:
        """Joins the group's next generation, and copies what this member has in it."""
        self._copier.commit()
        share = self._member.join(self._divide)
        self._leads = self._flow.status.leads = share.leads
        mine = [self._flow.partition(key) for key in _partitions_of(share)]
        self._load_offsets([one for one in mine if one.source not in self._flow.status.partitions])
        if any(one.source not in self._source.places for one in mine):
            self._source.refresh()
        self._copier.assign(mine, self._member.membership)
        self._flow.status.partitions = {one.source: one for one in mine}

    def _divide(self, members: Sequence[str]) -> Mapping[str, bytes]:
        """The partitions whose copies are there, one after the other to each member."""
        self._source.refresh()
        self._ready = self._follow_topics()
        return {member: _encoded(self._ready[at :: len(members)]) for at, member in enumerate(members)}

    def _follow_topics(self) -> list[TopicPartition]:
        """Creates what is missing at the target. Returns the partitions whose copies are there."""
        counts = self._chosen()
        self._flow.status.topics = frozenset(counts)
        return sorted(self._topics.follow(counts, self._claim))

    def _load_offsets(self, gained: Sequence[CopiedPartition]) -> None:
        """Fills the maps of offsets of partitions that another process may have copied until now."""
        if not gained:
            return
        self._target.refresh()
        for one in gained:
            one.offsets.clear()
        by_source = {one.source: one for one in gained}
        for sync in read_offset_syncs(self._target, self._flow.naming.offset_syncs, self._flow.timeout_s):
            if sync.partition in by_source:
                by_source[sync.partition].offsets.append(sync.run)

    def _claim(self, topics: Sequence[str]) -> None:
        """Writes the first pair of offsets of copies that are about to be created, so that a mirror back to the source
        knows copies with the same name from the beginning."""
        if not self._settings.keeps_names:
            return
        keys = [key for key in self._source.places if key[0] in topics]
        starts = LogOffsets(self._source, self._flow.timeout_s).starts(keys)
        now_ms = self._flow.wall_ms()
        syncs = [OffsetSync(key, Run(start, 0, 0)).record(now_ms) for key, start in starts.items()]
        self._state.write(self._flow.naming.offset_syncs, syncs)

    def _chosen(self) -> dict[str, int]:
        """The topics that are copied. A copy with the same name as its source is known only by the state of the mirror
        that made it there."""
        not_from: set[str] = set()
        if self._settings.keeps_names:
            name = offset_syncs_of(self._settings.target_alias)
            not_from = {one.partition[0] for one in read_offset_syncs(self._source, name, self._flow.timeout_s)}
        return self._topics.chosen(not_from)


def _encoded(partitions: Sequence[TopicPartition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return json.dumps(topics, separators=(",", ":")).encode()


def _partitions_of(share: Share) -> list[TopicPartition]:
    """Raises Malformed for a share that another kind of member has made."""
    try:
        topics = read_json(share.work or b"{}")
        return [(str(topic), int(index)) for topic, indexes in topics.items() for index in indexes]
    except (ValueError, TypeError, AttributeError):
        raise Malformed("the group has no mirror for a leader: its shares are no partitions") from None
