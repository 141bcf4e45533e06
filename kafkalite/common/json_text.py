"""JSON of others: one kind of error for whatever is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NoReturn


def read_json(text: str | bytes | bytearray, *, strict: bool = False, distinct: bool = False) -> Any:
    """The value of a JSON text; bytes are UTF-8, 16 or 32. With `strict` NaN and infinities, which are no JSON, are
    refused, with `distinct` objects that have a name twice. Raises ValueError, also for what is nested too deeply."""
    constant, pairs = _refuse_constant if strict else None, _distinct if distinct else None
    try:
        return json.loads(text, parse_constant=constant, object_pairs_hook=pairs)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _distinct(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice in an object")
    return found
