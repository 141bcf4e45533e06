"""Two tellings of one story, step by step: where they differ, and whether that is explained."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.compatibility.differential.engine import Explained, Step


@dataclass
class Verdict:
    """The outcome of one story: steps that are equal, steps whose difference is explained, and what is wrong."""

    equal: int
    explained: int
    faults: list[str]


def compare(ours: Sequence[Step], kafkas: Sequence[tuple[str, Any]]) -> Verdict:
    """`kafkas` are (label, answer). The explanations are those that stand in the story."""
    verdict = Verdict(0, 0, [])
    labels = [step.label for step in ours]
    if labels != [label for label, _ in kafkas]:
        verdict.faults.append(f"the steps are {labels}, at Kafka {[label for label, _ in kafkas]}")
    for step, (_, answer) in zip(ours, kafkas, strict=False):
        faults, is_explained = _judge(step, answer)
        verdict.faults += faults
        verdict.explained += is_explained and not faults
        verdict.equal += not is_explained and not faults
    return verdict


def _judge(step: Step, kafkas: Any) -> tuple[list[str], bool]:
    """The faults of a step, and whether one of its differences is explained."""
    open_paths = dict(_differences((), step.answer, kafkas))
    faults = []
    is_explained = False
    for explained in step.explained:
        matching = [path for path in open_paths if matches(path, explained)]
        if not matching:
            faults.append(f"{step.label}: no difference at {', '.join(explained.at)} any more: {explained.what}")
        for path in matching:
            del open_paths[path]
            is_explained = True
    faults += [
        f"{step.label}: {'.'.join(path) or 'answer'}: ours {_brief(ours)}, Kafka's {_brief(theirs)}"
        for path, (ours, theirs) in open_paths.items()
    ]
    return faults, is_explained


def matches(path: tuple[str, ...], explained: Explained) -> bool:
    return any(_matches_one(path, at.split(".")) for at in explained.at)


def _matches_one(path: tuple[str, ...], pattern: list[str]) -> bool:
    if not pattern:
        return not path
    if pattern[0] == "**":
        return len(pattern) == 1 or any(_matches_one(path[i:], pattern[1:]) for i in range(len(path) + 1))
    return bool(path) and fnmatch.fnmatchcase(path[0], pattern[0]) and _matches_one(path[1:], pattern[1:])


class Absent:
    """Stands for what one side has not."""

    def __repr__(self) -> str:
        return "(absent)"


ABSENT = Absent()


def _differences(path: tuple[str, ...], ours: Any, theirs: Any) -> Iterator[tuple[tuple[str, ...], tuple[Any, Any]]]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in dict.fromkeys([*ours, *theirs]):
            yield from _differences((*path, key.replace(".", "_")), ours.get(key, ABSENT), theirs.get(key, ABSENT))
    elif isinstance(ours, list) and isinstance(theirs, list):
        for index in range(max(len(ours), len(theirs))):
            pair = (each[index] if index < len(each) else ABSENT for each in (ours, theirs))
            yield from _differences((*path, str(index)), *pair)
    elif ours is not theirs and ours != theirs and not _says_more(path, ours, theirs):
        yield path, (ours, theirs)


def _says_more(path: tuple[str, ...], ours: Any, theirs: Any) -> bool:
    """kafkalite may say why where Kafka leaves the message out; not the other way round."""
    return path[-1:] == ("error_message",) and ours == "<message>" and theirs in (None, "")


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 300 else text[:300] + "..."
