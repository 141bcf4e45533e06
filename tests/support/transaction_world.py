"""A transactional id by itself: the log is a list that can refuse or dawdle, and markers are written when told."""

from __future__ import annotations

import itertools

from kafkalite.common.clock import Moment
from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import ProducerIdAndEpoch
from kafkalite.coordinator.runtime.effects import Answer, Append, SetTimer
from kafkalite.coordinator.transaction import transaction_state
from kafkalite.coordinator.transaction.transaction import Transaction
from kafkalite.coordinator.transaction.transaction_state import AllocateProducerId, SendMarkers

TIMEOUT_MS = 60_000
START_MS = 1_700_000_000_000
ORDERS, CLICKS = ("orders", 0), ("clicks", 3)


class Call:
    """A request: `result` is None while it waits."""

    def __init__(self):
        self.result = None

    def answer(self, result):
        assert self.result is None, "answered twice"
        self.result = result


def stored_metadata(effect):
    """The metadata in the record of an `Append`."""
    [(key, value)] = effect.records
    assert transaction_state.read_key(key) == "t"
    return transaction_state.read_value(value)


class TransactionWorld:
    def __init__(self):
        self.now_ms = START_MS
        self.ids = itertools.count(1000)
        self.log = []  # metadata, as stored
        self.refuses = ErrorCode.NONE
        self.dawdles = False
        self.held = []  # appends that a dawdling log has not answered
        self.later = []  # timers that run
        self.markers = []  # SendMarkers, as asked for
        self.writes_markers = True
        self.marked = []  # (partition, producer id, epoch, commit) in their order
        self.transaction = Transaction.new("t", 0, next(self.ids), TIMEOUT_MS, self.now_ms)

    @property
    def state(self):
        return self.transaction.state.value

    @property
    def ids_in_use(self):
        return self.transaction.producer_id, self.transaction.producer_epoch

    def perform(self, effects):
        for effect in effects:
            if isinstance(effect, Answer):
                effect.waiter.answer(effect.result)
            elif isinstance(effect, Append):
                self._append(effect)
            elif isinstance(effect, SetTimer):
                self.later.append(effect.key)
            elif isinstance(effect, SendMarkers):
                self.markers.append(effect)
                if self.writes_markers:
                    self.write_markers()
            else:
                raise AssertionError(effect)

    def _append(self, effect):
        if self.dawdles:
            self.held.append(effect)
        else:
            self._done(effect, self.refuses)

    def _done(self, effect, error):
        if not error:
            self.log.append(stored_metadata(effect))
        self.perform(self.transaction.on_append(effect.then, error, Moment(self.now_ms, self.now_ms)))

    def log_answers(self, error=ErrorCode.NONE):
        self._done(self.held.pop(0), error)

    def tries_again(self):
        timers, self.later = self.later, []
        for timer in timers:
            self.perform(self.transaction.on_timer(timer))

    def write_markers(self):
        """Every marker that was asked for."""
        asked, self.markers = self.markers, []
        for each in asked:
            for partition in sorted(each.partitions):
                self.marked.append((partition, each.producer_id, each.producer_epoch, each.commit))
                self.perform(self.transaction.on_marker_written(partition))

    def restart(self):
        """Another coordinator, which knows what is in the log."""
        self.held, self.later, self.markers = [], [], []
        self.dawdles, self.refuses, self.writes_markers = False, ErrorCode.NONE, True
        stored = transaction_state.read_value(transaction_state.transaction_value(self.log[-1]))
        self.transaction = Transaction("t", 0, stored)
        self.perform(self.transaction.on_loaded(self.now_ms))

    def _decide(self, decide):
        effects = decide(-1)
        if effects == [AllocateProducerId()]:
            effects = decide(next(self.ids))
        self.perform(effects)

    # --- what clients do

    def init(self, expected=None, timeout_ms=TIMEOUT_MS):
        call = Call()
        expected = ProducerIdAndEpoch(*expected) if expected else None
        self._decide(lambda new: self.transaction.init_producer_id(timeout_ms, expected, call, self.now_ms, new))
        return call.result

    def add(self, *partitions, ids=None):
        call = Call()
        self.perform(self.transaction.add_partitions(*(ids or self.ids_in_use), partitions, call, self.now_ms))
        return call.result

    def end(self, *, commit, ids=None, version=0):
        call = Call()
        ids = ids or self.ids_in_use
        self._decide(
            lambda new: self.transaction.end(
                *ids, call, self.now_ms, commit=commit, transaction_version=version, new_producer_id=new
            )
        )
        return call.result

    def commit(self, ids=None, version=0):
        return self.end(commit=True, ids=ids, version=version)

    def abort(self, ids=None, version=0):
        return self.end(commit=False, ids=ids, version=version)

    def passes(self, ms):
        self.now_ms += ms
        self.perform(self.transaction.abort_if_timed_out(self.now_ms))

    def with_epoch(self, epoch):
        """As if the id had been used often."""
        self.transaction.metadata = self.transaction.metadata._replace(producer_epoch=epoch)
        return self
