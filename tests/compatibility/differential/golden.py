"""Answers of Apache Kafka, kept as JSON: one file per family, one line per answer.

Neighbouring versions of a story with the same answers share one entry ("4-7"). Written by `--record-golden`, from a
real Kafka; read by every run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("golden")

Telling = Sequence[tuple[str, Any]]
"""(label, answer) of every step of a story."""


def plain(answer: Any) -> Any:
    """The answer as it is read back from a file."""
    return json.loads(json.dumps(answer))


def load(family: str) -> dict[tuple[str, int], Telling]:
    """(story, version) -> its steps. Empty where nothing was recorded."""
    path = FOLDER / f"{family}.json"
    if not path.exists():
        return {}
    found: dict[tuple[str, int], Telling] = {}
    for story, by_versions in json.loads(path.read_text()).items():
        for versions, steps in by_versions.items():
            for part in versions.split(","):
                first, _, last = part.partition("-")
                for version in range(int(first), int(last or first) + 1):
                    found[story, version] = [(label, answer) for label, answer in steps]
    return found


def save(family: str, tellings: Mapping[tuple[str, int], Telling]) -> None:
    """Write the family's file anew."""
    stories: dict[str, dict[int, str]] = {}
    for (story, version), steps in tellings.items():
        lines = ",\n".join(
            f"   [{json.dumps(label)},\n    {json.dumps(answer, ensure_ascii=True)}]" for label, answer in steps
        )
        stories.setdefault(story, {})[version] = f"[\n{lines}\n  ]"
    text = ",\n".join(f" {json.dumps(story)}: {{\n{_entries(told)}\n }}" for story, told in sorted(stories.items()))
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{family}.json").write_text(f"{{\n{text}\n}}\n")


def _entries(told: Mapping[int, str]) -> str:
    by_text: dict[str, list[int]] = {}
    for version in sorted(told):
        by_text.setdefault(told[version], []).append(version)
    return ",\n".join(f'  "{_ranges(versions)}": {text}' for text, versions in by_text.items())


def _ranges(versions: Iterable[int]) -> str:
    """[0, 1, 2, 5] is "0-2,5"."""
    spans: list[list[int]] = []
    for version in versions:
        if spans and version == spans[-1][1] + 1:
            spans[-1][1] = version
        else:
            spans.append([version, version])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
