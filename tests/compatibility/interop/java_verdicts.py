"""Kafka's own classes, asked about rules, tokens and parts of groups: small programs, one JVM for all cases."""

from __future__ import annotations

import json
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.compatibility.interop.java_tools import java_command
from tests.support.drawn_tokens import TokenCase
from tests.support.verdicts import REALM

SOURCES = Path(__file__).parent / "java"
_SECONDS = 300


def name_verdicts(kind: str, cases: Sequence[Sequence[str]]) -> list[str]:
    """For a name and its rules: the user behind "=", "nobody", "config" for rules that are refused, or "slow"."""
    return _run("NameRules", [REALM], [(kind, *(one.encode() for one in case)) for case in cases])


def distinguished_names(names: Sequence[bytes]) -> list[str]:
    """For the DER of a distinguished name: its text behind "=", or "nobody"."""
    return _run("NameRules", [REALM], [("dn", name) for name in names])


def token_verdicts(jwks: Path, now_ms: int, cases: Sequence[TokenCase]) -> list[str]:
    """The principal behind "=" and the end of the token in ms, or "refused"."""
    fields = [(case.kind, *(one.encode() for one in (*case.settings, case.token))) for case in cases]
    return _run("TokenVerdicts", [str(jwks), str(now_ms)], fields)


def group_parts(cases: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Kafka 4.3's answers to `cases`, which have a "kind": hashes, assignments, regular expressions."""
    lines = "".join(f"{json.dumps(case)}\n" for case in cases)
    return list(map(json.loads, _answers("4.3.0", "GroupParts", [], lines, len(cases))))


def streams_parts(cases: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Kafka 4.3's answers to `cases` of a "kind": configurations of topologies, assignments, endpoints."""
    lines = "".join(f"{json.dumps(case)}\n" for case in cases)
    return list(map(json.loads, _answers("4.3.0", "StreamsParts", [], lines, len(cases))))


def _run(program: str, arguments: Sequence[str], cases: Sequence[tuple[str, *tuple[bytes, ...]]]) -> list[str]:
    lines = "".join(f"{kind} {' '.join(b64encode(one).decode() for one in case)}\n" for kind, *case in cases)
    return list(map(_told, _answers("3.9.1", program, arguments, lines, len(cases))))


def _answers(version: str, program: str, arguments: Sequence[str], lines: str, count: int) -> list[str]:
    command = [*java_command(version), str(SOURCES / f"{program}.java"), *arguments]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=_SECONDS)
    assert done.returncode == 0, done.stderr
    found = done.stdout.splitlines()
    assert len(found) == count, done.stderr
    return found


def _told(line: str) -> str:
    if not line.startswith("="):
        return line
    text, blank, rest = line[1:].partition(" ")
    return f"={b64decode(text).decode()}{blank}{rest}"
