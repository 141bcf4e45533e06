r"""The in-sync replicas of a partition on its leader: the committed ones, and at most one pending change.

    COMMITTED -> PENDING_EXPAND --+     a write that was refused, or overtaken by another one, leads back as well
      ^  \-----> PENDING_SHRINK --+
      +---------------------------+

A change is a conditional write to ZooKeeper. Until its outcome is known, each of the two ISRs may be the true one. So
the high watermark waits for all members of both (`maximal`), and decisions by the number of members count the committed
ones. An unknown outcome (the connection broke) keeps the change pending: the node is read, and if its version has not
moved the same write is sent again, because the lost one may still arrive. The version moves with the first of them.
Source: kafka.cluster.{PartitionState, CommittedPartitionState, PendingPartitionChange}, kafka.utils.ReplicationUtils;
KIP-497, KAFKA-14010.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from kafkalite.metadata.partition_state import IsrState, WriteIsr, WriteOutcome, target_elr
from kafkalite.replication.replica.effects import ReadIsr


class IsrPhase(Enum):
    COMMITTED = "Committed"
    PENDING_EXPAND = "PendingExpand"
    PENDING_SHRINK = "PendingShrink"


COMMITTED, PENDING_EXPAND, PENDING_SHRINK = IsrPhase

ENTERED_FROM: Mapping[IsrPhase, frozenset[IsrPhase]] = {
    COMMITTED: frozenset({COMMITTED, PENDING_EXPAND, PENDING_SHRINK}),
    PENDING_EXPAND: frozenset({COMMITTED}),
    PENDING_SHRINK: frozenset({COMMITTED}),
}


class InSyncReplicas:
    """`committed` is the latest state that is known to be written, `pending` the change that is being written.

    Invariant: `pending` is None exactly in COMMITTED, and was sent with the partition epoch of `committed`.
    """

    __slots__ = ("_in_doubt", "committed", "pending", "phase")

    def __init__(self, state: IsrState) -> None:
        self.committed = state
        self.pending: WriteIsr | None = None
        self.phase = COMMITTED
        self._in_doubt = False  # a write may still arrive

    @property
    def isr(self) -> frozenset[int]:
        """The committed ISR."""
        return self.committed.isr

    @property
    def maximal(self) -> frozenset[int]:
        """Every broker that may be in the ISR now."""
        return self.committed.isr if self.pending is None else self.committed.isr | self.pending.isr

    # --- changes

    def expand(self, broker_id: int, registration: int, min_isr: int) -> WriteIsr:
        """Adds a broker that has caught up under this registration."""
        return self._send(PENDING_EXPAND, self.isr | {broker_id}, min_isr, {broker_id: registration})

    def shrink(self, out_of_sync: frozenset[int], min_isr: int) -> WriteIsr:
        """Removes followers that lag behind; the leader is none of them."""
        return self._send(PENDING_SHRINK, self.isr - out_of_sync, min_isr, {})

    # --- outcomes

    def on_write(self, sent: WriteIsr, outcome: WriteOutcome) -> list[WriteIsr | ReadIsr]:
        """The write has ended. Effects follow if that does not complete it."""
        if sent != self.pending:
            return []  # completed meanwhile, by the state itself; another change may be pending
        if outcome is WriteOutcome.WRITTEN:
            self._commit(self._written(sent))
        elif outcome is WriteOutcome.REFUSED and not self._in_doubt:
            self._commit(self.committed)
        else:
            self._in_doubt = outcome is WriteOutcome.UNKNOWN
            return [ReadIsr(sent)]
        return []

    def on_read(self, read: ReadIsr, state: IsrState) -> list[WriteIsr | ReadIsr]:
        """The state node, read after a write that failed."""
        if read.failed != self.pending or self.on_state(state):
            return []
        if self._in_doubt:
            return [read.failed]
        self._commit(self.committed)  # every copy of the write was refused, and will be
        return []

    def on_state(self, state: IsrState) -> bool:
        """The state node as it is now, or was; True if that is news. Resolves a pending change: after another write
        with the same version none can succeed."""
        if state.partition_epoch <= self.committed.partition_epoch or state.leader_epoch != self.committed.leader_epoch:
            return False  # of a newer leader epoch: another leader is to act on it
        self._commit(state)
        return True

    def _written(self, sent: WriteIsr) -> IsrState:
        return self.committed._replace(isr=sent.isr, elr=sent.elr, partition_epoch=sent.expected_epoch + 1)

    def _send(self, phase: IsrPhase, isr: frozenset[int], min_isr: int, registrations: Mapping[int, int]) -> WriteIsr:
        state = self.committed
        assert state.leader in isr, "the leader is always in sync (KAFKA-15353)"
        self.pending = WriteIsr(
            isr, target_elr(state.isr | state.elr, isr, min_isr), state.partition_epoch, registrations
        )
        self._enter(phase)
        return self.pending

    def _commit(self, state: IsrState) -> None:
        self.committed, self.pending, self._in_doubt = state, None, False
        self._enter(COMMITTED)

    def _enter(self, phase: IsrPhase) -> None:
        assert self.phase in ENTERED_FROM[phase], f"{self.phase} -> {phase}"
        self.phase = phase
