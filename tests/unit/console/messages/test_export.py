"""Records as files: every record, and no batch that cannot be read passes for one."""

from __future__ import annotations

import json

import pytest

from kafkalite.client.partition_scan import ScannedRecord
from kafkalite.console.handlers.messages import json_lines, parquet
from kafkalite.console.request.parameters import ApiError
from kafkalite.record.batch import NewRecord, build_batch, parse_header
from kafkalite.record.json_lines import parse_json

HEADER = parse_header(build_batch([NewRecord(b"k", b"v")], base_offset=7))
SOUND = ScannedRecord("t", 0, 7, 1_000, b"k", b"\x9b\xc2\x9b", (("h", None),), -1, HEADER, None)
UNREADABLE = SOUND._replace(offset=8, key=None, value=None, headers=(), fault="it is cut off")


def test_lines_are_read_by_produce_and_an_unreadable_batch_is_refused_there() -> None:
    sound, unreadable = b"".join(json_lines(iter((SOUND, UNREADABLE)))).splitlines()
    assert parse_json(sound).record == NewRecord(b"k", b"\x9b\xc2\x9b", (("h", None),), 1_000)
    assert json.loads(unreadable)["error"] == "the batch at offset 8 of partition 0 cannot be read: it is cut off"
    with pytest.raises(ValueError, match='has "error"'):
        parse_json(unreadable)


def test_parquet_has_every_record_or_is_refused() -> None:
    pytest.importorskip("pyarrow")
    assert parquet(iter((SOUND,)))[:4] == b"PAR1"
    with pytest.raises(ApiError, match="offset 8 of partition 0 cannot be read"):
        parquet(iter((SOUND, UNREADABLE)))
