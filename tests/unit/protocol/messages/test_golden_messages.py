"""The new APIs of Kafka 4.3, byte by byte and field by field as Kafka's own message classes have them."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pytest

from kafkalite.protocol.codec.codec import decode, encoder
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest
from tests.support.message_verdicts import GOLDEN, NEW_APIS, as_json, schema_text

LINES = [line.split("\t") for line in GOLDEN.read_text(encoding="utf-8").splitlines()]
CASES = [
    pytest.param(message_type, direction, api.key, version, id=f"{message_type.__name__}-{version}")
    for api in NEW_APIS
    for direction, message_type in (("request", api.request), ("response", api.response))
    for version in api.versions
]


@pytest.mark.parametrize(("message_type", "direction", "key", "version"), CASES)
def test_bytes_and_fields_are_kafkas(message_type: type[Message], direction: str, key: int, version: int) -> None:
    golden = [line[3:] for line in LINES if line[:3] == [direction, str(key), str(version)]]
    assert golden
    for schema, text, content in golden:
        frame = b64decode(content)
        assert schema_text(message_type, version) == schema
        message, end = decode(message_type, version, memoryview(frame))
        assert end == len(frame)
        assert as_json(message, version) == json.loads(text)
        parts: list[Any] = []
        encoder(message_type, version)(message, parts)
        assert b"".join(parts) == frame


@pytest.mark.parametrize(("message_type", "direction", "key", "version"), CASES)
def test_defaults_are_kafkas(message_type: type[Message], direction: str, key: int, version: int) -> None:
    first = next(line for line in LINES if line[:3] == [direction, str(key), str(version)])
    kafkas = json.loads(first[4])
    if message_type is ListOffsetsRequest:
        kafkas["replicaId"] = -1  # ours: a client, where Kafka's default is the broker of id 0
    assert as_json(message_type(), version) == kafkas
