"""Writes what the classes of Kafka 4.3's group coordinator answer, for the tests that run without Java.

python -m tests.golden.groups.make_golden_groups
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

from kafkalite.coordinator.group.consumer.member_records import records_of
from kafkalite.coordinator.group.streams import streams_records
from kafkalite.coordinator.runtime.effects import Records
from tests.compatibility.interop.java_verdicts import group_parts, streams_parts
from tests.support.drawn_groups import assignment_of_json, drawn_group, group_as_json, sizes_and_moves
from tests.support.drawn_patterns import DrawnPattern
from tests.support.drawn_streams import drawn_streams_group, drawn_topology, streams_group_as_json, topology_as_json
from tests.support.group_steps import STEPS
from tests.support.places import ROOT
from tests.support.streams_steps import STREAMS_STEPS

GOLDEN = ROOT / "tests" / "golden" / "groups"
HASHED_GROUPS = 40
ASSIGNED_GROUPS = 120
DRAWN_PATTERNS = 250
STREAMS_CASES = 60
CHOSEN_PATTERNS = [
    *(
        r"(?<n>a)",
        r"(?P<n>a)(?P<n>b)",
        r"(?P=n)",
        r"(?=a)",
        r"(?!a)",
        r"(?<=a)",
        r"(?<!a)",
        r"(?>a)",
        r"(?#a)",
        r"(?x)a",
    ),
    *(
        r"\Z",
        r"\1",
        r"\8",
        r"\0",
        r"\01",
        r"\08",
        "\\é",
        r"\_",
        r"\C",
        r"\E",
        r"\x4",
        r"\x{110000}",
        r"\u0041",
        r"\cA",
        "\\",
    ),
    *(
        "a)",
        "(a",
        "[a",
        "[]a]",
        "[^]a]",
        "[[:foo:]]",
        "[[:alpha",
        "[b-a]",
        r"[a-\d]",
        r"[\d-z]",
        "[a-b-c]",
        "[--z]",
        r"[\b]",
    ),
    *(
        r"\pL",
        r"\p{^Lu}",
        r"\p{Foo}",
        r"\p{",
        r"\p",
        r"\p{L&}",
        r"\p{Letter}",
        r"\p{lu}",
        r"\p{Cn}",
        r"\p{C}",
        r"\Qa*b\E+",
    ),
    *(
        "a**",
        "a*??",
        "a++",
        "a{2}{3}",
        "a{1001}",
        "a{2,1}",
        "a{99999999999}",
        "a{,3}",
        "a{01}",
        "{2}",
        "a{",
        "{*",
        "a{0}{1}",
    ),
    *(
        "*",
        "|*",
        "(*)",
        "^*",
        "$+",
        r"\b+",
        r"a\Q\E*",
        "a(?i)*",
        "(?)",
        "(?-)",
        "(?i-)",
        "(?ii)",
        "(?i--s:a)",
        "(?",
        "(?i",
    ),
    *(
        "(a{100}){100}",
        "(?:a*){1000}",
        "(|a)*",
        "(a|)+",
        "(?P<é>a)",
        "(?P<>x)",
        "(?P<a>",
        "(?U)a*?",
        "(?i)k",
        "(?i)[^S]",
    ),
]
TEXTS = ["", "a", "aa", "K", "\u212a", "s", "\u017f", "]", "a*b", "{", "\n", "é"]
RACKS = ["a", "b", "us-east-1a", "us-east-1b", "rack é", "\uffee", "\U0001f600", ""]
NAME_LETTERS = "abcdefghijklmnopqrstuvwxyzABC0123456789._-"


def main() -> None:
    _write("hashes.json", _hashed_groups())
    _write("assignments.json", _assigned_groups())
    _write("patterns.json", _matched_patterns())
    _write("records.json", _records(records_of("g", STEPS)))
    _write("streams_records.json", _records(streams_records.records_of("g", STREAMS_STEPS)))
    _write("streams.json", _streams())


def _records(records: Records) -> list[dict[str, Any]]:
    """Kafka's bytes for the records of groups, and its reading of ours."""
    texts = [(key.hex(), (value or b"").hex()) for key, value in records]
    return group_parts([{"kind": "record", "key": key, "value": value} for key, value in texts])


def _streams() -> list[dict[str, Any]]:
    """Topologies as Kafka configures them, and its assignments of tasks."""
    random = Random(1071)
    cases = [
        *({"kind": "configuration", **topology_as_json(*drawn_topology(random))} for _ in range(STREAMS_CASES)),
        *({"kind": "assignment", **streams_group_as_json(drawn_streams_group(random))} for _ in range(STREAMS_CASES)),
    ]
    return [{**case, "answer": answer} for case, answer in zip(cases, streams_parts(cases), strict=True)]


def _hashed_groups() -> list[dict[str, Any]]:
    random = Random(37)
    groups = [{"topics": [_drawn_topic(random) for _ in range(random.randrange(5))]} for _ in range(HASHED_GROUPS)]
    topics = [topic for group in groups for topic in group["topics"]]
    for topic, found in zip(topics, group_parts([{"kind": "topic hash", **one} for one in topics]), strict=True):
        topic["hash"] = found
    hashes = [{one["name"]: one["hash"] for one in group["topics"]} for group in groups]
    found = group_parts([{"kind": "group hash", "hashes": one} for one in hashes])
    return [{**group, "hash": one} for group, one in zip(groups, found, strict=True)]


def _drawn_topic(random: Random) -> dict[str, Any]:
    name = "".join(random.choices(NAME_LETTERS, k=random.choice([4, 5, 20, 249])))
    partitions = random.choice([0, 1, 2, 4, 60])
    racks = [random.choices(RACKS, k=random.randrange(4)) for _ in range(partitions)]
    return {"name": name, "id": random.randbytes(16).hex(), "racks": racks}


def _assigned_groups() -> list[dict[str, Any]]:
    """Of the uniform assignor only how many partitions each member has, and how many move, if all have one
    subscription: nothing else of it is determined."""
    random = Random(848)
    groups = [drawn_group(random, is_homogeneous=number % 3 > 0) for number in range(ASSIGNED_GROUPS)]
    cases = [group_as_json(group) for group in groups]
    for name in ("range", "uniform"):
        found = group_parts([{**case, "assignor": name} for case in cases])
        for group, case, assigned in zip(groups, cases, found, strict=True):
            if name == "range":
                case[name] = assigned
            elif group.is_homogeneous:
                case[name] = sizes_and_moves(group, {one: assignment_of_json(it) for one, it in assigned.items()})
    return cases


def _matched_patterns() -> list[dict[str, Any]]:
    drawn = [DrawnPattern(seed) for seed in range(DRAWN_PATTERNS)]
    pairs = [*((pattern, TEXTS) for pattern in CHOSEN_PATTERNS), *((one.text, one.texts) for one in drawn)]
    found = group_parts([{"kind": "regex", "pattern": pattern, "texts": texts} for pattern, texts in pairs])
    cases = []
    for (pattern, texts), answer in zip(pairs, found, strict=True):
        case: dict[str, Any] = {"pattern": pattern}
        if isinstance(answer, str):
            case["refusal"] = answer
        else:
            for key, value in (("matching", True), ("others", False)):
                case[key] = [text for text, matches in zip(texts, answer, strict=True) if matches == value]
        cases.append(case)
    return cases


def _write(name: str, rows: list[Any]) -> None:
    lines = ",\n".join(json.dumps(row) for row in rows)
    (GOLDEN / name).write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
