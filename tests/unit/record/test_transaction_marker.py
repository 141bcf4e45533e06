"""Markers byte for byte as Kafka 3.9.1 wrote them, and control batches that are none."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.common.errors import Malformed
from kafkalite.record import transaction_marker
from kafkalite.record.batch import NewRecord, build_batch, iter_batches, stamp, stamp_log_append_time
from kafkalite.record.transaction_marker import TransactionMarker, build_marker, read_marker

GOLDEN = Path(__file__).parents[2] / "golden/inspection/kafka-3.9.1/money-0"


def test_markers_are_those_of_kafka() -> None:
    seen = set()
    for path in GOLDEN.glob("*.log"):
        for header, batch in iter_batches(path.read_bytes()):
            if header.is_control:
                marker = read_marker(batch)
                assert marker is not None
                ours = build_marker(
                    header.producer_id, header.producer_epoch, marker.coordinator_epoch, marker.timestamp_ms,
                    commit=marker.commit,
                )  # fmt: skip
                stamp(ours, header.base_offset, header.leader_epoch)
                assert ours == batch
                seen.add(marker.commit)
    assert seen == {True, False}


def control_batch(key: bytes | None, value: bytes | None) -> bytes:
    return build_batch(
        [NewRecord(key, value, (), 5)], producer_id=1, producer_epoch=0, transactional=True, control=True
    )


def test_keys_and_values_may_grow() -> None:
    batch = control_batch(struct.pack(">hhq", 1, 1, 9), struct.pack(">hiq", 1, 7, 9))
    assert read_marker(batch) == TransactionMarker(commit=True, coordinator_epoch=7, timestamp_ms=5)


def test_other_control_records_and_empty_batches_are_no_markers() -> None:
    assert read_marker(control_batch(struct.pack(">hh", 0, 2), None)) is None
    assert read_marker(build_batch([], producer_id=1, producer_epoch=0, transactional=True, control=True)) is None


@pytest.mark.parametrize(("key", "value"), [(b"?", b""), (None, None), (b"\0\0\0\0", b"\0\0\0")])
def test_a_marker_that_is_cut_off_is_malformed(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(Malformed, match=r"cut off: it has a key of \d+ bytes and a value of \d+$"):
        read_marker(control_batch(key, value))


@settings(max_examples=300)
@given(
    size=st.sampled_from([4, 6]), kind=st.integers(-1, 3), delta=st.sampled_from([0, 5]), log_append_time=st.booleans(),
    codec=st.sampled_from([0, 1]),
)  # fmt: skip
def test_the_usual_layout_is_read_as_any_other(
    size: int, kind: int, delta: int, log_append_time: bool, codec: int
) -> None:
    record = NewRecord(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 7)[:size], (), 50 + delta)
    batch = memoryview(
        build_batch([record], producer_id=1, producer_epoch=0, transactional=True, control=True, codec=codec)
    )
    if log_append_time:
        stamp_log_append_time(batch, 99)

    def outcome() -> TransactionMarker | str | None:
        try:
            return read_marker(batch)
        except Malformed:
            return "malformed"

    found = outcome()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(transaction_marker, "_BEFORE_KEY", b"never")
        assert outcome() == found
