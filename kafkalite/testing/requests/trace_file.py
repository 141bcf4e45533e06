"""Recorded requests in a file: JSON lines, a head and then one for each request, with the frames in base64.

    {"trace": "kafkalite", "version": 1}
    {"began": 0, "ms": 1700000000000, "client": "127.0.0.1:5012", "api": "Produce v12", "request": "...", ...}

`ended`, `took_ms`, `response` and `left_out` are there when they are known. `api` is for readers only.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kafkalite.common.text import read_json
from kafkalite.testing.requests.recorded_request import Frames, RecordedRequest

_HEAD = {"trace": "kafkalite", "version": 1}


def write(path: Path, requests: Sequence[Frames]) -> None:
    """Raises OSError."""
    with open(path, "w", encoding="utf-8") as file:
        for line in (_HEAD, *map(_line, requests)):
            file.write(json.dumps(line) + "\n")


def read(path: Path) -> list[Frames]:
    """Raises OSError, ValueError if it is no trace."""
    with open(path, encoding="utf-8") as file:
        try:
            if read_json(file.readline()) != _HEAD:
                raise ValueError("its first line is not that of a trace")
            return [_frames(read_json(line)) for line in file]
        except (ValueError, KeyError, TypeError) as error:
            why = f"{error} is missing" if isinstance(error, KeyError) else error
            raise ValueError(f"{path} is no trace of requests: {why}") from None


def _line(frames: Frames) -> dict[str, Any]:
    recorded = RecordedRequest(frames)
    line: dict[str, Any] = {
        "began": frames.began,
        "ms": frames.wall_ms,
        "client": frames.client,
        "api": f"{recorded.api} v{recorded.version}",
        "request": b64encode(frames.request).decode(),
    }
    if frames.ended is not None:
        line |= {"ended": frames.ended, "took_ms": frames.took_ms}
    if frames.response is not None:
        line["response"] = b64encode(frames.response).decode()
    if frames.left_out:
        line["left_out"] = frames.left_out
    return line


def _frames(line: Any) -> Frames:
    if not isinstance(line, dict):
        raise ValueError(f"a request is an object, not {line!r}"[:200])
    response = line.get("response")
    return Frames(
        int(line["began"]), int(line["ms"]), str(line["client"]), b64decode(line["request"], validate=True),
        line.get("ended"), line.get("took_ms"), None if response is None else b64decode(response, validate=True),
        int(line.get("left_out", 0)),
    )  # fmt: skip
