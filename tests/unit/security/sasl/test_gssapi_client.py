"""The client's side of GSSAPI against the server's, over contexts that are made up."""

from __future__ import annotations

import pytest

from kafkalite.security.sasl.gssapi import GssapiExchange
from kafkalite.security.sasl.gssapi_client import GssapiClient


class Context:
    """Content after `steps` tokens; what is wrapped gets a mark of the side that wrapped it."""

    def __init__(self, mark: bytes, steps: int, client: str = "") -> None:
        self.mark, self.left, self.client = mark, steps, client

    @property
    def is_complete(self) -> bool:
        return self.left == 0

    def step(self, token: bytes | None) -> bytes:
        self.left -= 1
        return b"ticket" if self.left or self.client or token is None else b""

    def wrap(self, data: bytes) -> bytes:
        return self.mark + data

    def unwrap(self, data: bytes) -> bytes:
        if data[:1] == self.mark or not data:
            raise ValueError("it is damaged")
        return data[1:]


def test_both_sides_are_content() -> None:
    client = GssapiClient(Context(b"c", 2))
    server = GssapiExchange(Context(b"s", 1, "broker@R"), lambda name: name.partition("@")[0])
    token: bytes | None = client.first()
    step = None
    while token is not None:
        step = server.evaluate(token)
        token = client.answer(step.token or b"")
    assert step is not None and step.name == "broker"


def begun() -> GssapiClient:
    client = GssapiClient(Context(b"c", 2))
    client.first()
    assert client.answer(b"ticket") == b""
    return client


@pytest.mark.parametrize(
    ("offer", "fault"),
    [
        (b"s\x06\0\0\0", "protection by a layer"),
        (b"s\x01\0\0", "protection by a layer"),
        (b"s\x01\0\0\0x", "protection by a layer"),
        (b"s", "protection by a layer"),
        (b"", "damaged"),
        (b"c\x01\0\0\0", "damaged"),
        (bytes(70_000), "more than belongs"),
    ],
)
def test_an_offer_that_makes_no_sense(offer: bytes, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        begun().answer(offer)


def test_of_several_layers_none_is_chosen() -> None:
    client = begun()
    assert client.answer(b"s\x07\0\x10\0") == b"c\x01\0\0\0"
    with pytest.raises(ValueError, match="asks on"):
        client.answer(b"more")


def test_tickets_for_ever() -> None:
    client = GssapiClient(Context(b"c", 100))
    client.first()
    with pytest.raises(ValueError, match="for ever"):
        for _ in range(10):
            client.answer(b"ticket")
