"""Transactions in a log: its files against those that Kafka 3.9.1 wrote, and what is known of aborted ones."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from kafkalite.common.errors import ErrorCode, KafkaError, StorageError, UnverifiedTransaction
from kafkalite.log.index.transaction_index import AbortedTxn
from kafkalite.log.state.producer_snapshots import decode_snapshot
from kafkalite.log.storage.files import Files
from kafkalite.record.batch import NewRecord, build_batch, iter_batches, stamp
from kafkalite.record.compression import GZIP
from tests.support.log.transactional_batches import end, send
from tests.unit.log.conftest import START_MS, Disk

GOLDEN = Path(__file__).parents[3] / "golden"


YEARS_MS = 9_000_000_000_000
MONEY = {"segment_bytes": 1500, "index_interval_bytes": 100, "segment_index_bytes": 1200}
OVERLAPPING = {"segment_bytes": 700, "index_interval_bytes": 150, "segment_index_bytes": 1200, "segment_ms": YEARS_MS}


@pytest.mark.parametrize(
    ("folder", "settings"),
    [("inspection/kafka-3.9.1/money-0", MONEY), ("log/transactions-3.9.1/money-0", OVERLAPPING)],
    ids=["one after another", "overlapping"],
)
def test_the_files_are_those_of_kafka(disk: Disk, folder: str, settings: dict[str, object]) -> None:
    golden = GOLDEN / folder
    log = disk.open(**settings).log
    for path in sorted(golden.glob("*.log")):
        for header, stored in iter_batches(path.read_bytes()):
            batch = bytearray(stored)
            stamp(batch, 0, -1)
            now_ms = header.max_timestamp
            if header.is_control:
                log.append(memoryview(batch), header.leader_epoch, now_ms, trusted=True)
                continue
            guard = log.producers.begin_verification(header.producer_id, header.producer_epoch, header.base_sequence)
            log.append(memoryview(batch), header.leader_epoch, now_ms, transactional=True, guard=guard)
    log.close()
    written = {path.name for path in golden.iterdir()} - {"partition.metadata"}
    assert written == {*disk.names()} - {"partition.metadata", "kafkalite-record-counts"}
    for name in written:
        ours, theirs = (disk.directory / name).read_bytes(), (golden / name).read_bytes()
        if name.endswith(".snapshot"):  # Kafka's order is that of a hash map
            assert sorted(decode_snapshot(ours)[0]) == sorted(decode_snapshot(theirs)[0]), name
            assert len(ours) == len(theirs)
        else:
            assert ours == theirs, name


@pytest.mark.parametrize("clean", [True, False])
def test_fetches_are_answered_as_by_kafka(disk: Disk, clean: bool) -> None:
    """From each offset of a directory that Kafka wrote: how far, how many bytes, and which aborted transactions."""
    for path in (GOLDEN / "log/transactions-3.9.1/money-0").iterdir():
        (disk.directory / path.name).write_bytes(path.read_bytes())
    log = disk.open(clean=clean, **OVERLAPPING).log
    told = json.loads((GOLDEN / "log/transactions-3.9.1/fetches.json").read_text())
    assert len(told) > 150
    surpluses = 0
    for offset, max_bytes, stable_offset, high_watermark, size_bytes, aborted in told:
        limit_offset = min(log.producers.first_unstable_offset, log.end_offset)
        assert (limit_offset, log.end_offset) == (stable_offset, high_watermark)
        region = log.read(offset, max_bytes, limit_offset)
        assert (region.size if region is not None else 0) == size_bytes, offset
        if region is None:
            assert aborted == []
            continue
        found = [[txn.producer_id, txn.first_offset] for txn in log.transactions.aborted_in(region, offset)]
        surplus = [txn for txn in aborted if txn not in found]
        assert found == [txn for txn in aborted if txn not in surplus]
        # where an index entry is right at the end, Kafka may take the next one for the bound
        last_offset = max((header.last_offset for header, _ in iter_batches(region.read())), default=offset)
        assert all(first_offset > last_offset for _, first_offset in surplus)
        surpluses += len(surplus)
    assert surpluses < 10


def test_aborted_transactions_are_found_by_any_offset_in_them(disk: Disk) -> None:
    log = disk.open(segment_bytes=300)
    for round_ in range(6):
        send(log, 1, f"a{round_}")
        send(log, 2, f"b{round_}")
        end(log, 1, commit=round_ % 2 == 0)
        end(log, 2, commit=False)
    assert len(log.log.segments) > 3
    every = [txn for segment in log.log.segments for txn in segment.txn_index.all()]
    assert every[:3] == [AbortedTxn(2, 1, 3, 4), AbortedTxn(1, 4, 6, 5), AbortedTxn(2, 5, 7, 8)]
    transactions = log.log.transactions
    for offset in range(log.log.end_offset):
        for upper_bound in range(offset + 1, log.log.end_offset + 1):
            wanted = [txn for txn in every if txn.last_offset >= offset and txn.first_offset < upper_bound]
            assert transactions.aborted(offset, upper_bound) == wanted
        region = log.log.read(offset, 150, log.log.end_offset)
        assert region is not None
        last = [header.last_offset for header, _ in iter_batches(region.read())][-1]
        found = transactions.aborted_in(region, offset)
        assert {txn for txn in every if txn.last_offset >= offset and txn.first_offset <= last} <= set(found)
        assert all(txn.first_offset <= last + 3 for txn in found), "not all up to the end of the log"


def test_a_log_without_aborted_transactions_opens_no_file_for_them(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    log = disk.open(segment_bytes=300)
    for _ in range(5):
        send(log, 1, "a")
        end(log, 1, commit=True)
    log = disk.restart(log)
    region = log.log.read(0, 1000, log.log.end_offset)
    assert region is not None
    opened: list[str] = []
    monkeypatch.setattr(disk.files, "open", lambda path, flags: opened.append(path))
    assert log.log.transactions.aborted_in(region, 0) == []
    assert opened == []


def test_behind_the_last_aborted_transaction_its_index_is_read_once(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = disk.open()
    send(log, 1, "a")
    end(log, 1, commit=False)
    log.write("plain")
    log.log.close()
    opened: list[str] = []
    monkeypatch.setattr(
        disk.files, "open", lambda path, flags: opened.append(path) or Files.open(disk.files, path, flags)
    )
    log = disk.open()
    for _ in range(3):
        assert log.log.transactions.aborted(2, 3) == []
    assert opened.count(str(disk.file(0, ".txnindex"))) == 1
    assert log.log.transactions.aborted(1, 2) == [AbortedTxn(1, 0, 1, 2)]


@pytest.mark.parametrize("kill", [False, True])
def test_open_and_aborted_transactions_outlive_the_broker(disk: Disk, kill: bool) -> None:
    log = disk.open(segment_bytes=300)
    for producer in (1, 2, 3):
        send(log, producer, "x" * 50)
    end(log, 2, commit=False, coordinator_epoch=4)
    before = log.log.producers.active()
    log = disk.kill(log) if kill else disk.restart(log)
    producers = log.log.producers
    assert producers.active() == before
    assert producers.ongoing == {0: 1, 2: 3} and producers.first_unstable_offset == 0
    assert log.log.transactions.aborted(0, 4) == [AbortedTxn(2, 1, 3, 0)]
    send(log, 1, "more")
    end(log, 1, commit=False)
    assert producers.first_unstable_offset == 2
    assert log.log.transactions.aborted(4, 5) == [AbortedTxn(1, 0, 5, 2)]


def test_a_truncation_opens_a_transaction_again(disk: Disk) -> None:
    log = disk.open(segment_bytes=300)
    send(log, 1, "x" * 50)
    send(log, 2, "x" * 50)
    end(log, 1, commit=False)
    end(log, 2, commit=False)
    log.log.truncate_to(3)
    assert log.log.producers.ongoing == {1: 2}
    assert log.log.transactions.aborted(0, 9) == [AbortedTxn(1, 0, 2, 1)]
    log.log.truncate_to(2)
    assert log.log.producers.ongoing == {0: 1, 1: 2}
    assert log.log.transactions.aborted(0, 9) == []
    assert log.log.producers.first_unstable_offset == 0


def test_an_abort_that_cannot_be_indexed_leaves_the_transaction_open(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = disk.open()
    send(log, 1, "a")

    def refuse(txn: AbortedTxn) -> bytes:
        raise OSError(errno.EIO, "no")

    with monkeypatch.context() as patched:
        patched.setattr("kafkalite.log.index.transaction_index.encode_entry", refuse)
        with pytest.raises(StorageError):
            end(log, 1, commit=False)
    assert log.log.producers.first_unstable_offset == 0
    assert log.log.end_offset == log.log.flusher.ack_offset == 2, "the marker is in the log"
    end(log, 1, commit=False)
    assert log.log.transactions.aborted(0, 9) == [AbortedTxn(1, 0, 2, 3)]
    assert disk.kill(log).log.transactions.aborted(0, 9) == [AbortedTxn(1, 0, 1, 2)], "rebuilt from the first marker"


@pytest.mark.parametrize(
    ("epoch", "coordinator_epoch", "code"),
    [(4, 9, ErrorCode.INVALID_PRODUCER_EPOCH), (5, 6, ErrorCode.TRANSACTION_COORDINATOR_FENCED)],
)
def test_a_marker_of_the_past_is_refused(disk: Disk, epoch: int, coordinator_epoch: int, code: ErrorCode) -> None:
    log = disk.open()
    send(log, 1, "a", epoch=5)
    end(log, 1, commit=True, epoch=5, coordinator_epoch=7)
    send(log, 1, "b", epoch=5)
    with pytest.raises(KafkaError) as raised:
        end(log, 1, commit=True, epoch=epoch, coordinator_epoch=coordinator_epoch)
    assert raised.value.code == code
    assert log.log.end_offset == 3
    end(log, 1, commit=True, epoch=6, coordinator_epoch=7)
    producer = log.log.producers.get(1)
    assert producer is not None
    assert (producer.epoch, producer.last_sequence, producer.txn_first_offset) == (6, -1, -1)


def test_a_marker_without_a_transaction_is_appended(disk: Disk) -> None:
    log = disk.open()
    assert end(log, 1, commit=False).base_offset == 0
    assert log.log.transactions.aborted(0, 9) == [] and log.log.producers.get(1) is not None


def test_a_groups_offsets_have_no_sequence_and_need_their_transaction(disk: Disk) -> None:
    log = disk.open()

    def commit(epoch: int = 0, guard: object = None, *, transactional: bool = True) -> None:
        batch = build_batch(
            [NewRecord(b"k", b"v")], producer_id=1, producer_epoch=epoch, base_sequence=0, transactional=transactional
        )
        log.log.append(memoryview(batch), 0, START_MS, trusted=True, guard=guard)  # type: ignore[arg-type]

    with pytest.raises(KafkaError):
        commit()
    commit(guard=log.log.producers.begin_verification(1, 0, 0))
    commit()
    with pytest.raises(KafkaError) as raised:
        commit(transactional=False)
    assert raised.value.code == ErrorCode.INVALID_TXN_STATE
    end(log, 1, commit=True, epoch=1)
    with pytest.raises(KafkaError) as raised:
        commit()
    assert raised.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.log.end_offset == 3


def test_a_marker_is_never_compressed_and_takes_the_logs_time(disk: Disk) -> None:
    log = disk.open(compression_type="gzip", message_timestamp_type="LogAppendTime")
    send(log, 1, "a" * 100)
    disk.clock.advance(50)
    end(log, 1, commit=True)
    region = log.log.read(0, 10_000, log.log.end_offset)
    assert region is not None
    data, marker = [header for header, _ in iter_batches(region.read())]
    assert (data.codec, data.is_transactional, marker.codec) == (GZIP, True, 0)
    assert (marker.timestamp_type, marker.max_timestamp) == (1, START_MS + 50)
    assert log.log.producers.active()[0].last_timestamp_ms == START_MS + 50


def test_a_transactional_batch_needs_a_transactional_id(disk: Disk) -> None:
    log = disk.open()
    batch = build_batch([NewRecord(b"k", b"v")], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    with pytest.raises(KafkaError) as raised:
        log.append(batch)
    assert raised.value.code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_batch_that_is_not_verified_stays_as_it_came(disk: Disk) -> None:
    """It is appended later, so LogAppendTime must not be stamped into it yet."""
    log = disk.open(message_timestamp_type="LogAppendTime")
    batch = build_batch([NewRecord(b"k", b"v")], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    came = bytes(batch)
    with pytest.raises(UnverifiedTransaction):
        log.log.append(memoryview(batch), 0, START_MS, transactional=True)
    assert batch == came
    guard = log.log.producers.begin_verification(1, 0, 0)
    assert log.log.append(memoryview(batch), 0, START_MS, transactional=True, guard=guard).base_offset == 0


@pytest.mark.parametrize("clean", [True, False])
def test_a_directory_of_kafka_is_adopted_with_its_transactions(disk: Disk, clean: bool) -> None:
    for path in (GOLDEN / "inspection/kafka-3.9.1/money-0").iterdir():
        (disk.directory / path.name).write_bytes(path.read_bytes())
    log = disk.open(clean=clean, **MONEY).log
    assert log.producers.ongoing == {60: 5} and log.producers.first_unstable_offset == 60
    assert [(one.producer_id, one.epoch, one.last_sequence) for one in log.producers.active()] == [
        (3, 0, 23), (4, 0, 23), (5, 0, 0)
    ]  # fmt: skip
    assert log.transactions.aborted(8, 21) == [AbortedTxn(3, 5, 9, 10), AbortedTxn(3, 20, 24, 25)]
    assert log.transactions.aborted(36, 38) == [AbortedTxn(4, 35, 39, 40)], "its marker is in the next segment"
    assert log.transactions.aborted(55, 61) == []
