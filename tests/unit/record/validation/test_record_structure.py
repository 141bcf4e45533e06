"""Records that are checked in runs are refused exactly where a check of each of them refuses them."""

from __future__ import annotations

import random
import sys
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.common.errors import Malformed
from kafkalite.record.batch import HEADER_BYTES, NewRecord, build_batch
from kafkalite.record.record import check_record
from kafkalite.record.validation import record_validation
from kafkalite.record.validation.record_validation import check_structure

NOW_MS = 1_700_000_000_000
SPOILED = (0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFE, 0xFF)


def is_good(body: bytes, count: int) -> bool:
    try:
        check_structure(body, count)
    except Malformed:
        return False
    return True


def is_good_one_by_one(body: bytes, count: int) -> bool:
    end = 0
    try:
        for _ in range(count):
            end = check_record(body, end, len(body))
    except (Malformed, IndexError):
        return False
    return end == len(body)


def body_of(records: list[NewRecord]) -> bytes:
    return bytes(build_batch(records)[HEADER_BYTES:])


def draw_records(chance: random.Random) -> list[NewRecord]:
    """Some hundred records: runs of one shape, and records of varied sizes, or of one size and many shapes."""
    records: list[NewRecord] = []
    step_ms = chance.choice([0, 0, 1, 40, 2000])
    for _ in range(chance.randrange(1, 5)):
        size = chance.choice([0, 1, 9, 55, 60, 100, 300, 9000])
        key = chance.choice([None, None, b"", b"key", b"k" * 70])
        headers = chance.choice([(), (), (("h", b"x"),), (("", None), ("h" * 70, b"y" * 80)), (("h", b"x"),) * 17])
        kind = chance.choice(["run", "run", "varied", "splits"])
        for _ in range(chance.choice([1, 3, 16, 17, 40, 150, 300]) if size < 1000 else 20):
            now_ms = NOW_MS + step_ms * len(records)
            if kind == "run":
                records.append(NewRecord(key, chance.randbytes(size), headers, now_ms))
            elif kind == "varied":
                records.append(NewRecord(key, chance.randbytes(chance.randrange(size + 20)), headers, now_ms))
            else:
                cut = chance.randrange(size + 1)
                records.append(NewRecord(bytes(cut), bytes(size - cut), headers, now_ms))
    return records


@pytest.mark.parametrize("examples", [100, pytest.param(3000, marks=pytest.mark.long)])
def test_good_records_in_runs_are_taken_and_spoiled_ones_as_one_by_one(examples: int) -> None:
    settings(max_examples=examples, deadline=None)(judge_drawn)()


@given(seed=st.integers(0, 1 << 32), columns_min=st.sampled_from([2, 2, 500]))
def judge_drawn(seed: int, columns_min: int) -> None:
    with patch.object(record_validation, "_SHAPED_RECORDS_MIN", columns_min):
        judge_spoiled(random.Random(seed))


def judge_spoiled(chance: random.Random) -> None:
    records = draw_records(chance)
    body = body_of(records)
    check_structure(body, len(records))
    for _ in range(10):
        spoiled = bytearray(body)
        count = len(records)
        for _ in range(chance.choice([1, 1, 2])):
            at = chance.randrange(len(spoiled))
            match chance.randrange(8):
                case 0:
                    del spoiled[at:]
                case 1:
                    spoiled[at:at] = chance.randbytes(chance.randrange(1, 9))
                case 2:
                    count += chance.choice([-17, -1, 1, 17])
                case _:
                    spoiled[at] = chance.choice([*SPOILED, spoiled[at] ^ 1, spoiled[at] ^ 2, spoiled[at] ^ 0x80])
            if not spoiled:
                break
        assert is_good(bytes(spoiled), count) == is_good_one_by_one(bytes(spoiled), count)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "number", [0, 17, 63, 64, 199, *(pytest.param(number, marks=pytest.mark.long) for number in (1, 16, 62, 150))]
)
def test_a_run_may_break_at_any_byte(number: int) -> None:
    records = [NewRecord(b"key", b"v" * 60, (("h", b"x"), ("n", None)), NOW_MS + i * 30) for i in range(200)]
    body = body_of(records)
    start = len(body_of(records[:number])) if number else 0
    verdicts = set()
    for at in range(start, len(body_of(records[: number + 1]))):
        for byte in (*SPOILED, body[at] ^ 1, body[at] ^ 2, body[at] ^ 0x80):
            spoiled = body[:at] + bytes([byte]) + body[at + 1 :]
            verdict = is_good(spoiled, 200)
            assert verdict == is_good_one_by_one(spoiled, 200), (at - start, byte)
            verdicts.add(verdict)
    assert verdicts == {True, False}


def test_a_run_of_the_first_record_breaks_in_the_last_place() -> None:
    body = body_of([NewRecord(None, b"v" * 9, (), NOW_MS)] * 40)
    size = len(body) // 40
    for number in range(40):
        for at in range(size):
            place = number * size + at
            spoiled = body[:place] + bytes([body[place] ^ 2]) + body[place + 1 :]
            assert is_good(spoiled, 40) == is_good_one_by_one(spoiled, 40)
    assert not is_good(body, 39)
    assert not is_good(body, 41)


def test_a_negative_count_is_malformed() -> None:
    for _ in range(100):  # the shapes of good batches are kept now and then
        assert is_good(b"", 0) and not is_good(b"", -1)


@pytest.mark.parametrize("delta", [b"\x80\x00", b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01", b"\xff" * 10 + b"\x01"])
@pytest.mark.parametrize("field", ["time", "offset"])
def test_long_deltas_in_a_run_are_judged_as_alone(field: str, delta: bytes) -> None:
    deltas = delta + b"\x00" if field == "time" else b"\x00" + delta
    content = b"\x00" + deltas + b"\x01\x02v\x00"
    body = (bytes([2 * len(content)]) + content) * 100
    assert is_good(body, 100) == is_good_one_by_one(body, 100) == (len(delta) <= (10 if field == "time" else 5))


class Counted:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.alone = self.shapes = 0
        check_each, shape_of = record_validation._check_each, record_validation.shape_of

        def each(data: bytes, end: int, count: int) -> tuple[int, int]:
            self.alone += count
            return check_each(data, end, count)

        def shape(data: bytes, start: int) -> list[tuple[int, bytes]]:
            self.shapes += 1
            return shape_of(data, start)

        monkeypatch.setattr(record_validation, "_check_each", each)
        monkeypatch.setattr(record_validation, "shape_of", shape)


def test_few_records_of_runs_are_checked_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    check_structure(body_of([NewRecord(b"k", b"v" * 100, (("h", b"x"),), NOW_MS + i) for i in range(10_000)]), 10_000)
    assert counted.alone <= 10  # where offset and time deltas take one byte more
    assert counted.shapes <= 10


@pytest.mark.parametrize(("kind", "alone_max"), [("sizes", 100), ("shapes", 100), ("headers", 5000)])
def test_runs_are_seldom_sought_where_there_are_none(
    kind: str, alone_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(1)
    records = []
    for _ in range(5000):
        size = chance.randrange(20, 300) if kind == "sizes" else 50
        cut = chance.randrange(20) if kind == "shapes" else 5
        headers = (("h", None),) * 17 if kind == "headers" else ()
        records.append(NewRecord(b"k" * cut, b"v" * (size - cut), headers, NOW_MS))
    counted = Counted(monkeypatch)
    check_structure(body_of(records), len(records))
    assert counted.alone <= alone_max
    assert counted.shapes <= 4


@pytest.mark.parametrize(("count", "headers"), [(400, ()), (5000, (("h", b"x"),))], ids=["few", "headers"])
def test_numpy_is_imported_only_for_many_varied_records_without_headers(
    count: int, headers: tuple[tuple[str, bytes], ...]
) -> None:
    chance = random.Random(1)
    varied = [NewRecord(None, bytes(chance.randrange(20, 300)), headers, NOW_MS) for _ in range(count)]
    with patch.dict(sys.modules, {"kafkalite.record.columns.record_starts": None}):
        check_structure(body_of(varied), count)
        check_structure(body_of([NewRecord(b"k", b"v" * 100, headers, NOW_MS)] * 10_000), 10_000)
