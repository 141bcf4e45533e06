"""Writes what Kafka 4.3.0's own message classes make of random messages, for the tests that run without Java.

Kafka reads bytes that we have written, and writes them again. One line each: request or response, the API's key, the
version, Kafka's schema, the message as Kafka's JSON, its bytes; the first line of a version is the message of defaults.

python -m tests.golden.protocol.make_golden_messages
"""

from __future__ import annotations

import random
import subprocess
from base64 import b64encode
from pathlib import Path
from typing import Any
from uuid import UUID

from kafkalite.protocol.codec.codec import encoder
from kafkalite.protocol.codec.schema import Field, Kind, Message
from kafkalite.protocol.codec.source_writer import travelling
from tests.compatibility.interop.java_tools import java_command
from tests.support.message_verdicts import GOLDEN, NEW_APIS, OWN_TAGS_FROM

PROGRAM = Path(__file__).parents[2] / "compatibility" / "interop" / "java" / "MessageBytes.java"
EACH = 4
VERSION = "4.3.0"


def drawn_message(rng: random.Random, message_type: type[Message], version: int) -> Message:
    """A random message; fields that the version does not have keep their defaults."""
    plain, tagged = travelling(message_type, version)
    values = {}
    for name, field in plain + tagged:
        if field.tag is None or (field.tag < OWN_TAGS_FROM and rng.random() < 0.7):
            values[name] = _drawn(rng, name, field, version)
            if field.tag is not None and isinstance(field.kind, type) and values[name] == field.kind():
                del values[name]  # Kafka leaves out a tagged struct of defaults
    return message_type(**values)


def _drawn(rng: random.Random, name: str, field: Field, version: int) -> Any:
    if version in field.nullable and field.tag is None and not field.null_sent_as_empty and rng.random() < 0.25:
        return None
    if field.is_array:
        return [_one(rng, name, field.kind, version) for _ in range(rng.choice((0, 1, 2, 3)))]
    return _one(rng, name, field.kind, version)


def _one(rng: random.Random, name: str, kind: Kind[Any] | type[Message], version: int) -> Any:
    if not isinstance(kind, Kind):
        return drawn_message(rng, kind, version)
    if kind.name.startswith("int"):
        bits = int(kind.name[3:])
        return rng.choice((-1, 0, 1, rng.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1))))
    if kind.name == "string":
        return rng.choice(("", "a", "größe", name, "x" * 130))
    if kind.name in ("bytes", "records"):
        return rng.randbytes(rng.choice((0, 1, 200)))
    return {
        "bool": rng.random() < 0.5,
        "uint16": rng.randrange(1 << 16),
        "uuid": UUID(bytes=rng.randbytes(16)),
    }[kind.name]


def main() -> None:
    rng = random.Random(43)
    questions = []
    for api in NEW_APIS:
        for direction, message_type in (("request", api.request), ("response", api.response)):
            for version in api.versions:
                questions.append((direction, api.key, version, "-"))
                for _ in range(EACH):
                    parts: list[Any] = []
                    encoder(message_type, version)(drawn_message(rng, message_type, version), parts)
                    questions.append((direction, api.key, version, b64encode(b"".join(parts)).decode()))
    lines = "".join(" ".join(map(str, question)) + "\n" for question in questions)
    command = [*java_command(VERSION), str(PROGRAM)]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    answers = done.stdout.splitlines()
    with GOLDEN.open("w") as golden:
        for (direction, key, version, ours), answer in zip(questions, answers, strict=True):
            if ours != "-" and not answer.endswith("\t" + ours):
                raise SystemExit(f"Kafka writes {direction} {key} v{version} otherwise:\n{ours}\n{answer}")
            golden.write(f"{direction}\t{key}\t{version}\t{answer}\n")


if __name__ == "__main__":
    main()
