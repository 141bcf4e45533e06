"""Random lives of a transactional id: whatever producers, time, disk and markers do, promises are kept."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kafkalite.common.errors import ErrorCode
from kafkalite.coordinator.transaction.transaction_state import COMPLETED_AS, ENTERED_FROM, TransactionState
from tests.support.transaction_world import CLICKS, ORDERS, TIMEOUT_MS, TransactionWorld, stored_metadata

FAULTS = [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR]


class TransactionalIdLife(RuleBasedStateMachine):
    """Two producers of one id; each remembers the (id, epoch) that it was given last, and whether it bumps."""

    @initialize(epoch=st.sampled_from([0, 32_760]))
    def begin(self, epoch):
        self.world = TransactionWorld()
        self.world.init()
        self.world.with_epoch(epoch)
        self.producers = {"a": (1000, epoch), "b": None}
        self.outcomes = {}  # (id, epoch) of markers -> commit

    def keep_markers(self):
        for _, producer_id, epoch, commit in self.world.marked:
            known = self.outcomes.setdefault((producer_id, epoch), commit)
            assert known == commit, "two outcomes under one epoch and no transaction between, or not what was promised"
        self.world.marked.clear()

    @rule(who=st.sampled_from("ab"), goes_on=st.booleans())
    def starts(self, who, goes_on):
        result = self.world.init(expected=self.producers[who] if goes_on else None)
        if result is not None and not result.error:
            self.producers[who] = (result.producer_id, result.producer_epoch)

    @rule(who=st.sampled_from("ab"), partition=st.sampled_from([ORDERS, CLICKS]))
    def adds(self, who, partition):
        if self.producers[who] is None:
            return
        error = self.world.add(partition, ids=self.producers[who])
        if error == ErrorCode.NONE:
            self.outcomes.pop(self.producers[who], None)  # another transaction under the same epoch
            assert partition in self.world.transaction.partitions
            assert self.producers[who] == self.world.ids_in_use

    @rule(who=st.sampled_from("ab"), commit=st.booleans(), version=st.sampled_from([0, 2, 2]))
    def ends(self, who, commit, version):
        if self.producers[who] is None:
            return
        was, ids = self.world.state, self.producers[who]
        result = self.world.end(commit=commit, ids=ids, version=version)
        if result is None or result.error:
            return
        self.keep_markers()
        assert self.outcomes.setdefault((ids[0], ids[1] + (version == 2)), commit) == commit
        assert self.world.state in ("PrepareCommit", "CompleteCommit") if commit else ("PrepareAbort", "CompleteAbort")
        if version == 2:
            assert (result.producer_id, result.producer_epoch) == (ids[0], ids[1] + 1) or (
                result.producer_id > ids[0] and result.producer_epoch == 0
            )
            self.producers[who] = (result.producer_id, result.producer_epoch)
        elif was == "Ongoing":
            assert (result.producer_id, result.producer_epoch) == ids

    @rule(ms=st.sampled_from([1, TIMEOUT_MS + 1]))
    def time_passes(self, ms):
        self.world.passes(ms)

    @rule(error=st.sampled_from(FAULTS))
    def disk(self, error):
        self.world.refuses = error

    @rule(dawdles=st.booleans())
    def log_dawdles(self, dawdles):
        if not self.world.held:
            self.world.dawdles = dawdles

    @precondition(lambda self: self.world.held)
    @rule(error=st.sampled_from(FAULTS))
    def log_answers(self, error):
        if not error:
            self.note_logged()
        self.world.log_answers(error)

    def note_logged(self):
        """The log has the oldest append: an Ongoing one begins another transaction under its epoch."""
        metadata = stored_metadata(self.world.held[0])
        if metadata.state is TransactionState.ONGOING:
            self.outcomes.pop((metadata.producer_id, metadata.producer_epoch), None)

    @rule(writes=st.booleans())
    def markers(self, writes):
        self.world.writes_markers = writes
        self.world.write_markers()

    @rule()
    def tries_again(self):
        self.world.tries_again()

    @rule(is_written=st.booleans())
    def restarts(self, is_written):
        """Also between the write of a record and the answer to it."""
        if is_written and self.world.held:
            self.note_logged()
            self.world.log.append(stored_metadata(self.world.held[0]))
        self.world.restart()

    @invariant()
    def it_is_sound(self):
        transaction = self.world.transaction
        self.keep_markers()
        assert 0 <= transaction.producer_epoch <= 32_767
        if transaction.pending is not None:
            assert transaction.state in ENTERED_FROM[transaction.pending.state]
        if transaction.state in COMPLETED_AS:
            waits = self.world.markers or self.world.held or self.world.later
            assert waits, "nothing will ever end it"

    def teardown(self):
        world = self.world
        world.refuses, world.dawdles, world.writes_markers = ErrorCode.NONE, False, True
        while world.held:
            world.log_answers()
        world.write_markers()
        while world.later:
            world.tries_again()
        world.passes(10 * TIMEOUT_MS)
        assert world.state in ("Empty", "CompleteCommit", "CompleteAbort")
        assert not world.transaction.unmarked
        states = [metadata.state for metadata in world.log]
        epochs = [(metadata.producer_id, metadata.producer_epoch) for metadata in world.log]
        assert epochs == sorted(epochs), "an epoch never goes back"
        for before, after in pairwise(states):
            assert before in ENTERED_FROM[after]


@pytest.mark.thorough
def test_random_lives():
    run_state_machine_as_test(
        TransactionalIdLife, settings=settings(max_examples=200, stateful_step_count=40, deadline=None)
    )
