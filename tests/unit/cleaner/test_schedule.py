"""The schedule of the cleaner: states in which it might stand still, or do a thing twice, or mistake a log."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable

import pytest

from kafkalite.cleaner import log_cleaner
from kafkalite.cleaner.job.job import Abort, CleanJob, CleanResult, CleanStats, Ending, Outcome, Swapped
from kafkalite.cleaner.schedule import CleaningQueue, RunOutcome, RunRequest
from kafkalite.cleaner.status import CleaningState
from kafkalite.common.names import TopicPartition
from kafkalite.log.directories.log_directories import CheckpointWriter
from kafkalite.log.storage.files import Files
from tests.support.cleaner.cleaner_scene import BACKOFF_MS, SETTINGS, Scene, config, offsets, values


def in_full(job: CleanJob, *rest: object) -> CleanResult:
    return CleanResult(job.first_uncleanable_offset, True, CleanStats())


def count_turns(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Grows by one for each turn of the loop that somebody asks for."""
    turns: list[None] = []
    call_later = scene.clock.call_later

    def count(delay_ms: float, callback: Callable[[], None]) -> object:
        if delay_ms == 0:
            turns.append(None)
        return call_later(delay_ms, callback)

    monkeypatch.setattr(scene.clock, "call_later", count)
    return turns


class TestALogThatIsGone:
    def test_is_not_remembered(self, scene: Scene) -> None:
        """Of a topic that is deleted while it is compacted nothing may stay: its log has its segments, and they their
        indexes."""
        scene.staff.is_lazy = True
        scene.fill(scene.make())
        scene.pass_time()
        scene.logs.delete("orders", 0)
        assert list(scene.cleaner._states) == [] and ("orders", 0) not in scene.logs.being_cleaned

    def test_does_not_speak_for_the_one_that_has_its_name(self, scene: Scene) -> None:
        """The new log has a state of its own; the old one's cleaning ends after that."""
        scene.staff.is_lazy, scene.staff.obeys = True, False
        scene.fill(scene.make())
        scene.pass_time()
        worker = scene.worker
        scene.logs.delete("orders", 0)
        log = scene.make()
        scene.fill(log)
        state = scene.cleaner._states.of(log)
        worker.hear(Outcome(Ending.DONE, result=CleanResult(15, True)))
        assert scene.cleaner._states.of(log) is state
        assert state.last_run_ms == -1 and scene.row().runs == 0


class TestAFaultOfOurOwn:
    def test_with_one_log_does_not_keep_the_others_waiting(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The bad one is the dirtiest each time, so everything would wait behind it for ever."""
        make_job = log_cleaner.make_job

        def fail_for_one(log: object, *rest: object) -> CleanJob:
            if getattr(log, "topic", "") == "zz-bad":
                raise ZeroDivisionError("of ours")
            return make_job(log, *rest)  # type: ignore[arg-type]

        monkeypatch.setattr(log_cleaner, "make_job", fail_for_one)
        for topic in ("good", "zz-bad"):
            scene.fill(scene.make(topic))
        told = scene.run_now("zz-bad")
        assert "of ours" in str(told[0].error), "and who waits for it hears of it"
        scene.pass_time()
        assert scene.row("good").runs == 1
        assert scene.row("zz-bad").state is CleaningState.UNCLEANABLE and "Traceback" in caplog.text

    def test_in_giving_a_job_out_ends_the_pass(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        scene.fill(scene.make())

        def fail(*_: object) -> None:
            raise ZeroDivisionError("of ours")

        monkeypatch.setattr(scene.cleaner._workers, "begin", fail)
        assert "of ours" in str(scene.run_now("orders")[0].error)
        assert ("orders", 0) not in scene.logs.being_cleaned
        monkeypatch.undo()
        assert scene.run_now("orders")[0].stats is not None

    def test_is_over_after_a_scan_without_one(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        """Although there is nothing to compact for weeks."""

        def fail() -> None:
            raise ZeroDivisionError("once")

        monkeypatch.setattr(scene.cleaner._health, "scan_began", fail)
        scene.pass_time()
        assert scene.cleaner.problem is not None
        monkeypatch.undo()
        scene.pass_time()
        assert scene.cleaner.problem is None


class TestASystemThatRefuses:
    def test_a_process_is_the_cleaners_trouble_and_not_a_logs(self, scene: Scene) -> None:
        scene.staff.broken = OSError(errno.EAGAIN, "Resource temporarily unavailable")
        for partition in range(3):
            scene.fill(scene.make("orders", partition))
        scene.pass_time()
        assert "Resource temporarily unavailable" in str(scene.cleaner.problem)
        assert sum(row.error is not None for row in scene.cleaner.rows()) == 1, "the others were not tried"
        scene.staff.broken = None
        scene.pass_time(10 * BACKOFF_MS)
        assert scene.cleaner.problem is None
        assert [row.runs for row in scene.cleaner.rows()] == [1] * 3

    def test_is_seen_in_the_totals(self, scene: Scene) -> None:
        scene.fill(scene.make())
        scene.staff.is_lazy = True
        scene.pass_time()
        scene.worker.hear(Outcome(Ending.REFUSED, "no space left on device", errno.ENOSPC))
        assert scene.cleaner.totals().failing_partitions == 1
        scene.staff.is_lazy = False
        scene.pass_time(10 * BACKOFF_MS)
        assert scene.cleaner.totals().failing_partitions == 0

    def test_a_log_at_which_workers_died_is_tried_again_after_a_long_while(self, scene: Scene) -> None:
        """Memory may have been short for some minutes: nobody would ask for __consumer_offsets."""
        scene.staff.is_lazy = True
        scene.fill(scene.make())
        scene.pass_time()
        for _ in range(2):
            scene.worker.die("was killed by signal 9 (SIGKILL)")
        scene.pass_time(1_800_000)
        assert scene.row().state is CleaningState.UNCLEANABLE and scene.staff.alive == []
        scene.pass_time(1_800_000 + BACKOFF_MS)
        assert scene.row().state is CleaningState.CLEANING
        scene.worker.die("was killed by signal 9 (SIGKILL)")
        assert scene.row().state is CleaningState.UNCLEANABLE and scene.staff.alive == [], "once is enough now"

    def test_to_say_whether_a_log_is_due_is_shown_while_it_lasts(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = scene.make(min_compaction_lag_ms=1)
        scene.fill(log)

        def refuse(segment: object) -> int:
            raise OSError(errno.EACCES, "Permission denied")

        monkeypatch.setattr(type(log.segments[0]), "largest_timestamp_ms", refuse)
        scene.pass_time()
        row = scene.row()
        assert "Permission denied" in str(row.error) and row.uncleanable_bytes == log.size_bytes
        assert scene.cleaner.totals().failing_partitions == 1
        monkeypatch.undo()
        scene.pass_time()
        assert scene.row().error is None and scene.row().runs == 1


class TestSettings:
    def test_that_change_again_and_again_do_not_put_off_the_scan(self, scene: Scene) -> None:
        scene.fill(scene.make())
        for _ in range(4):
            scene.pass_time(BACKOFF_MS - 1000)
            scene.cleaner.reconfigure(scene.config)
        assert scene.row().runs == 1

    def test_a_new_back_off_counts_from_now(self, scene: Scene) -> None:
        scene.fill(scene.make())
        scene.cleaner.reconfigure(config(log_cleaner_backoff_ms=1000))
        scene.pass_time(1000)
        assert scene.row().runs == 1


class TestManyPartitions:
    @pytest.fixture
    def scene(self, scene: Scene) -> Scene:
        for partition in range(100):
            scene.make("orders", partition)
        return scene

    def test_somebody_asks_for_are_taken_in_turns(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        turns = count_turns(scene, monkeypatch)
        outcomes = scene.run_now("orders")
        assert outcomes == []
        scene.pass_time(0)
        assert len(outcomes) == 100 and {one.why_not for one in outcomes} == {"the log is empty"}
        assert len(turns) >= 100 // 32

    def test_that_are_due_no_more_are_passed_over_in_turns(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each was due at the look; then one setting was changed for all."""
        for log in list(scene.logs.logs.values()):
            scene.fill(log, 4)
        scene.staff.is_lazy = True
        scene.pass_time()
        for log in scene.logs.logs.values():
            log.config = type(log.config)(**SETTINGS | {"min_cleanable_dirty_ratio": 1})
        turns = count_turns(scene, monkeypatch)
        scene.worker.hear(Outcome(Ending.DONE, result=CleanResult(0, True)))
        scene.pass_time(0)
        assert len(turns) >= 99 // 32
        assert scene.cleaner.totals().runs == 1


class TestWhatAPassReliesOn:
    """It forgets old records because there are newer ones. These must not be lost, should the power fail; and a start
    after a kill must not begin its reading where the cleaning has removed what it would have to read there."""

    def test_is_on_the_disk_and_written_down_before(self, scene: Scene) -> None:
        log = scene.make()
        scene.fill(log)
        scene.staff.is_lazy = True
        scene.pass_time()
        points = scene.kept("recovery-point-offset-checkpoint")
        assert points["orders", 0] >= scene.worker.job.first_uncleanable_offset > 0

    def test_is_not_written_down_again_where_it_is(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        scene.fill(scene.make())
        scene.logs.checkpoint()
        monkeypatch.setattr(CheckpointWriter, "write", lambda *_: pytest.fail("it is there already"))
        scene.pass_time()
        assert scene.row().runs == 1

    def test_without_that_it_does_not_begin(self, scene: Scene) -> None:
        log = scene.make()
        scene.fill(log)
        scene.files.refusing["recovery-point-offset-checkpoint"] = errno.ENOSPC
        outcomes = scene.run_now("orders")
        assert scene.staff.begun == [] and outcomes[0].error is not None
        assert "recovery-point-offset-checkpoint" in outcomes[0].error
        scene.files.refusing.clear()
        assert scene.run_now("orders")[0].stats is not None

    def test_is_brought_to_the_disk_where_a_flush_had_failed(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = scene.make()
        sync_all = Files.sync_all

        def refuse(files: Files, paths: object) -> None:
            raise OSError(errno.EMFILE, "Too many open files")

        monkeypatch.setattr(Files, "sync_all", refuse)
        scene.fill(log)
        assert log.flusher.recovery_point == 0
        assert scene.run_now("orders")[0].error is not None and scene.staff.begun == []
        monkeypatch.setattr(Files, "sync_all", sync_all)
        expected = values(log)
        assert scene.run_now("orders")[0].stats is not None
        assert log.flusher.recovery_point > 0 and values(log) == expected

    def test_a_topic_that_goes_meanwhile_is_no_trouble(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        waiting: list[Callable[[], None]] = []
        monkeypatch.setattr(CheckpointWriter, "write", lambda self, *_, done: waiting.append(done))
        scene.fill(scene.make())
        outcomes = scene.run_now("orders")
        assert scene.staff.begun == [] and outcomes == []
        scene.logs.delete("orders", 0)
        waiting.pop()()
        assert outcomes == [
            RunOutcome(
                "orders", 0, error="it is gone, is on the move to another directory, or is not compacted any more"
            )
        ]
        assert scene.cleaner.problem is None


def test_a_checkpoint_behind_a_log_that_was_cut_does_not_outlive_the_start(scene: Scene) -> None:
    """Until the first look the log may be longer again, and what is new in it would count as compacted."""
    log = scene.make(min_cleanable_dirty_ratio=1)
    scene.fill(log, 20)
    scene.pass_time()
    scene.logs.directory_of(("orders", 0)).write_cleaner_offset(("orders", 0), 30, lambda error: None)
    scene.close()
    again = Scene(scene.root)
    try:
        log = again.logs.logs["orders", 0]
        again.fill(log, 20)
        assert again.row().first_dirty_offset <= 20
    finally:
        again.close()


def test_abort_and_swapped_for_a_job_that_is_over_do_not_meet_the_next(scene: Scene) -> None:
    log = scene.make()
    scene.fill(log)
    scene.staff.is_lazy, scene.staff.obeys = True, False
    scene.pass_time()
    worker = scene.worker
    log.config = type(log.config)(**SETTINGS | {"cleanup_policy": ("delete",)})
    scene.pass_time(5)
    worker.hear(Outcome(Ending.REFUSED, "gone", 0))
    assert worker.said.index(Abort()) == len(worker.said) - 1 and Swapped(True) not in worker.said
    log.config = type(log.config)(**SETTINGS)
    scene.staff.is_lazy = False
    scene.pass_time()
    assert scene.row().runs == 1 and offsets(log)[-1] == 19


def test_a_log_line_says_what_was_refused_in_the_systems_words(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.fill(scene.make())

    def refuse(job: CleanJob, *rest: object) -> CleanResult:
        raise OSError(errno.ENOSPC, "No space left on device", f"{job.directory}/00000000000000000000.log.cleaned")

    scene.staff.clean = refuse
    scene.pass_time()
    (line,) = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    where = scene.root / "orders-0" / "00000000000000000000.log.cleaned"
    assert line == f"cannot compact orders-0: {where}: No space left on device; it is tried again later"


def test_the_dirtiest_go_first_also_where_they_are_flushed_before(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[Callable[[], None]] = []
    monkeypatch.setattr(CheckpointWriter, "write", lambda self, *_, done: waiting.append(done))
    for number, topic in enumerate(("c", "b", "a")):
        log = scene.make(topic)
        scene.fill(log, 12)
        home = scene.logs.directory_of((topic, 0))
        home.write_cleaner_offset((topic, 0), log.segments[2 - number].base_offset, lambda error: None)
    scene.pass_time()
    assert scene.staff.begun == [] and {row.state for row in scene.cleaner.rows()} == {CleaningState.QUEUED}
    monkeypatch.undo()
    jobs: list[str] = []

    def note(job: CleanJob, *rest: object) -> CleanResult:
        jobs.append(job.topic)
        return in_full(job)

    scene.staff.clean = note
    while waiting:
        scene.logs.checkpoint()
        waiting.pop(0)()
    assert jobs == ["a", "b", "c"]


def test_many_that_somebody_asks_for_have_their_turns(scene: Scene) -> None:
    for partition in range(70):
        scene.fill(scene.make("orders", partition, segment_bytes=100), 2)
    scene.staff.clean = in_full
    scans = 0
    scan_began = scene.cleaner._health.scan_began

    def count() -> None:
        nonlocal scans
        scans += 1
        scan_began()

    scene.cleaner._health.scan_began = count  # type: ignore[method-assign]
    outcomes = scene.run_now("orders")
    scene.pass_time(0)
    assert scans <= 3, "not one after each cleaning"
    assert len(outcomes) == 70 and all(one.stats is not None for one in outcomes)
    assert len(scene.staff.begun) == 1


A, B, C = ("a", 0), ("b", 0), ("c", 0)


@pytest.fixture
def queue() -> CleaningQueue:
    return CleaningQueue()


def request(queue: CleaningQueue, key: TopicPartition) -> list[RunOutcome]:
    """The outcomes appear in the list that comes back."""
    outcomes: list[RunOutcome] = []
    queue.request(key, RunRequest([key], outcomes.extend))
    return outcomes


def take_all(queue: CleaningQueue) -> list[TopicPartition]:
    found = []
    while (entry := queue.take()) is not None:
        found.append(entry.key)
    return found


def test_requested_logs_come_first_and_then_the_filthiest(queue: CleaningQueue) -> None:
    assert set(queue.replace_due([(0.6, A), (0.9, B)])) == {A, B}
    request(queue, C)
    assert take_all(queue) == [C, B, A] and queue.is_empty


def test_a_scan_replaces_the_findings_of_the_one_before(queue: CleaningQueue) -> None:
    queue.replace_due([(0.6, A), (0.9, B)])
    request(queue, C)
    assert queue.replace_due([(0.7, A)]) == [A]
    assert take_all(queue) == [C, A]


def test_a_log_is_not_taken_twice(queue: CleaningQueue) -> None:
    queue.replace_due([(0.6, A)])
    entry = queue.take()
    assert entry is not None and queue.replace_due([(0.6, A)]) == []
    request(queue, A)
    assert queue.take() is None and not queue.is_empty
    queue.finish(entry)
    assert take_all(queue) == [A]


def test_an_entry_that_was_flushed_is_durable_until_it_is_no_longer_due(queue: CleaningQueue) -> None:
    queue.replace_due([(0.6, A), (0.9, B)])
    flushed = queue.take()
    assert flushed is not None and not flushed.is_durable
    queue.put_back(flushed, is_durable=True)
    queue.replace_due([(0.9, B), (0.6, A)])
    again = queue.take()
    assert again is not None and again.key == B and again.is_durable
    queue.finish(again)
    queue.replace_due([])
    queue.replace_due([(0.9, B)])
    assert not queue.take().is_durable  # type: ignore[union-attr]


def test_a_requested_log_that_needs_another_turn_is_first_and_a_flushed_one_last(queue: CleaningQueue) -> None:
    for key in (A, B):
        request(queue, key)
    entry = queue.take()
    assert entry is not None
    queue.put_back(entry)
    entry = queue.take()
    assert entry is not None and entry.key == A
    queue.put_back(entry, is_durable=True)
    assert take_all(queue) == [B, A]


def test_a_cleaning_answers_the_requests_that_were_there_when_it_began(queue: CleaningQueue) -> None:
    before = request(queue, A)
    entry = queue.take()
    assert entry is not None
    later = request(queue, A)
    queue.finish(entry)
    entry.answer(RunOutcome(*A, why_not="the log is empty"))
    assert [one.why_not for one in before] == ["the log is empty"] and later == []
    queue.clear("the broker stops")
    assert [one.error for one in later] == ["the broker stops"] and queue.is_empty


def test_requests_of_an_entry_that_is_put_back_are_joined_by_later_ones(queue: CleaningQueue) -> None:
    outcomes = [request(queue, A)]
    entry = queue.take()
    assert entry is not None
    outcomes.append(request(queue, A))
    queue.put_back(entry, is_durable=True)
    entry = queue.take()
    assert entry is not None and entry.is_durable
    entry.answer(RunOutcome(*A))
    assert [len(one) for one in outcomes] == [1, 1]
