from __future__ import annotations

from pathlib import Path

import pytest

from kafkalite.log.state.leader_epoch_cache import LeaderEpochCache
from kafkalite.log.storage.files import Files


@pytest.fixture
def epochs(tmp_path: Path) -> LeaderEpochCache:
    epochs = LeaderEpochCache(str(tmp_path / "leader-epoch-checkpoint"), Files())
    epochs.load()
    return epochs


def test_each_epoch_is_remembered_with_its_first_offset(epochs: LeaderEpochCache) -> None:
    for epoch, offset in ((0, 0), (0, 5), (2, 10), (2, 12), (5, 20)):
        epochs.assign(epoch, offset)
    assert epochs.entries() == [(0, 0), (2, 10), (5, 20)]
    assert epochs.latest == 5
    assert Path(epochs.path).read_bytes() == b"0\n3\n0 0\n2 10\n5 20\n"
    again = LeaderEpochCache(epochs.path, Files())
    again.load()
    assert again.entries() == epochs.entries()


def test_the_end_of_an_epoch_is_the_start_of_the_next_known_one(epochs: LeaderEpochCache) -> None:
    for epoch, offset in ((2, 10), (3, 15), (7, 20)):
        epochs.assign(epoch, offset)
    ends = {epoch: epochs.end_offset_for(epoch, 99) for epoch in (-1, 0, 1, 2, 3, 5, 7, 8)}
    assert ends == {
        -1: (-1, -1), 0: (0, 10), 1: (1, 10), 2: (2, 15), 3: (3, 20), 5: (3, 20), 7: (7, 99), 8: (-1, -1),
    }  # fmt: skip
    assert [epochs.epoch_at(offset) for offset in (9, 10, 14, 15, 20, 1000)] == [-1, 2, 2, 3, 7, 7]


def test_an_epoch_that_contradicts_later_entries_drops_them(epochs: LeaderEpochCache) -> None:
    for epoch, offset in ((1, 0), (3, 10), (4, 20)):
        epochs.assign(epoch, offset)
    epochs.assign(5, 10)
    assert epochs.entries() == [(1, 0), (5, 10)]
    epochs.assign(2, 30)  # an older leader again
    assert epochs.entries() == [(1, 0), (2, 30)]


def test_epochs_are_cut_with_the_log(epochs: LeaderEpochCache) -> None:
    for epoch, offset in ((1, 0), (3, 10), (4, 20)):
        epochs.assign(epoch, offset)
    epochs.truncate_from_start(15)
    assert epochs.entries() == [(3, 15), (4, 20)]
    epochs.truncate_from_end(20)
    assert epochs.entries() == [(3, 15)]
    assert epochs.latest == 3
    epochs.truncate_from_end(0)
    assert epochs.latest == -1
    assert epochs.end_offset_for(0, 5) == (-1, -1)


def test_an_epoch_that_cannot_be_written_was_not_entered(epochs: LeaderEpochCache) -> None:
    epochs.assign(1, 0)
    epochs.path = str(Path(epochs.path).parent / "gone" / "leader-epoch-checkpoint")
    with pytest.raises(OSError):
        epochs.assign(2, 10)
    assert epochs.entries() == [(1, 0)]
    assert epochs.latest == 1


def test_a_corrupt_file_counts_as_empty(epochs: LeaderEpochCache, caplog: pytest.LogCaptureFixture) -> None:
    Path(epochs.path).write_bytes(b"0\n5\n0 0\n")
    epochs.load()
    assert epochs.entries() == []
    assert epochs.path in caplog.text


def stored(epochs: LeaderEpochCache) -> list[tuple[int, int]]:
    again = LeaderEpochCache(epochs.path, Files())
    again.load()
    return again.entries()


def count_syncs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    found: list[int] = []
    monkeypatch.setattr(Files, "fsync", lambda self, fd: found.append(fd))
    return found


def test_an_election_is_on_the_disk(epochs: LeaderEpochCache, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = count_syncs(monkeypatch)
    epochs.elect(3, 10)
    assert epochs.entries() == stored(epochs) == [(3, 10)]
    assert len(synced) == 2  # the file and its directory


def test_an_election_that_is_recorded_elsewhere_waits_for_no_disk(
    epochs: LeaderEpochCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs.assign(0, 0)
    epochs.note_recorded(3, 10)
    assert epochs.is_recorded(3, 10) and not epochs.is_recorded(3, 11) and not epochs.is_recorded(4, 10)
    synced = count_syncs(monkeypatch)
    epochs.elect(3, 10)
    assert epochs.entries() == [(0, 0), (3, 10)] and epochs.latest == 3
    assert stored(epochs) == [(0, 0)] and epochs.written == 0
    assert not epochs.is_recorded(3, 10)
    epochs.assign(3, 10)  # the first batch
    assert stored(epochs) == [(0, 0), (3, 10)] and epochs.written == 3
    assert not synced


def test_an_election_without_batches_is_dropped_as_if_it_were_in_the_file(epochs: LeaderEpochCache) -> None:
    epochs.assign(0, 0)
    epochs.note_recorded(3, 10)
    epochs.elect(3, 10)
    assert epochs.truncate_from_end(10)
    assert epochs.entries() == stored(epochs) == [(0, 0)] and epochs.written == epochs.latest == 0
    epochs.assign(0, 5)
    assert epochs.entries() == stored(epochs) == [(0, 0)]


def test_an_epoch_behind_a_recorded_election_writes_both(
    epochs: LeaderEpochCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs.note_recorded(3, 10)
    epochs.elect(3, 10)
    synced = count_syncs(monkeypatch)
    epochs.assign(4, 12)
    assert epochs.entries() == stored(epochs) == [(3, 10), (4, 12)]
    assert synced


def test_an_election_at_another_offset_than_the_recorded_one_is_on_the_disk(
    epochs: LeaderEpochCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs.assign(0, 0)
    epochs.note_recorded(3, 10)
    synced = count_syncs(monkeypatch)
    epochs.elect(3, 12)
    assert epochs.entries() == stored(epochs) == [(0, 0), (3, 12)]
    assert synced
