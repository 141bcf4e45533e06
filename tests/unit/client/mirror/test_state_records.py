"""State records in MirrorMaker 2's bytes."""

from __future__ import annotations

import pytest

from kafkalite.client.mirror.state_records import Checkpoint, OffsetSync, Run, heartbeat
from kafkalite.common.errors import Malformed

NOW_MS = 1_700_000_000_000


def test_an_offset_sync() -> None:
    sync = OffsetSync(("orders", 3), Run(1000, 900, 20))
    record = sync.record(NOW_MS)
    assert record.key == b"\0\6orders\0\0\0\3"
    assert record.value == (1000).to_bytes(8, "big") + (900).to_bytes(8, "big")
    assert OffsetSync.read(record.key, record.value, (("records", b"20"),)) == sync
    assert OffsetSync.read(record.key, record.value, ()).run == Run(1000, 900, 1)


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, None), (b"\0\6ord", b"\0" * 16), (b"\0\1o\0\0\0\0", b"\0" * 15), (b"\xff\xff", b"\0" * 16)],
)
def test_other_bytes_are_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(Malformed):
        OffsetSync.read(key, value, ())


def test_a_checkpoint() -> None:
    record = Checkpoint("app", ("west.orders", 1), 7, 5).record(NOW_MS)
    assert record.key == b"\0\3app\0\x0bwest.orders\0\0\0\1"
    assert record.value == b"\0\0" + (7).to_bytes(8, "big") + (5).to_bytes(8, "big") + b"\0\0"


def test_a_heartbeat() -> None:
    record = heartbeat("west", "east", NOW_MS)
    assert record.key == b"\0\4west\0\4east"
    assert record.value == b"\0\0" + NOW_MS.to_bytes(8, "big")
