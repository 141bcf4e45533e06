"""The Dockerfile and docker-compose.yml, as far as they can be judged without building an image."""

from __future__ import annotations

import json
import re
import socket
from fnmatch import fnmatch
from typing import Any

import yaml

from kafkalite.cli.main import main
from tests.support.places import ROOT

INSTRUCTIONS = {
    "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "STOPSIGNAL", "CMD",
}  # fmt: skip


def instructions() -> list[tuple[str, str]]:
    """Each instruction with its arguments, in order."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found = [line.partition(" ") for line in text.splitlines() if line.strip()]
    return [(name, arguments.strip()) for name, _, arguments in found]


def stages() -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage, by its name."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name, arguments in instructions():
        if name == "FROM":
            current = found[arguments.rpartition(" AS ")[2]] = []
        else:
            current.append((name, arguments))
    return found


def test_what_is_copied_is_there() -> None:
    assert {name for name, _ in instructions()} <= INSTRUCTIONS
    ignored = (ROOT / ".dockerignore").read_text().split()
    for stage in stages().values():
        for name, arguments in stage:
            if name == "COPY" and not arguments.startswith("--from="):
                for source in arguments.split()[:-1]:
                    assert (ROOT / source).exists() and not any(fnmatch(source, each) for each in ignored), source
            elif name == "COPY":
                origin = arguments.split()[0].removeprefix("--from=")
                assert origin in stages() or "/" in origin


def test_the_broker_is_no_root_and_tells_of_its_health() -> None:
    stage = dict(stages()["kafkalite"])
    assert stage["USER"] == "kafkalite"
    assert json.loads(stage["CMD"]) == ["kafkalite", "serve"]
    command = json.loads(stage["HEALTHCHECK"].partition("CMD ")[2])
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    assert command[0] == "kafkalite" and main([*command[1:], "--bootstrap", address]) == 1


def test_compose_builds_stages_that_there_are() -> None:
    composed: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    targets = {service["build"]["target"] for service in composed["services"].values() if "build" in service}
    assert targets == {"kafkalite", "spark"}
    assert targets <= stages().keys()
