"""The part of a mirror beside the records: groups, settings, access control lists, heartbeats.

It has a thread and connections of its own, so that records do not wait for it. Each process translates the groups'
offsets of its own partitions; the leader of the group does the rest.
Source: org.apache.kafka.connect.mirror.MirrorCheckpointTask; KIP-545.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import closing

from kafkalite.client.cluster_client import ClusterClient, Retries
from kafkalite.client.group_admin import GroupAdmin
from kafkalite.client.group_description import CLASSIC, CONSUMER, ListedGroup
from kafkalite.client.mirror.copied_partition import CopiedPartition
from kafkalite.client.mirror.flow import FAULTS, Flow
from kafkalite.client.mirror.naming import HEARTBEATS, Filter
from kafkalite.client.mirror.preserved_copies import require_kafkalite
from kafkalite.client.mirror.state_records import Checkpoint, heartbeat
from kafkalite.client.mirror.state_topics import StateTopics
from kafkalite.client.mirror.target_topics import TargetTopics
from kafkalite.common.names import TopicPartition

_TICK_S = 0.5


class Upkeep:
    """Works from `start` to `stop`, in a thread of its own."""

    def __init__(self, flow: Flow, wall_ms: Callable[[], int]) -> None:
        self._flow = flow
        self._wall_ms = wall_ms
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"upkeep {flow.alias}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        flow, timeout_s = self._flow, self._flow.timeout_s
        while not self._stopping.is_set():
            try:
                with (
                    closing(flow.endpoint.connect(timeout_s)) as source,
                    closing(flow.settings.target.connect(timeout_s)) as target,
                ):
                    upkeep = _Session(flow, source.open(), target.open(), timeout_s, self._wall_ms)
                    while not self._stopping.is_set():
                        upkeep.work()
                        self._stopping.wait(_TICK_S)
            except FAULTS as fault:
                flow.status.report(str(fault))
            self._stopping.wait(flow.settings.retry_ms / 1000)


class _Session:
    """From the connection to both clusters to the first error. Raises what FAULTS has."""

    def __init__(
        self, flow: Flow, source: ClusterClient, target: ClusterClient, timeout_s: float, wall_ms: Callable[[], int]
    ) -> None:
        self._flow = flow
        self._settings = settings = flow.settings
        self._source = source
        self._target = target
        self._timeout_s = timeout_s
        self._wall_ms = wall_ms
        self._state = StateTopics(target, Retries(timeout_s), settings.replication_factor)
        self._groups = GroupFollower(source, target, settings.groups, timeout_s)
        self._topics = TargetTopics(source, target, flow.naming, settings.topics, timeout_s, report=flow.status.report)
        self._due_ms: dict[str, int] = {}
        if settings.preserves_offsets:
            require_kafkalite(target)
        self._state.create(flow.naming.checkpoints, flow.naming.heartbeats, HEARTBEATS)

    def work(self) -> None:
        """Does all that is due now."""
        settings, flow = self._settings, self._flow
        if settings.with_groups and self._is_due("groups", settings.groups_interval_ms):
            self._follow_groups()
        if flow.status.leads and self._is_due("heartbeat", settings.heartbeat_interval_ms):
            now_ms = self._wall_ms()
            for topic in (HEARTBEATS, flow.naming.heartbeats):
                self._state.write(topic, [heartbeat(flow.alias, settings.target_alias, now_ms)])
        if flow.status.leads and self._is_due("settings", settings.refresh_interval_ms):
            self._follow_topics()

    def _follow_topics(self) -> None:
        self._target.refresh()
        existing = self._target.topics
        topics = sorted(one for one in self._flow.status.topics if self._flow.naming.copy_of(one) in existing)
        if self._settings.with_settings:
            self._topics.follow_settings(topics)
        if self._settings.with_acls:
            self._topics.follow_acls(topics)

    def _follow_groups(self) -> None:
        now_ms = self._wall_ms()  # a checkpoint knows all that was committed by its time

        def write(checkpoints: list[Checkpoint]) -> None:
            self._state.write(self._flow.naming.checkpoints, [one.record(now_ms) for one in checkpoints])

        partitions = {key: one for key, one in self._flow.status.partitions.items() if not one.fault}
        for refusal in self._groups.follow(partitions, write):
            self._flow.status.report(refusal)

    def _is_due(self, name: str, interval_ms: int) -> bool:
        now_ms = self._wall_ms()
        if now_ms < self._due_ms.get(name, 0) <= now_ms + interval_ms:
            return False
        self._due_ms[name] = now_ms + interval_ms
        return True


_CONSUMER_PROTOCOL = "consumer"
_EMPTY = ("Empty", "Dead")


class GroupFollower:
    """Translates offsets of groups whose names the filter has to the copies: a checkpoint for each, and committed where
    no consumer reads.

    A group without members at the target gets the translated offsets, so that its consumers continue there where they
    stopped. They are moved forwards; backwards only if the group went back at the source and no consumer has moved them
    at the target since. Raises Unanswered.
    """

    def __init__(self, source: ClusterClient, target: ClusterClient, groups: Filter, timeout_s: float) -> None:
        self._source = GroupAdmin(source, timeout_s)
        self._target = GroupAdmin(target, timeout_s)
        self._groups = groups
        self._last: dict[tuple[str, TopicPartition], Checkpoint] = {}

    def follow(
        self,
        partitions: Mapping[TopicPartition, CopiedPartition],
        write: Callable[[list[Checkpoint]], None],
    ) -> list[str]:
        """Writes the checkpoints that are new, and commits. Returns a sentence for each offset that the target
        refuses."""
        refusals: list[str] = []
        states = {one.group_id: one.state for one in self._target.list_groups()}
        for group in self._source.list_groups():
            if not self._is_followed(group):
                continue
            offsets = self._source.offsets(group.group_id)
            checkpoints = _translated(group.group_id, offsets, partitions)
            new = [one for one in checkpoints if self._last.get((one.group, one.partition)) != one]
            if new:
                write(new)
                if states.get(group.group_id, _EMPTY[0]) in _EMPTY:
                    refusals += self._commit(group.group_id, new, exists=group.group_id in states)
                self._last |= {(one.group, one.partition): one for one in new}
        return refusals

    def _is_followed(self, group: ListedGroup) -> bool:
        is_of_consumers = group.group_type in (None, CLASSIC, CONSUMER)
        return is_of_consumers and group.protocol_type in (None, _CONSUMER_PROTOCOL) and group.group_id in self._groups

    def _commit(self, group_id: str, checkpoints: list[Checkpoint], *, exists: bool) -> list[str]:
        present = self._target.offsets(group_id) if exists else {}
        moved = {one.partition: one.target for one in checkpoints if self._moves(one, present.get(one.partition))}
        return self._target.commit(group_id, moved) if moved else []

    def _moves(self, one: Checkpoint, present: int | None) -> bool:
        if present is None or one.target > present:
            return True
        last = self._last.get((one.group, one.partition))
        return last is not None and last.target == present and one.source < last.source


def _translated(
    group_id: str, offsets: Mapping[TopicPartition, int], partitions: Mapping[TopicPartition, CopiedPartition]
) -> list[Checkpoint]:
    found = []
    for key, offset in offsets.items():
        copied = partitions.get(key)
        target = None if copied is None else copied.offsets.translate(offset)
        if copied is not None and target is not None:
            found.append(Checkpoint(group_id, copied.target, offset, target))
    return found
