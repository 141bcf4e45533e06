"""A filter of records in CEL, such as `value.total > 100.0 && key.startsWith("C")`.

The variables are key, value (values of JSON, or text), headers (a map of texts), topic, partition, offset, timestamp,
timestamp_ms and size. Expressions are evaluated in decoder processes, many records at a time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from kafkalite.client.partition_scan import ScannedRecord
from kafkalite.console.decoders.schema_decoder import DecoderPool, SchemaDecoder, SchemaRefused
from kafkalite.console.decoders.wire import CEL, Schema
from kafkalite.console.messages.payload import View, is_available
from kafkalite.console.request.parameters import ApiError, invalid


class Expression:
    """One filter of one search. `faults` counts records for which it failed, `fault` is the last reason."""

    def __init__(self, text: str, view: View, pool: DecoderPool) -> None:
        """Raises ApiError."""
        if not is_available(CEL):
            text = "a filter needs the package common-expression-language: pip install kafkalite[console]"
            raise ApiError(409, "REFUSED", text)
        self._view = view
        self.faults = 0
        self.fault: str | None = None
        try:
            self._decode = SchemaDecoder(pool, Schema(CEL, text))
        except SchemaRefused as fault:
            raise invalid(f"filter: {str(fault).partition(chr(10))[0]}") from None
        except OSError as fault:
            raise ApiError(503, "NO_DECODER", f"the process that filters cannot be started: {fault}") from None

    def matching(self, records: Sequence[ScannedRecord]) -> list[ScannedRecord]:
        """The records that match."""
        self._view.expect(records)
        encoded = [self._encoded(one) for one in records]
        self._decode.expect(encoded)
        return [one for one, data in zip(records, encoded, strict=True) if self._is_match(data)]

    def _is_match(self, data: bytes) -> bool:
        try:
            return self._decode(data) == "true"
        except ValueError as fault:
            self.faults += 1
            self.fault = str(fault)[:300]
            return False

    def _encoded(self, one: ScannedRecord) -> bytes:
        headers = {name: (value or b"").decode(errors="replace") for name, value in one.headers}
        key, value = self._view.texts(one)
        size = len(one.key or b"") + len(one.value or b"")
        record = {
            "key": key,
            "value": value,
            "headers": headers,
            "topic": one.topic,
            "partition": one.partition,
            "offset": one.offset,
            "timestamp_ms": one.timestamp,
            "size": size,
        }
        return json.dumps(record).encode()
