"""The processes that have the tasks of a group, or are giving them up.

A task has one active copy, and any number of others, each in a process of its own: state directories are locked by
process, so a copy is not given to a process that has one already.
Source: org.apache.kafka.coordinator.group.streams.StreamsGroup (currentActiveTaskToProcessId and its kin; 4.3).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kafkalite.coordinator.group.streams.tasks import AssignedTasks

_Task = tuple[str, int]


class TaskProcesses:
    """Processes by task. Records of a compacted log may show an active task with two members for a moment: the later
    one counts, and the removal of the earlier one leaves it alone, for its process is another."""

    __slots__ = ("_active", "_standby", "_warmup")

    def __init__(self) -> None:
        self._active: dict[_Task, str] = {}
        self._standby: dict[_Task, set[str]] = {}
        self._warmup: dict[_Task, set[str]] = {}

    def active(self, subtopology_id: str, partition: int) -> str | None:
        """The process of the active task; None if there is none."""
        return self._active.get((subtopology_id, partition))

    def has_copy(self, process_id: str, subtopology_id: str, partition: int) -> bool:
        """Whether the process has the task as standby or warm-up."""
        task = subtopology_id, partition
        return process_id in self._standby.get(task, ()) or process_id in self._warmup.get(task, ())

    def add(self, tasks: AssignedTasks, process_id: str) -> None:
        for key, partitions in tasks.active.items():
            self._active.update(dict.fromkeys(((key, each) for each in partitions), process_id))
        _add(self._standby, tasks.standby, process_id)
        _add(self._warmup, tasks.warmup, process_id)

    def remove(self, tasks: AssignedTasks, process_id: str) -> None:
        for key, partitions in tasks.active.items():
            for each in partitions:
                if self._active.get((key, each)) == process_id:
                    del self._active[key, each]
        _remove(self._standby, tasks.standby, process_id)
        _remove(self._warmup, tasks.warmup, process_id)


def _add(processes: dict[_Task, set[str]], tasks: Mapping[str, Collection[int]], process_id: str) -> None:
    for key, partitions in tasks.items():
        for each in partitions:
            processes.setdefault((key, each), set()).add(process_id)


def _remove(processes: dict[_Task, set[str]], tasks: Mapping[str, Collection[int]], process_id: str) -> None:
    for key, partitions in tasks.items():
        for each in partitions:
            holders = processes.get((key, each), set())
            holders.discard(process_id)
            if not holders:
                processes.pop((key, each), None)
