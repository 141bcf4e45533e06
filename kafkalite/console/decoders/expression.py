"""A filter in the Common Expression Language (CEL) over one record, by its Rust implementation.

CEL has neither loops nor side effects, but macros over hostile lists take time: so it runs where a slow record costs
its process. A record is a JSON object of the console's own (`messages/expressions.py`) with the texts of key and value,
which are values of JSON if they are JSON. An expression that fails for a record, such as on a field that it lacks, does
not match it.
Source: https://github.com/google/cel-spec.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

from kafkalite.common.text import read_json

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CHARS_MAX = 4_096


def compile_expression(text: str, _: str) -> Callable[[bytes], str]:
    """A function from a record to "true" or "false", which raises Exception. Raises Exception for an expression that
    cannot be parsed."""
    if len(text) > _CHARS_MAX:
        raise ValueError(f"a filter has at most {_CHARS_MAX} characters")
    sys.modules.setdefault("cel.cli", ModuleType("cel.cli"))  # its command line imports packages for 0.7 s
    program: Any = importlib.import_module("cel").compile(text)

    def decode(data: bytes) -> str:
        record = read_json(data)
        for side in ("key", "value"):
            record[side] = _value_of(record[side])
        record["timestamp"] = _EPOCH + timedelta(milliseconds=record["timestamp_ms"])
        result = program.execute(record)
        if not isinstance(result, bool):
            raise ValueError(f"the filter is no condition: it returns {str(result)[:80]!r}")
        return "true" if result else "false"

    return decode


def _value_of(text: str | None) -> Any:
    if text is None or text[:1] not in '{["-0123456789tfn':
        return text
    try:
        return read_json(text, strict=True)
    except ValueError:
        return text
