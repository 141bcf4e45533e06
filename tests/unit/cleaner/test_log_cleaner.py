"""Which log is compacted when, and what becomes of it when something goes wrong: real logs, workers that are told."""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite.cleaner.job.job import (
    Abort,
    CleaningFailed,
    CleanJob,
    CleanResult,
    CleanStats,
    Ending,
    FromWorker,
    LogLine,
    Outcome,
    Progress,
    Swapped,
)
from kafkalite.cleaner.schedule import RunOutcome
from kafkalite.cleaner.status import CleaningState
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.segment.cleaned_segment import CleanedSegment
from kafkalite.log.storage.files import Done
from tests.support.cleaner.cleaner_scene import BACKOFF_MS, SETTINGS, Scene, config, offsets, values


class TestAPass:
    def test_leaves_the_last_value_of_every_key_where_it_was(self, scene: Scene) -> None:
        log = scene.make()
        scene.fill(log, 20)
        expected, end_offset = values(log), log.end_offset
        scene.pass_time()
        assert values(log) == expected and log.end_offset == end_offset
        assert offsets(log) == [15, 16, 17, 18, 19], "the last of three keys, and the active segment"

    def test_is_written_down_and_told(self, scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        log = scene.make()
        scene.fill(log, 20)
        active = log.segments[-1].base_offset
        scene.pass_time()
        assert scene.kept() == {("orders", 0): active}
        row = scene.row()
        assert row.runs == 1 and row.last is not None and row.last.records_read > row.last.records_kept
        assert row.last_run_ms == scene.clock.wall_ms() and row.error is None
        assert (row.state, row.why_not) == (CleaningState.IDLE, "all dirty records are in the active segment")
        assert f"orders-0 is compacted up to offset {active}" in caplog.text
        assert scene.released == [("orders", 0)]
        totals = scene.cleaner.totals()
        assert totals.runs == 1 and totals.records_kept == row.last.records_kept and 0 < totals.recopy_ratio < 1

    def test_comes_only_after_the_back_off(self, scene: Scene) -> None:
        scene.fill(scene.make())
        scene.pass_time(BACKOFF_MS - 1)
        assert scene.staff.begun == []
        scene.pass_time(1)
        assert len(scene.staff.begun) == 1

    def test_is_not_for_logs_that_are_not_compacted(self, scene: Scene) -> None:
        scene.fill(scene.make(cleanup_policy=("delete",)))
        scene.pass_time()
        assert scene.staff.begun == [] and list(scene.cleaner.rows()) == []

    def test_follows_another_without_a_back_off(self, scene: Scene) -> None:
        for partition in range(5):
            scene.fill(scene.make("orders", partition))
        scene.pass_time()
        assert [row.runs for row in scene.cleaner.rows()] == [1] * 5
        assert len(scene.staff.begun) == 1

    def test_of_the_dirtiest_log_comes_first(self, scene: Scene) -> None:
        half, full = scene.make("half"), scene.make("full")
        scene.fill(half, 12)
        scene.pass_time()
        scene.fill(half, 6)
        scene.fill(full, 12)
        scene.staff.is_lazy = True
        scene.pass_time()
        assert scene.worker.job.topic == "full"
        assert scene.row("half").state is CleaningState.QUEUED and scene.row("half").why_not is None
        assert scene.row("full").state is CleaningState.CLEANING

    def test_that_had_no_room_for_all_keys_is_followed_by_another(self, scene: Scene) -> None:
        log = scene.make()
        scene.fill(log, 20, keys=20)

        def in_parts(job: CleanJob, *rest: object) -> CleanResult:
            return CleanResult(min(job.first_dirty_offset + 3, job.first_uncleanable_offset), False, CleanStats())

        scene.staff.clean = in_parts
        scene.pass_time()
        assert scene.kept() == {("orders", 0): log.segments[-1].base_offset}
        assert scene.row().runs == 6

    def test_that_does_not_come_forward_is_not_repeated_at_once(self, scene: Scene) -> None:
        scene.fill(scene.make())
        scene.staff.clean = lambda job, *rest: CleanResult(job.first_dirty_offset, False, CleanStats())
        scene.pass_time()
        assert scene.row().runs == 1
        scene.pass_time()
        assert scene.row().runs == 2


class TestWorkers:
    def test_are_as_many_as_there_are_logs_and_at_most_the_setting(self, new_scene: Callable[..., Scene]) -> None:
        scene = new_scene(log_cleaner_threads=3)
        scene.staff.is_lazy = True
        for partition in range(5):
            scene.fill(scene.make("orders", partition))
        scene.pass_time()
        assert len(scene.staff.alive) == 3
        assert len({worker.job.partition for worker in scene.staff.alive}) == 3
        assert scene.cleaner.totals().workers_busy == 3

    def test_share_memory_and_bytes_per_second(self, new_scene: Callable[..., Scene]) -> None:
        scene = new_scene(log_cleaner_threads=2, log_cleaner_io_max_bytes_per_second=1_000_000)
        scene.staff.is_lazy = True
        scene.fill(scene.make("one"))
        scene.pass_time()
        first = scene.worker
        assert first.rates == [1_000_000] and first.job.dedupe_buffer_bytes == 64 << 20
        scene.fill(scene.make("two"))
        scene.pass_time()
        second = scene.staff.alive[1]
        assert first.rates == [1_000_000, 500_000] and second.rates == [500_000]
        second.work()
        assert first.rates == [1_000_000, 500_000, 1_000_000]

    def test_go_home_when_there_is_nothing_to_do(self, scene: Scene) -> None:
        log = scene.make()
        scene.fill(log)
        scene.pass_time()
        scene.fill(log)
        scene.pass_time()
        scene.pass_time(29_999)
        assert len(scene.staff.alive) == 1
        scene.pass_time(1)
        assert scene.staff.alive == [] and scene.cleaner.totals().worker_deaths == 0
        scene.fill(log)
        scene.pass_time()
        assert scene.row().runs == 3 and len(scene.staff.begun) == 2

    def test_may_be_more_or_fewer_while_running(self, scene: Scene) -> None:
        scene.staff.is_lazy = True
        for partition in range(4):
            scene.fill(scene.make("orders", partition))
        scene.pass_time()
        scene.cleaner.reconfigure(config(log_cleaner_threads=2, log_cleaner_backoff_ms=1000))
        scene.pass_time(1000)
        assert len(scene.staff.alive) == 2
        scene.cleaner.reconfigure(config(log_cleaner_threads=1))
        assert len(scene.staff.alive) == 2, "what is under way goes on"
        scene.staff.alive[0].work()
        assert len(scene.staff.alive) == 1

    def test_speak_in_the_brokers_log(self, scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
        scene.staff.is_lazy = True
        scene.fill(scene.make())
        scene.pass_time()
        scene.worker.hear(LogLine(logging.WARNING, "kafkalite.cleaner.compaction.clean_log", "a strange thing"))
        assert ("kafkalite.cleaner.compaction.clean_log", logging.WARNING, "a strange thing") in caplog.record_tuples


class TestALogThatCannotBeCompacted:
    @pytest.fixture
    def scene(self, scene: Scene) -> Scene:
        """`bad` fails, `good` does not."""

        def clean(job: CleanJob, *rest: object) -> CleanResult:
            if job.topic == "bad":
                raise CleaningFailed("bad-0/00.log: the batch at position 0 cannot be compacted: its checksum is wrong")
            return CleanResult(job.first_uncleanable_offset, True, CleanStats())

        scene.staff.clean = clean
        for topic in ("bad", "good"):
            scene.fill(scene.make(topic))
        scene.pass_time()
        return scene

    def test_is_uncleanable_and_the_others_go_on(self, scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
        row = scene.row("bad")
        assert row.state is CleaningState.UNCLEANABLE and "its checksum is wrong" in str(row.why_not)
        assert row.error == row.why_not and row.runs == 0
        assert scene.row("good").runs == 1
        (line,) = [record for record in caplog.get_records("setup") if record.levelno == logging.ERROR]
        assert "cannot compact bad-0" in line.message and line.message.endswith("; it is uncleanable")
        totals = scene.cleaner.totals()
        assert totals.uncleanable_partitions == 1 and totals.uncleanable_bytes == row.dirty_bytes
        for _ in range(5):
            scene.pass_time()
        assert logging.ERROR not in [record.levelno for record in caplog.records], "it is not tried again"

    def test_is_tried_again_when_its_settings_change(self, scene: Scene) -> None:
        log = scene.logs.logs["bad", 0]
        log.config = TopicConfig(**SETTINGS)
        scene.staff.is_lazy = True
        scene.pass_time()
        assert scene.row("bad").state is CleaningState.UNCLEANABLE, "the same in another object"
        log.config = TopicConfig(**SETTINGS | {"segment_ms": 5})
        scene.pass_time()
        assert scene.row("bad").state is CleaningState.CLEANING

    def test_or_when_somebody_asks_for_it(self, scene: Scene) -> None:
        (outcome,) = scene.run_now("bad")
        assert "its checksum is wrong" in str(outcome.error)
        scene.staff.clean = lambda job, *rest: CleanResult(job.first_uncleanable_offset, True, CleanStats(seconds=2))
        assert scene.run_now("bad") == [RunOutcome("bad", 0, stats=CleanStats(seconds=2))]
        assert scene.row("bad").state is CleaningState.IDLE and scene.cleaner.totals().uncleanable_partitions == 0

    def test_a_batch_that_is_kept_unread_is_named(self, scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
        stats = CleanStats(unread_batches=2, first_unread="bad-0/00.log: the batch at position 7: no gzip")
        scene.staff.clean = lambda job, *rest: CleanResult(job.first_uncleanable_offset, True, stats)
        scene.run_now("bad")
        told = "2 batches are kept unread, the first: bad-0/00.log: the batch at position 7: no gzip"
        row = scene.row("bad")
        assert (row.state, row.error) == (CleaningState.IDLE, None)
        assert str(row.why_not).endswith(f"; {told}")
        assert f"bad-0: {told}" in caplog.text

    def test_a_fault_of_the_program_is_told_with_its_trace(
        self, scene: Scene, caplog: pytest.LogCaptureFixture
    ) -> None:
        def clean(job: CleanJob, *rest: object) -> CleanResult:
            raise ZeroDivisionError("of us")

        scene.staff.clean = clean
        (outcome,) = scene.run_now("bad")
        assert outcome.error == "ZeroDivisionError: of us" and "Traceback" in caplog.text
        assert scene.row("bad").state is CleaningState.UNCLEANABLE


class TestASystemThatRefuses:
    def test_is_asked_again_after_growing_pauses(self, scene: Scene) -> None:
        tries: list[int] = []

        def clean(job: CleanJob, *rest: object) -> CleanResult:
            tries.append(scene.clock.monotonic_ms())
            raise OSError(errno.ENOSPC, "No space left on device")

        scene.staff.clean = clean
        scene.fill(scene.make())
        scene.pass_time(1_200_000)
        pauses = [(b - a) // 1000 for a, b in itertools.pairwise(tries)]
        assert pauses == [15, 30, 60, 120, 240, 300, 300]
        row = scene.row()
        assert row.state is CleaningState.IDLE and row.error == "No space left on device"
        assert str(row.why_not).startswith("the last try failed; the next is in")
        scene.staff.clean = lambda job, *rest: CleanResult(job.first_uncleanable_offset, True, CleanStats())
        scene.pass_time(300_000)
        assert scene.row().runs == 1 and scene.row().error is None

    def test_somebody_who_asks_does_not_wait_for_the_pause(self, scene: Scene) -> None:
        scene.files.refusing[".log.cleaned"] = errno.ENOSPC
        scene.fill(scene.make())
        scene.pass_time()
        assert "refused" in str(scene.row().error) and scene.row().runs == 0
        scene.files.refusing.clear()
        (outcome,) = scene.run_now("orders")
        assert outcome.stats is not None and scene.row().runs == 1

    def test_a_swap_that_is_refused_is_tried_again_too(self, scene: Scene) -> None:
        log = scene.make()
        scene.fill(log)
        expected = values(log)
        scene.files.refusing[".swap"] = errno.ENOSPC
        scene.pass_time()
        assert scene.row().runs == 0 and "no space left" in str(scene.row().error)
        assert values(log) == expected and scene.leftovers() == []
        scene.files.refusing.clear()
        scene.pass_time()
        assert scene.row().runs == 1 and values(log) == expected

    def test_a_disk_that_fails_takes_its_directory_along(self, scene: Scene) -> None:
        scene.fill(scene.make())
        scene.files.refusing[".swap"] = errno.EIO
        scene.pass_time()
        scene.pass_time(0)
        assert [directory.path for directory in scene.logs.offline] == [str(scene.root)]
        assert list(scene.cleaner.rows()) == []

    def test_a_disk_that_fails_under_the_worker_does_too(self, scene: Scene) -> None:
        scene.fill(scene.make())
        scene.staff.is_lazy = True
        scene.pass_time()
        scene.worker.hear(Outcome(Ending.REFUSED, "Input/output error", errno.EIO))
        scene.pass_time(0)
        assert scene.logs.online == []

    def test_a_log_whose_flush_has_failed_is_left_alone(self, scene: Scene) -> None:
        """It would take no segment in, and the next start reads all of it."""
        log = scene.make()
        scene.fill(log)
        log.flusher.failure = "cannot flush orders-0"
        scene.pass_time()
        assert scene.staff.begun == [] and scene.row().why_not == "cannot flush orders-0"
        assert scene.run_now("orders")[0].error == "cannot flush orders-0"

    def test_a_log_that_cannot_be_looked_at_does_not_keep_the_others_waiting(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bad = scene.make("a-bad-one", min_compaction_lag_ms=1)
        scene.fill(bad)
        scene.fill(scene.make("orders"))

        def refuse(segment: object) -> int:
            raise OSError(errno.EACCES, "Permission denied")

        monkeypatch.setattr(type(bad.segments[0]), "largest_timestamp_ms", refuse)
        scene.pass_time()
        assert scene.row("orders").runs == 1

    def test_a_checkpoint_that_cannot_be_written_counts_all_the_same(
        self, scene: Scene, caplog: pytest.LogCaptureFixture
    ) -> None:
        scene.fill(scene.make())
        scene.files.refusing["cleaner-offset-checkpoint"] = errno.ENOSPC
        scene.pass_time()
        assert scene.row().runs == 1 and scene.kept() == {}
        assert "cannot checkpoint how far orders-0 is cleaned" in caplog.text
        scene.files.refusing.clear()
        scene.logs.checkpoint()
        assert scene.kept() == {("orders", 0): scene.row().first_dirty_offset}


class TestAWorkerThatDies:
    @pytest.fixture
    def scene(self, scene: Scene) -> Scene:
        scene.staff.is_lazy = True
        scene.fill(scene.make())
        scene.pass_time()
        return scene

    def test_is_followed_by_another_that_tries_once_more(self, scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
        (scene.root / "orders-0" / "00000000000000000000.log.cleaned").write_bytes(b"half")
        scene.worker.die("was killed by signal 9 (SIGKILL, perhaps because memory ran out)")
        assert scene.leftovers() == []
        assert "while it compacted orders-0; it is tried once more" in caplog.text
        assert len(scene.staff.begun) == 2 and scene.row().state is CleaningState.CLEANING
        scene.worker.work()
        assert scene.row().runs == 1 and scene.cleaner.totals().worker_deaths == 1

    def test_the_second_time_the_log_is_uncleanable(self, scene: Scene) -> None:
        scene.fill(scene.make("another"))
        for _ in range(2):
            scene.worker.die("was killed by signal 9 (SIGKILL)")
        row = scene.row()
        assert row.state is CleaningState.UNCLEANABLE
        assert row.why_not == "the cleaner process was killed by signal 9 (SIGKILL) while it compacted orders-0"
        scene.pass_time()
        assert scene.row("another").state is CleaningState.CLEANING
        assert scene.cleaner.totals().worker_deaths == 2

    def test_while_a_group_is_taken_in_does_not_disturb_that(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told: list[Done] = []
        log = scene.logs.logs["orders", 0]
        monkeypatch.setattr(type(log.swap), "replace", lambda self, cleaned, done: told.append(done))
        scene.worker.hear(CleanedSegment(0, (0,), 0, 0, 0, -1, 0))
        scene.worker.die("was killed")
        assert ("orders", 0) in scene.logs.being_cleaned, "its first segments are not to be touched yet"
        told[0](None)
        assert len(scene.staff.begun) == 2, "then it is tried again"

    def test_with_nothing_to_do_is_told(self, scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
        scene.worker.work()
        scene.worker.die("was killed by signal 15 (SIGTERM)")
        assert "the cleaner process was killed by signal 15 (SIGTERM) while it had nothing to do" in caplog.text

    def test_that_says_nothing_for_ten_minutes_is_ended(self, scene: Scene) -> None:
        for _ in range(30):
            scene.pass_time(60_000)
            scene.worker.hear(Progress())
        assert len(scene.staff.begun) == 1
        scene.pass_time(660_000)
        assert len(scene.staff.begun) == 2 and "said nothing for 6" in str(scene.row().error)


class TestAWorkerThatCannotBegin:
    def test_is_no_fault_of_the_log(self, scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
        scene.fill(scene.make())
        scene.staff.is_lazy = True
        scene.staff.stillborn = "ended with code 1: ModuleNotFoundError: No module named 'numpy'"
        scene.pass_time()
        scene.worker.die(scene.staff.stillborn)
        assert "No module named 'numpy'" in str(scene.cleaner.problem)
        row = scene.row()
        assert row.state is CleaningState.IDLE and "No module named 'numpy'" in str(row.error)
        scene.pass_time(1000)
        assert len(scene.staff.begun) == 1, "not at once"
        scene.pass_time()
        assert len(scene.staff.begun) == 2
        scene.worker.die(scene.staff.stillborn)
        scene.staff.stillborn = None
        scene.staff.is_lazy = False
        scene.pass_time(3 * BACKOFF_MS)
        assert scene.cleaner.problem is None and scene.row().runs == 1

    def test_nor_is_a_process_that_the_system_does_not_give(self, scene: Scene) -> None:
        scene.fill(scene.make())
        scene.staff.broken = OSError(errno.EAGAIN, "Resource temporarily unavailable")
        scene.pass_time()
        assert "Resource temporarily unavailable" in str(scene.row().error)
        scene.staff.broken = None
        scene.pass_time()
        assert scene.row().runs == 1


class TestALogThatChangesMeanwhile:
    @pytest.fixture
    def scene(self, scene: Scene) -> Scene:
        scene.staff.is_lazy = True
        scene.fill(scene.make(cleanup_policy=("compact", "delete"), retention_ms=-1))
        scene.pass_time()
        assert ("orders", 0) in scene.logs.being_cleaned
        return scene

    def test_a_topic_that_is_deleted_is_let_go_of_at_once(self, scene: Scene) -> None:
        scene.logs.delete("orders", 0)
        assert Abort() in scene.worker.said and ("orders", 0) not in scene.logs.being_cleaned
        assert list(scene.cleaner.rows()) == []
        scene.fill(scene.make())
        assert scene.row().runs == 0 and scene.row().last_run_ms == -1, "another log"
        assert scene.kept() == {}

    def test_whose_outcome_comes_late_it_does_not_count(self, scene: Scene) -> None:
        scene.staff.obeys = False
        worker = scene.worker
        scene.logs.delete("orders", 0)
        scene.fill(scene.make())
        worker.hear(Outcome(Ending.DONE, result=CleanResult(15, True)))
        scene.logs.checkpoint()
        assert scene.kept() == {}

    def test_a_worker_that_does_not_give_up_is_ended(self, scene: Scene) -> None:
        scene.staff.obeys = False
        scene.logs.delete("orders", 0)
        scene.pass_time()
        assert scene.staff.alive == [] and ("orders", 0) not in scene.logs.being_cleaned

    def test_records_that_are_deleted_end_the_pass(self, scene: Scene) -> None:
        log = scene.logs.logs["orders", 0]
        log.delete_records_before(10)
        scene.worker.hear(Progress())
        assert scene.worker.said[-1] == Abort()
        assert scene.row().error is None and scene.row().runs == 0
        scene.staff.is_lazy = False
        scene.pass_time()
        assert scene.row().runs == 1

    def test_a_log_that_is_cut_is_not_given_old_segments_back(self, scene: Scene) -> None:
        log = scene.logs.logs["orders", 0]
        job = scene.worker.job
        log.truncate_to(4)
        scene.worker.hear(CleanedSegment(0, (0, job.segments[1].base_offset), 0, 0, 0, -1, 0))
        assert Swapped(False) in scene.worker.said or Abort() in scene.worker.said
        assert log.end_offset == 4 and offsets(log) == [0, 1, 2, 3]

    def test_whose_outcome_comes_after_a_cut_nothing_past_the_end_counts_as_compacted(self, scene: Scene) -> None:
        log, worker, hear = scene.logs.logs["orders", 0], scene.worker, scene.worker.hear

        def cut_before_the_outcome(message: FromWorker) -> None:
            if isinstance(message, Outcome):
                log.truncate_to(4)
            hear(message)

        worker.hear = cut_before_the_outcome
        worker.work()
        assert log.end_offset == 4 and scene.kept() == {("orders", 0): 4}

    def test_a_policy_that_does_not_compact_any_more_ends_the_pass(self, scene: Scene) -> None:
        log = scene.logs.logs["orders", 0]
        log.config = TopicConfig(**SETTINGS | {"cleanup_policy": ("delete",)})
        scene.worker.hear(Progress())
        assert scene.worker.said[-1] == Abort() and ("orders", 0) not in scene.logs.being_cleaned

    def test_what_is_written_meanwhile_does_not(self, scene: Scene) -> None:
        log = scene.logs.logs["orders", 0]
        scene.fill(log, 30)
        expected = values(log)
        scene.worker.hear(Progress())
        assert Abort() not in scene.worker.said
        scene.worker.work()
        assert scene.row().runs == 1 and values(log) == expected

    def test_a_directory_that_fails_ends_the_pass(self, scene: Scene) -> None:
        scene.logs._on_io_error(str(scene.root), OSError(errno.EIO, "Input/output error"))
        scene.pass_time(0)
        assert Abort() in scene.worker.said and ("orders", 0) not in scene.logs.being_cleaned


class TestStopping:
    def test_ends_the_worker_and_removes_what_it_left(self, scene: Scene) -> None:
        scene.staff.is_lazy, scene.staff.obeys = True, False
        scene.fill(scene.make())
        scene.pass_time()
        (scene.root / "orders-0" / "00000000000000000000.log.cleaned").write_bytes(b"half")
        outcomes = scene.run_now("orders")
        asyncio.run(scene.cleaner.stop())
        assert scene.staff.alive == [] and scene.leftovers() == []
        assert [outcome.error for outcome in outcomes] == ["the broker stops"]
        assert scene.cleaner.totals().worker_deaths == 0
        scene.pass_time()
        assert len(scene.staff.begun) == 1 and scene.run_now("orders")[0].error == "the broker stops"

    def test_with_nothing_to_do_ends_the_worker_too(self, scene: Scene) -> None:
        scene.fill(scene.make())
        scene.pass_time()
        asyncio.run(scene.cleaner.stop())
        assert scene.staff.alive == []


class TestWhenItIsDisabled:
    def test_nothing_runs_and_a_start_says_so(
        self, new_scene: Callable[..., Scene], caplog: pytest.LogCaptureFixture
    ) -> None:
        scene = new_scene(log_cleaner_enable="false")
        assert "log.cleaner.enable" not in caplog.text
        scene.fill(scene.make())
        scene.cleaner.start()
        assert "log.cleaner.enable is false: topics with cleanup.policy=compact" in caplog.text
        scene.pass_time()
        assert scene.staff.begun == []
        assert scene.row().why_not == "log.cleaner.enable is false"
        assert scene.run_now("orders")[0].error == "log.cleaner.enable is false"


class TestSomebodyAsks:
    def test_whatever_the_ratio(self, scene: Scene) -> None:
        log = scene.make(min_cleanable_dirty_ratio=1)
        scene.fill(log)
        scene.pass_time()
        assert scene.row().why_not == "dirty ratio 1.00 is not above min.cleanable.dirty.ratio 1"
        (outcome,) = scene.run_now("orders")
        assert outcome.stats is not None and outcome.stats.records_kept < outcome.stats.records_read

    def test_also_for_what_is_in_the_active_segment(self, scene: Scene) -> None:
        log = scene.make(segment_bytes=1 << 20)
        scene.fill(log)
        assert scene.run_now("orders")[0].why_not == "all dirty records are in the active segment"
        outcomes = scene.run_now("orders", roll=True)
        assert outcomes[0].stats is not None and offsets(log) == [17, 18, 19]
        assert scene.run_now("orders", roll=True)[0].why_not == "nothing was written since the last run"

    def test_but_not_for_what_may_not_be_touched(self, scene: Scene) -> None:
        scene.fill(scene.make(min_compaction_lag_ms=1_000_000))
        assert scene.run_now("orders")[0].why_not == "min.compaction.lag.ms has not passed"

    def test_for_some_partitions_and_hears_when_all_are_done(self, scene: Scene) -> None:
        for partition in range(4):
            scene.fill(scene.make("orders", partition))
        scene.staff.is_lazy = True
        outcomes = scene.run_now("orders", [2, 0, 7, 2])
        assert outcomes == []
        scene.worker.work()
        assert outcomes == []
        scene.worker.work()
        assert [(one.partition, one.error is None) for one in outcomes] == [(0, True), (2, True), (7, False)]
        assert outcomes[2].error == "there is no such partition, or it is offline"
        assert scene.row("orders", 1).runs == 0

    def test_for_all_partitions_of_a_topic_or_one_that_is_not_there(self, scene: Scene) -> None:
        for partition in range(3):
            scene.fill(scene.make("orders", partition))
        assert [one.partition for one in scene.run_now("orders")] == [0, 1, 2]
        told: list[list[RunOutcome]] = []
        scene.cleaner.run_now("nobody", None, False, told.append)
        assert told == [[]]

    def test_each_in_a_turn_of_its_own_where_segments_are_rolled(self, scene: Scene) -> None:
        for partition in range(3):
            scene.fill(scene.make("orders", partition), 2)
        outcomes = scene.run_now("orders", roll=True)
        assert outcomes == []
        scene.pass_time(0)
        assert [one.stats is not None for one in outcomes] == [True] * 3

    def test_for_a_topic_that_is_not_compacted(self, scene: Scene) -> None:
        scene.make(cleanup_policy=("delete",))
        assert scene.run_now("orders")[0].error == "it is not compacted: its cleanup.policy is delete"

    def test_while_it_is_compacted_already(self, scene: Scene) -> None:
        """The cleaning under way does not know what was sealed for this one."""
        log = scene.make()
        scene.fill(log)
        scene.staff.is_lazy = True
        scene.pass_time()
        outcomes = scene.run_now("orders", roll=True)
        scene.worker.work()
        assert outcomes == [] and scene.row().state is CleaningState.CLEANING
        scene.worker.work()
        assert outcomes[0].stats is not None and offsets(log) == [17, 18, 19]

    def test_and_it_takes_as_many_passes_as_it_takes(self, scene: Scene) -> None:
        scene.fill(scene.make())

        def in_parts(job: CleanJob, *rest: object) -> CleanResult:
            end_offset = min(job.first_dirty_offset + 6, job.first_uncleanable_offset)
            return CleanResult(end_offset, end_offset == job.first_uncleanable_offset, CleanStats())

        scene.staff.clean = in_parts
        assert scene.run_now("orders")[0].stats is not None
        assert scene.row().runs == 3

    def test_whose_callback_fails_the_cleaner_goes_on(self, scene: Scene) -> None:
        scene.fill(scene.make())

        def fail(outcomes: list[RunOutcome]) -> None:
            raise ZeroDivisionError

        scene.cleaner.run_now("orders", None, False, fail)
        assert "ZeroDivisionError" in str(scene.cleaner.problem)
        scene.fill(scene.make("another"))
        scene.pass_time()
        assert scene.row("another").runs == 1


class TestTheCheckpoint:
    def test_that_is_wrong_is_written_anew(
        self, new_scene: Callable[..., Scene], caplog: pytest.LogCaptureFixture
    ) -> None:
        scene = new_scene()
        log = scene.make(min_cleanable_dirty_ratio=1)
        scene.fill(log)
        home = scene.logs.directory_of(("orders", 0))
        home.write_cleaner_offset(("orders", 0), 1000, lambda error: None)
        assert scene.kept() == {("orders", 0): 1000}
        scene.pass_time()
        assert scene.kept() == {("orders", 0): 0}
        assert "orders-0 is compacted up to offset 1000, but it has 0 to 20: all of it is dirty" in caplog.text

    def test_that_lies_before_a_start_which_retention_moved_is_nothing_to_speak_of(
        self, scene: Scene, caplog: pytest.LogCaptureFixture
    ) -> None:
        log = scene.make(min_cleanable_dirty_ratio=1, cleanup_policy=("compact", "delete"), retention_ms=-1)
        scene.fill(log)
        scene.logs.directory_of(("orders", 0)).write_cleaner_offset(("orders", 0), 3, lambda error: None)
        log.delete_records_before(7)
        scene.pass_time()
        assert scene.kept() == {("orders", 0): 7} and "all of it is dirty" not in caplog.text

    def test_outlives_a_restart(self, scene: Scene, tmp_path: Path) -> None:
        scene.fill(scene.make())
        scene.pass_time()
        first_dirty_offset = scene.row().first_dirty_offset
        scene.close()
        again = Scene(scene.root)
        try:
            assert again.row().first_dirty_offset == first_dirty_offset > 0
        finally:
            again.close()


class TestItNeverStopsUnseen:
    def test_a_fault_in_a_scan(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        scene.fill(scene.make())
        broken = True
        scan_began = scene.cleaner._health.scan_began

        def fail() -> None:
            if broken:
                raise ZeroDivisionError("in a scan")
            scan_began()

        monkeypatch.setattr(scene.cleaner._health, "scan_began", fail)
        scene.pass_time()
        assert "in a scan" in str(scene.cleaner.problem) and "Traceback" in caplog.text
        assert "in a scan" in str(scene.row().why_not)
        broken = False
        scene.pass_time()
        assert scene.row().runs == 1 and scene.cleaner.problem is None

    def test_a_fault_while_a_worker_is_heard(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        log = scene.make()
        scene.fill(log)
        scene.staff.is_lazy = True
        scene.pass_time()

        def fail(self: object, cleaned: object, done: object) -> None:
            raise ZeroDivisionError("in the swap")

        monkeypatch.setattr(type(log.swap), "replace", fail)
        scene.worker.hear(CleanedSegment(0, (0,), 0, 0, 0, -1, 0))
        assert "in the swap" in str(scene.cleaner.problem) and "Traceback" in caplog.text
        assert scene.row().state is CleaningState.UNCLEANABLE and ("orders", 0) not in scene.logs.being_cleaned
        monkeypatch.undo()
        scene.fill(scene.make("another"))
        scene.pass_time()
        scene.worker.work()
        assert scene.row("another").runs == 1

    def test_a_fault_at_the_end_of_a_pass(self, scene: Scene) -> None:
        for topic in ("one", "two"):
            scene.fill(scene.make(topic))

        def fail(key: object) -> None:
            raise ZeroDivisionError("in retention")

        scene.cleaner._released = fail
        scene.pass_time()
        assert [row.runs for row in scene.cleaner.rows()] == [1, 1]


def test_a_scan_of_many_logs_is_taken_in_turns(scene: Scene) -> None:
    for number in range(600):
        scene.make(f"topic-{number}")
    turns = 0
    call_later = scene.clock.call_later

    def count(delay_ms: float, callback: Callable[[], None]) -> object:
        nonlocal turns
        turns += delay_ms == 0
        return call_later(delay_ms, callback)

    scene.clock.call_later = count  # type: ignore[method-assign,assignment]
    scene.pass_time()
    assert turns == 5, "six turns of at most 500 steps"
