"""Recordings in pages: commands after `$`, and what they print, played in one shell as a reader would type them."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support.places import ROOT
from tests.support.wait import DEADLINE_S, until

PORT = "9092"
VARIES = {r"cluster [\w-]{22}": r"cluster [\\w-]{22}", r"^\d+ seconds$": r"\\d+ seconds"}
"""Parts of what is printed that are others each time, and their patterns."""


def recording(page: str, port: str) -> list[tuple[str, str]]:
    """Each command of the page and a pattern of what it prints, with another port."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL):
        parts = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.replace(PORT, port), re.MULTILINE)
        assert sum(1 + output.count("\n") for _, output in parts) == block.count("\n"), block
        found += [(command, _pattern(output)) for command, output in parts]
    assert found, page
    return found


def files(page: str, port: str) -> dict[str, str]:
    """The blocks of the page that are a file, by their names."""
    text = (ROOT / page).read_text().replace(PORT, port)
    return dict(re.findall(r'^```\w+ title="([\w.]+)"\n(.*?)^```$', text, re.MULTILINE | re.DOTALL))


def play(page: str, directory: Path, environment: Mapping[str, str], seconds: float = DEADLINE_S) -> None:
    """Types the page's commands into bash in `directory`; each has `seconds` to print what the page says."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    for name, text in files(page, port).items():
        (directory / name).write_text(text)
    settings = {
        "KAFKA_LISTENERS": f"PLAINTEXT://127.0.0.1:{port}",
        "KAFKALITE_BOOTSTRAP_SERVERS": f"127.0.0.1:{port}",
        "PYTHONUNBUFFERED": "1",
    }
    printed = directory / "printed"
    with (
        printed.open("wb") as output,
        subprocess.Popen(
            ["bash"], cwd=directory, env={**environment, **settings}, stdin=subprocess.PIPE, stdout=output
        ) as bash,
    ):
        assert bash.stdin is not None
        try:
            wanted = ""
            for command, pattern in recording(page, port):
                bash.stdin.write(f"{command}\n".encode())
                bash.stdin.flush()
                if pattern:
                    wanted += pattern + "\n"
                    until(
                        lambda: re.fullmatch(wanted, printed.read_text()),  # noqa: B023  called in this turn
                        f"what {command} prints, after {wanted!r}",
                        seconds,
                    )
        finally:
            bash.stdin.write(b"kill $(jobs -p) 2> /dev/null\n")
            bash.stdin.close()
            bash.wait(DEADLINE_S)
    until(lambda: not _listens(int(port)), "the end of the broker")


def _pattern(output: str) -> str:
    """Lines as they are, but for what varies."""
    whole = re.escape(output.strip("\n")).replace(r"\ ", " ").replace(r"\-", "-")
    for varying, pattern in VARIES.items():
        whole = re.sub(varying, pattern, whole, flags=re.MULTILINE)
    return whole


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0
