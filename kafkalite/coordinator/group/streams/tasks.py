"""Tasks of a group of Kafka Streams: sets of them, and sets that know when each active task was assigned.

A task is a partition of a subtopology. Its active copy processes records; standby copies keep its state up to date,
warm-up copies (which Kafka 4.3 does not assign yet) catch up to become active. Only active tasks have epochs: no others
commit offsets.
Source: org.apache.kafka.coordinator.group.streams.{TasksTuple, TasksTupleWithEpochs, assignor.TaskId} (4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.coordinator.group.partition_sets import is_owned, owns_only, partition_set

TaskSet = Mapping[str, frozenset[int]]
"""By subtopology id; no subtopology without partitions. Immutable."""

TaskEpochs = Mapping[str, Mapping[int, int]]
"""By subtopology id: partition -> the epoch in which the task was assigned; no subtopology without partitions.
Immutable."""

NONE: TaskSet = {}
NONE_ASSIGNED: TaskEpochs = {}

IsUnreleased = Callable[[str, int], bool]
"""Whether a task of a subtopology cannot be assigned yet."""


class TaskId(NamedTuple):
    """One task. Kafka's text of it is 0_3."""

    subtopology_id: str
    partition: int


class Tasks(NamedTuple):
    """The tasks that are meant for a member, or that it reports as its own."""

    active: TaskSet = NONE
    standby: TaskSet = NONE
    warmup: TaskSet = NONE

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)


class AssignedTasks(NamedTuple):
    """The tasks that a member has, or is to give up."""

    active: TaskEpochs = NONE_ASSIGNED
    standby: TaskSet = NONE
    warmup: TaskSet = NONE

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)

    def are_owned(self, owned: Tasks) -> bool:
        """Whether one of these tasks is among the owned of the same kind."""
        return (
            is_owned(owned.active, self.active)
            or is_owned(owned.standby, self.standby)
            or is_owned(owned.warmup, self.warmup)
        )

    def contain(self, owned: Tasks) -> bool:
        """Whether all owned tasks are among these, of the same kind."""
        return (
            owns_only(owned.active, self.active)
            and owns_only(owned.standby, self.standby)
            and owns_only(owned.warmup, self.warmup)
        )

    def merge(self, other: AssignedTasks) -> AssignedTasks:
        """The tasks of both. Of an active task in both the other's epoch counts."""
        active = {
            key: {**self.active.get(key, {}), **other.active.get(key, {})}
            for key in dict.fromkeys((*self.active, *other.active))
        }
        return AssignedTasks(active, union(self.standby, other.standby), union(self.warmup, other.warmup))

    def without_epochs(self) -> Tasks:
        return Tasks({key: frozenset(epochs) for key, epochs in self.active.items()}, self.standby, self.warmup)


NO_TASKS = Tasks()
NO_ASSIGNED_TASKS = AssignedTasks()


class Split(NamedTuple):
    """The way from a member's tasks of one kind to those that are meant for it."""

    kept: TaskSet
    given_up: TaskSet
    added: TaskSet
    waits: bool  # for tasks that cannot be assigned yet


def task_set(rows: Iterable[tuple[str, Iterable[int]]]) -> TaskSet:
    """The set of the rows of a request or of a record."""
    return partition_set(rows)


def task_rows(tasks: Mapping[str, Iterable[int]]) -> list[tuple[str, list[int]]]:
    """The rows for an answer, in order."""
    return [(key, sorted(partitions)) for key, partitions in sorted(tasks.items())]


def union(tasks: TaskSet, other: TaskSet) -> TaskSet:
    if not tasks or not other:
        return tasks or other
    return {key: tasks.get(key, frozenset()) | other.get(key, frozenset()) for key in dict.fromkeys((*tasks, *other))}


def intersection(tasks: TaskSet, other: TaskSet) -> TaskSet:
    return {key: common for key, mine in tasks.items() if (common := mine & other.get(key, frozenset()))}


def difference(tasks: TaskSet, other: Mapping[str, Collection[int]]) -> TaskSet:
    return {key: rest for key, mine in tasks.items() if (rest := mine.difference(other.get(key, ())))}


def contains(tasks: Mapping[str, Collection[int]], task: TaskId) -> bool:
    return task.partition in tasks.get(task.subtopology_id, ())


def split(current: Mapping[str, Collection[int]], target: TaskSet, is_unreleased: IsUnreleased) -> Split:
    """The tasks of one kind that a member keeps, gives up and gets. An unreleased one is left out of those it gets."""
    mine: TaskSet = {key: frozenset(partitions) for key, partitions in current.items()}
    missing = difference(target, mine)
    added = {
        key: free
        for key, partitions in missing.items()
        if (free := frozenset(each for each in partitions if not is_unreleased(key, each)))
    }
    return Split(intersection(mine, target), difference(mine, target), added, added != missing)


def with_epochs(tasks: TaskSet, known: TaskEpochs, epoch: int) -> TaskEpochs:
    """The tasks with the epochs that are known of them, else with `epoch`."""
    return {
        key: {each: known.get(key, {}).get(each, epoch) for each in sorted(partitions)}
        for key, partitions in tasks.items()
    }


def epochs_of_rows(rows: Iterable[tuple[str, Collection[int], Collection[int] | None]], epoch: int) -> TaskEpochs:
    """The active tasks of a record: subtopology, partitions and their epochs. `epoch` is the member's, which counts for
    rows without epochs, as older brokers wrote them, and for rows with another number of them."""
    found: dict[str, dict[int, int]] = {}
    for key, partitions, epochs in rows:
        if epochs is None or len(epochs) != len(partitions):
            epochs = [epoch] * len(partitions)
        if partitions:
            found[key] = dict(zip(partitions, epochs, strict=True))
    return found


_Task = tuple[str, int]


class TaskProcesses:
    """The processes that have the tasks of a group, or are giving them up. A task has one active copy, and any number
    of others, each in a process of its own: state directories are locked by process.

    Records of a compacted log may show an active task with two members for a moment: the later
    one counts, and the removal of the earlier one leaves it alone, for its process is another.
    Source: org.apache.kafka.coordinator.group.streams.StreamsGroup (currentActiveTaskToProcessId and its kin; 4.3).
    """

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
