"""A scanned record as the API shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kafkalite.client.partition_scan import ScannedRecord
from kafkalite.console.messages.payload import SHOWN_BYTES, Format, shown
from kafkalite.record.compression import CODEC_NAMES

HEADERS_SHOWN_MAX = 100


class View(NamedTuple):
    """How records are shown: the formats of keys and values, and where they are cut (None: nowhere)."""

    key: Format = Format()
    value: Format = Format()
    limit: int | None = SHOWN_BYTES

    def expect(self, records: Sequence[ScannedRecord]) -> None:
        """These are to be shown or filtered next, or some of them, so that they are decoded together."""
        if self.key.decode is not None:
            self.key.decode.expect(one.key for one in records if one.marker is None)
        if self.value.decode is not None:
            self.value.decode.expect(one.value for one in records)

    def of(self, one: ScannedRecord) -> dict[str, Any]:
        batch = one.batch
        value = shown(one.value, self.value, self.limit)
        if one.fault is not None:
            value = {"format": "text", "text": "", "size_bytes": batch.size_bytes, "is_cut": False, "note": one.fault}
        size = len(one.key or b"") + len(one.value or b"")
        size += sum(len(name.encode()) + len(content or b"") for name, content in one.headers)
        has_producer = batch.producer_id >= 0
        return {
            "partition": one.partition,
            "offset": one.offset,
            "timestamp_ms": one.timestamp,
            "timestamp_type": "append" if batch.timestamp_type else "create",
            "key": shown(one.key, self.key if one.marker is None else Format(), self.limit),
            "value": value,
            "headers": [
                {"name": name, "value": shown(content, Format(), self.limit)}
                for name, content in one.headers[:HEADERS_SHOWN_MAX]
            ],
            "headers_total": len(one.headers),
            "producer_id": batch.producer_id if has_producer else None,
            "producer_epoch": batch.producer_epoch if has_producer else None,
            "sequence": one.sequence if one.sequence >= 0 else None,
            "is_transactional": batch.is_transactional,
            "transaction_state": one.state,
            "control": one.marker,
            "compression": CODEC_NAMES[batch.codec] if batch.codec < len(CODEC_NAMES) else str(batch.codec),
            "size_bytes": size,
            "batch": {
                "base_offset": batch.base_offset,
                "records": batch.record_count,
                "size_bytes": batch.size_bytes,
                "leader_epoch": batch.leader_epoch,
            },
        }
