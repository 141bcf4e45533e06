"""Records of the common form are found good at once; all others are left to a check of each."""

from __future__ import annotations

import random
from itertools import accumulate, pairwise

import pytest

from kafkalite.record.batch import HEADER_BYTES, NewRecord, build_batch
from kafkalite.record.columns.record_starts import find_unknown
from kafkalite.record.record import check_record

NOW_MS = 1_700_000_000_000


def varied(count: int, headers: tuple[tuple[str, bytes | None], ...] = ()) -> list[NewRecord]:
    chance = random.Random(1)
    sizes = [0, 1, 57, 64, 300, 5000]
    return [
        NewRecord(chance.choice([None, b"", b"key"]), bytes(chance.choice(sizes)), headers, NOW_MS + i * 20)
        for i in range(count)
    ]


def body_of(records: list[NewRecord]) -> bytes:
    return bytes(build_batch(records)[HEADER_BYTES:])


def begins_of(body: bytes, count: int) -> list[int]:
    return list(accumulate(range(count), lambda at, _: check_record(body, at, len(body)), initial=0))


def test_records_of_the_common_form_are_known() -> None:
    body = body_of(varied(9000))
    begins = begins_of(body, 9000)
    assert find_unknown(body, 0, 9000) == ([], begins[-2], begins[-1])
    assert find_unknown(body, begins[100], 50) == ([], begins[149], begins[150])


def test_a_few_with_headers_are_unknown_and_many_not_worth_it() -> None:
    records = varied(100)
    records[7] = records[7]._replace(headers=(("h", b"x"),))
    records[99] = records[99]._replace(headers=(("h", None),))
    body = body_of(records)
    begins = begins_of(body, 100)
    assert find_unknown(body, 0, 100) == ([begins[7], begins[99]], begins[99], begins[100])
    assert find_unknown(body_of(varied(100, (("h", b"x"),))), 0, 100) is None


def test_long_records_and_torn_ones_are_not_worth_it() -> None:
    records = varied(100)
    assert find_unknown(body_of([*records, NewRecord(None, bytes(8183), (), NOW_MS)]), 0, 101) is not None
    assert find_unknown(body_of([*records, NewRecord(None, bytes(8184), (), NOW_MS)]), 0, 101) is None
    body = body_of(records)
    assert find_unknown(body, 0, 102) is None


@pytest.mark.parametrize("delta", [b"\xff" * 4 + b"\x01", b"\xff" * 5 + b"\x01"])
def test_an_offset_delta_of_six_bytes_is_not_known(delta: bytes) -> None:
    content = b"\x00\x00" + delta + b"\x01\x02v\x00"
    body = (bytes([2 * len(content)]) + content) * 20
    assert (find_unknown(body, 0, 20) is None) == (len(delta) > 5)


@pytest.mark.thorough
@pytest.mark.parametrize("count", [1, 40])
def test_no_spoiled_record_is_known(count: int) -> None:
    body = body_of([NewRecord(b"key" if i % 2 else None, b"v" * (i % 70), (), NOW_MS + i * 20) for i in range(count)])
    for place in range(len(body)):
        for byte in (0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFF, body[place] ^ 1, body[place] ^ 2):
            spoiled = body[:place] + bytes([byte]) + body[place + 1 :]
            found = find_unknown(spoiled, 0, count)
            if found is None:
                continue
            begins = list(accumulate(range(count), lambda at, _: at + hop(spoiled, at), initial=0))  # noqa: B023
            assert found[1:] == (begins[-2], begins[-1])
            for at, end in pairwise(begins):
                assert at in found[0] or check_record(spoiled, at, max(end, len(body))) == end


def hop(body: bytes, at: int) -> int:
    size = body[at]
    return 1 + (size >> 1) if size < 0x80 else 2 + ((size & 0x7F | body[at + 1] << 7) >> 1)
