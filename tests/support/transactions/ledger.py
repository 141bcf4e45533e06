"""The books of a history: every batch, transaction and offset that was sent, and what may have become of it.

A transaction is committed if its EndTxn said so and was answered, and it is not if no such EndTxn was ever sent. In
between, where the answer is missing, both may be; but all of its records and offsets then share one fate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from kafkalite.common.names import ProducerIdAndEpoch, TopicPartition

GroupPartition = tuple[str, TopicPartition]


class Fate(Enum):
    """SENT: nobody knows whether it was taken. TAKEN: acknowledged. REFUSED: it must not be there."""

    SENT = auto()
    TAKEN = auto()
    REFUSED = auto()


@dataclass(eq=False)
class Transaction:
    """`asked` are the ends that were asked for and not refused (True: commit), `outcome` the one that was acknowledged.
    `seen` is what became of it where a reader could tell."""

    number: int
    producer: str
    ids: ProducerIdAndEpoch
    begun_ms: int
    timeout_ms: int
    asked: set[bool] = field(default_factory=set)
    outcome: bool | None = None
    seen: bool | None = None
    is_left: bool = False  # its producer does not go on with it

    @property
    def commits(self) -> bool | None:
        """Whether it is committed; None: it may be."""
        if self.outcome is not None:
            return self.outcome
        if True not in self.asked:
            return False
        return self.seen

    def see(self, committed: bool, where: object) -> None:
        """A reader has found this; it has to agree with everything else."""
        commits = self.commits
        assert commits is None or commits == committed, (
            f"{self} is {'' if committed else 'not '}committed in {where}, against all that is known"
        )
        self.seen = committed

    def __str__(self) -> str:
        ends = "/".join("commit" if each else "abort" for each in sorted(self.asked))
        answered = "" if self.outcome is None else ", answered"
        return f"transaction {self.number} of {self.producer} {tuple(self.ids)} ({ends or 'not ended'}{answered})"


@dataclass(eq=False)
class Batch:
    """`offset` is the first one, when it was acknowledged."""

    partition: TopicPartition
    values: list[bytes]
    data: bytes
    transaction: Transaction | None
    by: str
    fate: Fate = Fate.SENT
    offset: int | None = None

    def __str__(self) -> str:
        where = f"{self.partition[0]}-{self.partition[1]}"
        within = f" in {self.transaction}" if self.transaction else ""
        return f"{self.values} to {where}, {self.fate.name} at {self.offset}, by {self.by}{within}"


@dataclass(eq=False)
class Commit:
    """An offset that a group committed."""

    offset: int
    transaction: Transaction | None
    fate: Fate = Fate.SENT


class Ledger:
    """`batches` by partition, and `commits` by group and partition, in the order in which they were sent."""

    def __init__(self) -> None:
        self.batches: dict[TopicPartition, list[Batch]] = {}
        self.commits: dict[GroupPartition, list[Commit]] = {}
        self.transactions: list[Transaction] = []
        self._of_value: dict[bytes, Batch] = {}
        self._count = 0

    def next_number(self) -> int:
        self._count += 1
        return self._count

    def send(self, batch: Batch) -> None:
        self.batches.setdefault(batch.partition, []).append(batch)
        self._of_value.update(dict.fromkeys(batch.values, batch))

    def batch_of(self, value: bytes) -> Batch:
        batch = self._of_value.get(value)
        assert batch is not None, f"{value!r} was never sent"
        return batch

    def commit(self, group: str, partition: TopicPartition, commit: Commit) -> None:
        self.commits.setdefault((group, partition), []).append(commit)

    def offsets_allowed(self, key: GroupPartition, *, is_settled: bool) -> set[int]:
        """The offsets that the group may have: the last one for sure, or one behind it that may count.

        Unless `is_settled`, a transaction's end may not have reached its offsets yet.
        """
        allowed = set()
        for commit in reversed(self.commits.get(key, [])):
            if commit.fate is Fate.REFUSED:
                continue
            commits = True if commit.transaction is None else commit.transaction.commits
            if commits is False:
                continue
            allowed.add(commit.offset)
            if commits and commit.fate is Fate.TAKEN and (is_settled or commit.transaction is None):
                return allowed
        return allowed | {-1}

    def see_offset(self, key: GroupPartition, offset: int) -> None:
        """The group has this offset, and all transactions have ended: so it is known what became of some."""
        for commit in reversed(self.commits.get(key, [])):
            transaction = commit.transaction
            if transaction is None:
                if commit.offset == offset:
                    return
            elif commit.offset == offset:
                transaction.see(True, key)
                return
            elif commit.fate is Fate.TAKEN:
                transaction.see(False, key)
