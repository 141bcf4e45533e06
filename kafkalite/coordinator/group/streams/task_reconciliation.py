"""The next step of one member towards the tasks that are meant for it.

A member gives up what is not meant for it any more, and says so, before it gets anything new. It gets an active task
only when no process has it as active, and no task at all that another member of its process still has. So a task has
one active copy, and a process has it once. The member reaches the epoch of the target when nothing is left to give up,
and may then still wait for others.
Source: org.apache.kafka.coordinator.group.streams.CurrentAssignmentBuilder (4.3).
"""

from __future__ import annotations

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.coordinator.group.streams.streams_member import CurrentTasks, StreamsMemberState
from kafkalite.coordinator.group.streams.tasks import AssignedTasks, TaskProcesses, Tasks, split, with_epochs

_UNKNOWN_STATE = "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin."


class TaskGoal(NamedTuple):
    """The tasks that a member of this process is to reach."""

    epoch: int
    target: Tasks
    process_id: str
    processes: TaskProcesses

    def is_active_unreleased(self, subtopology_id: str, partition: int) -> bool:
        has_active = self.processes.active(subtopology_id, partition) is not None
        return has_active or self.processes.has_copy(self.process_id, subtopology_id, partition)

    def is_copy_unreleased(self, subtopology_id: str, partition: int) -> bool:
        is_here = self.processes.active(subtopology_id, partition) == self.process_id
        return is_here or self.processes.has_copy(self.process_id, subtopology_id, partition)


def reconcile(current: CurrentTasks, goal: TaskGoal, owned: Tasks | None) -> CurrentTasks:
    """The member's next step, or `current` if there is none. `owned` is None in a heartbeat that does not say it.

    Raises KafkaError(FENCED_MEMBER_EPOCH) for a member in an unknown state.
    """
    state = current.state
    if state is StreamsMemberState.STABLE:
        return current if current.epoch == goal.epoch else _next_tasks(current, current.epoch, goal, owned)
    if state is StreamsMemberState.UNREVOKED:
        if owned is None or current.pending_revocation.are_owned(owned):
            return current
        return _next_tasks(current, current.epoch + 1, goal, owned)
    if state is StreamsMemberState.UNRELEASED:
        return _next_tasks(current, current.epoch, goal, owned)
    if owned is None or not owned.is_empty:
        raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, _UNKNOWN_STATE)
    return _next_tasks(current, goal.epoch, goal, owned)


def _next_tasks(current: CurrentTasks, epoch: int, goal: TaskGoal, owned: Tasks | None) -> CurrentTasks:
    assigned, target = current.assigned, goal.target
    active = split(assigned.active, target.active, goal.is_active_unreleased)
    standby = split(assigned.standby, target.standby, goal.is_copy_unreleased)
    warmup = split(assigned.warmup, target.warmup, goal.is_copy_unreleased)
    kept = AssignedTasks(with_epochs(active.kept, assigned.active, epoch), standby.kept, warmup.kept)
    given_up = AssignedTasks(with_epochs(active.given_up, assigned.active, epoch), standby.given_up, warmup.given_up)
    if not given_up.is_empty and (owned is None or given_up.are_owned(owned)):
        return current.advance(epoch, StreamsMemberState.UNREVOKED, kept, given_up)
    added = AssignedTasks(with_epochs(active.added, {}, goal.epoch), standby.added, warmup.added)
    waits = active.waits or standby.waits or warmup.waits
    state = StreamsMemberState.UNRELEASED if waits else StreamsMemberState.STABLE
    return current.advance(goal.epoch, state, kept.merge(added))
