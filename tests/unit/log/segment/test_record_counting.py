"""Counting a file of batches by their headers."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from kafkalite.common.errors import Malformed
from kafkalite.log.segment.record_counting import count
from kafkalite.record.batch import NewRecord, build_batch, parse_header


@pytest.mark.parametrize("value_bytes", [0, 50, 1800, 2000, 2100, 70_000])
def test_any_size_of_batch_is_counted(tmp_path: Path, value_bytes: int) -> None:
    random = Random(value_bytes)
    data = bytearray()
    offset = 0
    ends = set()
    for i in range(40):
        size = value_bytes if i % 5 else random.choice((0, 66_000))
        batch = build_batch([NewRecord(None, b"v" * size)] * random.randint(1, 3), base_offset=offset)
        offset = parse_header(batch).last_offset + 1
        data += batch
        ends.add(len(data))
    path = tmp_path / "log"
    path.write_bytes(data)
    with path.open("rb") as file:
        assert count(file.fileno(), 0, len(data)) == (offset, 0)
        for before in range(offset + 1):
            assert count(file.fileno(), 0, len(data), before) == (before, 0)
        for cut in {*range(1, 90)} - {len(data) - end for end in ends}:
            with pytest.raises(Malformed):
                count(file.fileno(), 0, len(data) - cut)
        with pytest.raises(Malformed):
            count(file.fileno(), 0, len(data) + 61)
