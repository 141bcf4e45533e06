"""What Kafka's own classes say of rules and tokens: small programs, one JVM for all cases."""

from __future__ import annotations

import subprocess
from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path

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


def _run(program: str, arguments: Sequence[str], cases: Sequence[tuple[str, *tuple[bytes, ...]]]) -> list[str]:
    lines = "".join(f"{kind} {' '.join(b64encode(one).decode() for one in case)}\n" for kind, *case in cases)
    command = [*java_command("3.9.1"), str(SOURCES / f"{program}.java"), *arguments]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=_SECONDS)
    assert done.returncode == 0, done.stderr
    found = done.stdout.splitlines()
    assert len(found) == len(cases), done.stderr
    return list(map(_told, found))


def _told(line: str) -> str:
    if not line.startswith("="):
        return line
    text, blank, rest = line[1:].partition(" ")
    return f"={b64decode(text).decode()}{blank}{rest}"
