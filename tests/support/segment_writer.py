"""Segments as a broker leaves them, written without one, for readers of data directories."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from kafkalite.record.batch import NewRecord, build_batch, parse_header


class Topics:
    """Segments as a broker leaves them, without a broker."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.options = {"path": str(path)}

    def directory(self, topic: str = "orders", partition: int = 0) -> Path:
        directory = self.path / f"{topic}-{partition}"
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def segment(self, base_offset: int = 0, topic: str = "orders", partition: int = 0) -> Path:
        return self.directory(topic, partition) / f"{base_offset:020d}.log"

    def write(
        self,
        *batches: list[NewRecord],
        base_offset: int = 0,
        topic: str = "orders",
        partition: int = 0,
        index: bool = True,
        padding_bytes: int = 0,
        **how: Any,
    ) -> int:
        """A segment of one batch per list, with an index entry for each but the first. Returns its end offset."""
        data = b""
        entries = b""
        offset = base_offset
        for rows in batches:
            batch = build_batch(rows, base_offset=offset, **how)
            last_offset = parse_header(batch).last_offset
            if data:
                entries += struct.pack(">ii", last_offset - base_offset, len(data))
            data += batch
            offset = last_offset + 1
        path = self.segment(base_offset, topic, partition)
        path.write_bytes(data)
        if index:
            path.with_suffix(".index").write_bytes(entries + bytes(padding_bytes))
        return offset
