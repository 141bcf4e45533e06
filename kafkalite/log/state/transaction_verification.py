"""Verification of transactions: a log takes the first batch of a transaction only once the coordinator has said that
the transaction includes the partition.

`begin` returns a guard, the coordinator is asked, and the append presents the guard. The first append and every marker
of the producer end the verification, so an answer that comes after a marker is worth nothing: the batch would open a
transaction that no marker ends. A guard is equal only to itself.
While the coordinator is asked, the producer may send more batches. The lowest sequence of them must be appended first.
Source: org.apache.kafka.storage.internals.log.VerificationGuard, VerificationStateEntry; KIP-890.
"""

from __future__ import annotations

from kafkalite.common.errors import UnverifiedTransaction

VERIFICATIONS_MAX = 10_000
"""In one log, about 2 MB. A client may send any producer id, and the refused ones stay until they expire."""


class VerificationGuard:
    """Identifies one verification of one producer."""

    __slots__ = ()


class VerificationSetting:
    """transaction.partition.verification.enable, shared by all logs of a broker."""

    __slots__ = ("enabled",)

    def __init__(self, *, enabled: bool = True) -> None:
        self.enabled = enabled


class _Verification:
    """`first_seen_ms` is the time of the first check for expired ones, None until then. `own_epochs`: each of the
    producer's transactions has its own epoch (transaction.version=2)."""

    __slots__ = ("epoch", "first_seen_ms", "guard", "lowest_sequence", "own_epochs")

    def __init__(self, epoch: int, sequence: int, own_epochs: bool) -> None:
        self.guard = VerificationGuard()
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.own_epochs = own_epochs
        self.first_seen_ms: int | None = None


class Verifications:
    """The pending verifications of one log, by producer id."""

    __slots__ = ("_by_producer", "setting")

    def __init__(self) -> None:
        self._by_producer: dict[int, _Verification] = {}
        self.setting = VerificationSetting()

    def __len__(self) -> int:
        return len(self._by_producer)

    def begin(
        self, producer_id: int, epoch: int, first_sequence: int, *, own_epochs: bool = False
    ) -> VerificationGuard:
        """Begins a verification, or joins the pending one, and returns its guard."""
        found = self._by_producer.get(producer_id)
        if found is None:
            if len(self._by_producer) == VERIFICATIONS_MAX:  # the oldest has probably been refused
                del self._by_producer[next(iter(self._by_producer))]
            found = self._by_producer[producer_id] = _Verification(epoch, first_sequence, own_epochs)
        elif epoch > found.epoch:
            found.epoch, found.lowest_sequence = epoch, first_sequence
        elif epoch == found.epoch:
            found.lowest_sequence = min(found.lowest_sequence, first_sequence)
        return found.guard

    def require(self, producer_id: int, guard: VerificationGuard | None) -> None:
        """Raises UnverifiedTransaction unless `guard` is the current one of the producer, or none is needed."""
        if self.setting.enabled:
            found = self._by_producer.get(producer_id)
            if found is None or found.guard is not guard:
                raise UnverifiedTransaction("Record was not part of an ongoing transaction")

    def lowest_sequence(self, producer_id: int) -> int | None:
        """The sequence that must be appended first; None without a verification."""
        found = self._by_producer.get(producer_id)
        return None if found is None else found.lowest_sequence

    def has_own_epochs(self, producer_id: int) -> bool:
        """Whether a producer of which nothing is known here begins with sequence number 0: no earlier transaction has
        its epoch, so that nothing can be missing before its first batch but a batch that was not stored."""
        found = self._by_producer.get(producer_id)
        return found is not None and found.own_epochs

    def end(self, producer_id: int) -> None:
        """Makes the guard of the producer invalid."""
        self._by_producer.pop(producer_id, None)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Drops the verifications that nothing has come of for `expiration_ms`."""
        for producer_id, found in list(self._by_producer.items()):
            if found.first_seen_ms is None:
                found.first_seen_ms = now_ms
            elif now_ms - found.first_seen_ms >= expiration_ms:
                del self._by_producer[producer_id]
