"""The conversation of GSSAPI without Kerberos; with it: `tests/compatibility/interop/test_kerberos.py`."""

from __future__ import annotations

import pytest

from kafkalite.common.errors import Disconnect
from kafkalite.security.principal_rules import short_names
from kafkalite.security.sasl.exchange import AuthenticationFailed, Step
from kafkalite.security.sasl.gssapi import NO_LAYER, GssapiClient, GssapiExchange, TicketRefused

SHORT_NAME = short_names(["DEFAULT"], "EXAMPLE.ORG")


class Tickets:
    """A context that is complete after `answers`."""

    def __init__(self, *answers: bytes, client: str = "alice@EXAMPLE.ORG", fault: TicketRefused | None = None) -> None:
        self._answers = list(answers)
        self._fault = fault
        self.client = client

    @property
    def is_complete(self) -> bool:
        return not self._answers

    def step(self, token: bytes) -> bytes:
        if self._fault is not None:
            raise self._fault
        return self._answers.pop(0)

    def wrap(self, data: bytes) -> bytes:
        return b"<" + data

    def unwrap(self, data: bytes) -> bytes:
        if data[:1] != b"<":
            raise TicketRefused("no such wrapping")
        return data[1:]


def exchange(*answers: bytes, **how: object) -> tuple[GssapiExchange, list[str]]:
    refused: list[str] = []
    return GssapiExchange(Tickets(*answers, **how), SHORT_NAME, refused.append), refused  # type: ignore[arg-type]


@pytest.mark.parametrize("choice", [NO_LAYER, NO_LAYER + b"alice", NO_LAYER + b"somebody else"])
def test_after_the_ticket_both_agree_on_no_layer(choice: bytes) -> None:
    one, _ = exchange(b"answer")
    assert one.evaluate(b"ticket") == Step(b"answer")
    assert one.evaluate(b"") == Step(b"<" + NO_LAYER)
    assert one.evaluate(b"<" + choice) == Step(None, "alice"), "whoever the ticket names"


def test_an_offer_comes_at_once_if_the_ticket_needs_no_answer() -> None:
    one, _ = exchange(b"")
    assert one.evaluate(b"ticket") == Step(b"<" + NO_LAYER)


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ((b"ticket", b"more"), "when the server is to speak"),
        ((b"ticket", b"", b"<\x02\0\0\0"), "use TLS"),
        ((b"ticket", b"", b"<\x01"), "use TLS"),
        ((b"ticket", b"", b"unwrapped"), "no such wrapping"),
    ],
)
def test_whoever_does_otherwise_fails_and_learns_nothing(tokens: tuple[bytes, ...], words: str) -> None:
    one, refused = exchange(b"answer")
    with pytest.raises(AuthenticationFailed, match="invalid credentials with SASL mechanism GSSAPI"):
        for token in tokens:
            one.evaluate(token)
    assert words in refused[0]
    with pytest.raises(AuthenticationFailed):
        one.evaluate(b"")


def test_tickets_do_not_go_on_for_ever() -> None:
    one, refused = exchange(*[b"more"] * 9)
    with pytest.raises(AuthenticationFailed):
        for _ in range(9):
            one.evaluate(b"ticket")
    assert "without end" in refused[0]


def test_a_ticket_of_the_future_is_no_failure_but_an_end() -> None:
    one, refused = exchange(fault=TicketRefused("not yet valid", may_pass=True))
    with pytest.raises(Disconnect):
        one.evaluate(b"ticket")
    assert refused == ["not yet valid"]


def test_a_principal_that_is_no_user_gets_no_answer() -> None:
    one, _ = exchange(b"answer", client="alice@ELSEWHERE")
    one.evaluate(b"ticket")
    one.evaluate(b"")
    with pytest.raises(Disconnect, match="no rule"):
        one.evaluate(b"<" + NO_LAYER)


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
    with pytest.raises(ValueError, match="without end"):
        for _ in range(10):
            client.answer(b"ticket")
