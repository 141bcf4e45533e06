"""The assignor of groups of Kafka Streams: even shares, and tasks stay where their state is.

An active task stays with the member that had it, else goes to one that had its standby, as long as that has not its
share of active tasks yet; the rest goes to the least loaded process, and there to the least loaded member. Standby
tasks, of stateful subtopologies only, follow likewise: to the member that had the task, active or standby, else to the
least loaded process that has not the task yet. The load of a process is its tasks per member.

Ties are as in Kafka: members and processes come in the order of a hash map, and queues are binary heaps that are not
stable. So an assignment is the one that Kafka's coordinator makes of the same group.
Source: org.apache.kafka.coordinator.group.streams.assignor.{StickyTaskAssignor, ProcessState} (4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import java_hash_order
from kafkalite.common.text import java_order
from kafkalite.coordinator.group.streams.configured_topology import ConfiguredSubtopology
from kafkalite.coordinator.group.streams.tasks import NO_TASKS, TaskId, Tasks, task_set

logger = logging.getLogger(__name__)

T = TypeVar("T")
_Member = tuple["_Process", str]


class MemberSpec(NamedTuple):
    """A member as the assignor sees it."""

    process_id: str
    target: Tasks = NO_TASKS  # from the last assignment


def assign(
    members: Mapping[str, MemberSpec], subtopologies: Mapping[str, ConfiguredSubtopology], num_standby_replicas: int = 0
) -> dict[str, Tasks]:
    """The tasks of each member. Standby tasks that no process has room for are left out."""
    if not members:
        return {}
    return _Assignment(members, subtopologies, num_standby_replicas).assign()


class _Heap(Generic[T]):
    """A binary heap whose ties come out as in java.util.PriorityQueue."""

    def __init__(self, items: Iterable[T], load: Callable[[T], float]) -> None:
        self._items: list[T] = []
        self._load = load
        for item in items:
            self.push(item)

    def __bool__(self) -> bool:
        return bool(self._items)

    def push(self, item: T) -> None:
        items, load = self._items, self._load
        mine = load(item)
        place = len(items)
        items.append(item)
        while place and mine < load(items[above := (place - 1) >> 1]):
            items[place] = items[above]
            place = above
        items[place] = item

    def pop(self) -> T:
        items, load = self._items, self._load
        last = items.pop()
        if not items:
            return last
        least, count = items[0], len(items)
        mine, place = load(last), 0
        while (child := 2 * place + 1) < count:
            if child + 1 < count and load(items[child]) > load(items[child + 1]):
                child += 1
            if mine <= load(items[child]):
                break
            items[place] = items[child]
            place = child
        items[place] = last
        return least


class _Process:
    """A process: its members with the number of their tasks."""

    def __init__(self) -> None:
        self.load = 0.0  # tasks per member
        self.tasks: set[TaskId] = set()
        self.counts: dict[str, int] = {}
        self._task_count = 0
        self._members: _Heap[str] | None = None

    def add_member(self, member_id: str) -> None:
        self.counts[member_id] = 0

    def add(self, member_id: str, task: TaskId) -> int:
        """Give the task to the member; returns how many it has now."""
        self._members = None
        return self._add(member_id, task)

    def add_to_least_loaded(self, task: TaskId) -> tuple[str, int]:
        """The member that gets the task, and how many it has now."""
        if len(self.counts) == 1:
            (member_id,) = self.counts
            return member_id, self._add(member_id, task)
        if self._members is None:
            self._members = _Heap(java_hash_order(self.counts), self.counts.__getitem__)
        member_id = self._members.pop()
        count = self._add(member_id, task)
        self._members.push(member_id)
        return member_id, count

    def _add(self, member_id: str, task: TaskId) -> int:
        self._task_count += 1
        self.tasks.add(task)
        self.counts[member_id] += 1
        self.load = self._task_count / len(self.counts)
        return self.counts[member_id]


class _Quota:
    """The fair share of the members that have not reached theirs."""

    def __init__(self, task_count: int, member_count: int) -> None:
        self._tasks, self._members = task_count, member_count
        self.share = self._compute()

    def _compute(self) -> int:
        return -(-self._tasks // self._members) if self._members else 0

    def count(self, tasks_of_member: int) -> None:
        """Account for a member that got a task."""
        if tasks_of_member == self.share:
            self._members -= 1
            self._tasks -= tasks_of_member
            self.share = self._compute()


class _Assignment:
    """One run."""

    def __init__(
        self, members: Mapping[str, MemberSpec], subtopologies: Mapping[str, ConfiguredSubtopology], replicas: int
    ) -> None:
        self._replicas = replicas
        self._active_tasks = _tasks(subtopologies)
        self._standby_tasks = _tasks({key: each for key, each in subtopologies.items() if each.is_stateful})
        self._active: dict[str, list[TaskId]] = {member_id: [] for member_id in members}
        self._standby: dict[str, list[TaskId]] = {member_id: [] for member_id in members}
        self._active_quota = _Quota(len(self._active_tasks), len(members))
        self._quota = _Quota(len(self._active_tasks) + replicas * len(self._standby_tasks), len(members))
        processes: dict[str, _Process] = {}
        self._previous_active: dict[TaskId, _Member] = {}
        self._previous_standby: dict[TaskId, list[_Member]] = {}
        for member_id in java_hash_order(members):
            spec = members[member_id]
            process = processes.setdefault(spec.process_id, _Process())
            process.add_member(member_id)
            for key, partitions in spec.target.active.items():
                for partition in partitions:
                    self._previous_active[TaskId(key, partition)] = process, member_id
            for key, partitions in spec.target.standby.items():
                for partition in partitions:
                    self._previous_standby.setdefault(TaskId(key, partition), []).append((process, member_id))
        self._processes = [processes[each] for each in java_hash_order(processes, len(members))]

    def assign(self) -> dict[str, Tasks]:
        self._assign_active()
        if self._replicas > 0:
            self._assign_standby()
        return {
            member_id: Tasks(_grouped(tasks), _grouped(self._standby[member_id]))
            for member_id, tasks in self._active.items()
        }

    # --- active tasks

    def _assign_active(self) -> None:
        # members have ranges, so partition by partition gives all of them a chance to keep theirs
        left = []
        for task in sorted(self._active_tasks, key=lambda task: (task.partition, java_order(task.subtopology_id))):
            previous = self._previous_active.get(task)
            if previous is None or not self._give_active(task, previous):
                left.append(task)
        rest = []
        for task in left:
            previous = self._least_loaded(self._previous_standby.get(task), None)
            if previous is None or not self._give_active(task, previous):
                rest.append(task)
        rest.sort(key=lambda task: (java_order(task.subtopology_id), task.partition))
        queue = _Heap(self._processes, lambda process: process.load)
        for task in rest:
            process = queue.pop()
            member_id, count = process.add_to_least_loaded(task)
            self._active[member_id].append(task)
            self._count_active(count)
            queue.push(process)

    def _give_active(self, task: TaskId, member: _Member) -> bool:
        """Whether the member had room for the task."""
        process, member_id = member
        if process.counts[member_id] >= self._active_quota.share:
            return False
        self._active[member_id].append(task)
        self._count_active(process.add(member_id, task))
        return True

    def _count_active(self, count: int) -> None:
        self._active_quota.count(count)
        self._quota.count(count)

    # --- standby tasks

    def _assign_standby(self) -> None:
        left: list[tuple[TaskId, int]] = []
        for task in sorted(
            self._standby_tasks, key=lambda task: (task.partition, java_order(task.subtopology_id)), reverse=True
        ):
            for placed in range(self._replicas):
                if not self._give_back_standby(task):
                    left.append((task, self._replicas - placed))
                    break
        left.sort(key=lambda each: (java_order(each[0].subtopology_id), each[0].partition), reverse=True)
        queue = _Heap(self._processes, lambda process: process.load)
        missing = 0
        for task, wanted in left:
            placed = 0
            while placed < wanted and self._give_standby(task, queue):
                placed += 1
            missing += wanted - placed
        if missing:
            logger.info("%d standby tasks have no process: there are too few for %d replicas", missing, self._replicas)

    def _give_back_standby(self, task: TaskId) -> bool:
        """Whether a member that had the task, active or standby, takes it."""
        if (active := self._previous_active.get(task)) and task not in active[0].tasks and self._has_room(active):
            self._add_standby(task, active)
            return True
        standby = self._least_loaded(self._previous_standby.get(task), task)
        if standby is None or not self._has_room(standby):
            return False
        self._add_standby(task, standby)
        return True

    def _has_room(self, member: _Member) -> bool:
        process, member_id = member
        return process.counts[member_id] < self._quota.share

    def _add_standby(self, task: TaskId, member: _Member) -> None:
        process, member_id = member
        self._standby[member_id].append(task)
        self._quota.count(process.add(member_id, task))

    def _give_standby(self, task: TaskId, queue: _Heap[_Process]) -> bool:
        """Whether a process that has not the task takes it."""
        seen = [queue.pop()]
        while task in seen[-1].tasks and queue:
            seen.append(queue.pop())
        is_given = task not in seen[-1].tasks
        if is_given:
            member_id, count = seen[-1].add_to_least_loaded(task)
            self._standby[member_id].append(task)
            self._quota.count(count)
        for process in reversed(seen):
            queue.push(process)
        return is_given

    @staticmethod
    def _least_loaded(members: list[_Member] | None, task: TaskId | None) -> _Member | None:
        """The least loaded of the members that had a standby, by process and by member. With a task: unless the process
        of the first has it, as in Kafka, and passing over the others whose process has it."""
        if not members or (task is not None and task in members[0][0].tasks):
            return None
        found = members[0]
        for process, member_id in members[1:]:
            if (
                process.load < found[0].load
                and (task is None or task not in process.tasks)
                and process.counts[member_id] < found[0].counts[found[1]]
            ):
                found = process, member_id
        return found


def _tasks(subtopologies: Mapping[str, ConfiguredSubtopology]) -> list[TaskId]:
    return [TaskId(key, index) for key, each in subtopologies.items() for index in range(each.task_count)]


def _grouped(tasks: list[TaskId]) -> Mapping[str, frozenset[int]]:
    found: dict[str, list[int]] = {}
    for task in tasks:
        found.setdefault(task.subtopology_id, []).append(task.partition)
    return task_set(found.items())
