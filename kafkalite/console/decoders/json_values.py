"""Decoded values as valid JSON.

What JSON lacks has a form of its own: bytes are {"hex": ...}, NaN and infinities text as in Protobuf's JSON, and a
field whose value cannot be told {"fault": reason, "raw": value}, so that it costs no other field.
"""

from __future__ import annotations

import json
import math
from typing import Any


def faulty(reason: str, raw: Any) -> dict[str, Any]:
    """Stands for the value of a field that cannot be told."""
    return {"fault": reason, "raw": raw}


def to_text(value: Any) -> str:
    """Raises RecursionError, MemoryError."""
    try:
        return json.dumps(value, ensure_ascii=False, default=_other, allow_nan=False)
    except ValueError:
        return json.dumps(_without_nan(value), ensure_ascii=False, default=_other)


def _other(value: Any) -> Any:
    return {"hex": bytes(value).hex()} if isinstance(value, bytes | bytearray | memoryview) else str(value)


def _without_nan(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _without_nan(each) for key, each in value.items()}
    return [_without_nan(each) for each in value] if isinstance(value, list) else value
