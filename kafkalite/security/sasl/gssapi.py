"""SASL GSSAPI: a ticket of Kerberos, and then an agreement on no protection of what follows, which is for TLS.

After the tickets the server offers its security layers, of which there is none, and the client takes that one. The
client may name somebody else for whom it acts; as in Kafka, it is whoever the ticket says.
Source: RFC 4752, com.sun.security.sasl.gsskerb.GssKrb5Server, KIP-43.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

from kafkalite.common.errors import Disconnect
from kafkalite.security.sasl.exchange import AuthenticationFailed, Step
from kafkalite.security.sasl.kerberos_names import ShortName

MECHANISM = "GSSAPI"
NO_LAYER = b"\x01\0\0\0"
"""The layers of one side, and how much it receives at a time with one: none, nothing."""

_FAILED = f"Authentication failed during authentication due to invalid credentials with SASL mechanism {MECHANISM}"
_TICKET_STEPS_MAX = 4  # Kerberos needs one


class TicketRefused(Exception):
    """The text is for the operator. `may_pass`: the same client may succeed when it tries again."""

    def __init__(self, why: str, *, may_pass: bool = False) -> None:
        super().__init__(why)
        self.may_pass = may_pass


class AcceptedContext(Protocol):
    """The server's side of one context of GSS-API. Its methods raise TicketRefused."""

    @property
    def is_complete(self) -> bool: ...

    @property
    def client(self) -> str:
        """The principal of the client, when it is complete."""
        ...

    def step(self, token: bytes) -> bytes: ...

    def wrap(self, data: bytes) -> bytes: ...

    def unwrap(self, data: bytes) -> bytes: ...


class _Stage(Enum):
    TICKETS = auto()
    OFFER = auto()
    CHOICE = auto()
    OVER = auto()


class GssapiExchange:
    """`refused` gets the reason, for the operator."""

    def __init__(
        self, context: AcceptedContext, short_name: ShortName, refused: Callable[[str], object] = lambda _: None
    ) -> None:
        self._context = context
        self._short_name = short_name
        self._refused = refused
        self._stage = _Stage.TICKETS
        self._steps = 0

    def evaluate(self, token: bytes) -> Step:
        try:
            return self._next(token)
        except TicketRefused as why:
            self._stage = _Stage.OVER
            self._refused(str(why))
            if why.may_pass:
                raise Disconnect("") from None
            raise AuthenticationFailed(_FAILED) from None

    def _next(self, token: bytes) -> Step:
        context = self._context
        if self._stage is _Stage.TICKETS:
            self._steps += 1
            if self._steps > _TICKET_STEPS_MAX:
                raise TicketRefused("the client goes on with tickets for ever")
            answer = context.step(token)
            if not context.is_complete:
                return Step(answer)
            self._stage = _Stage.OFFER
            return Step(answer) if answer else self._offer()
        if self._stage is _Stage.OFFER:
            if token:
                raise TicketRefused("the client says something when the server is to speak")
            return self._offer()
        if self._stage is _Stage.CHOICE:
            choice = context.unwrap(token)
            if len(choice) < len(NO_LAYER) or choice[0] != NO_LAYER[0]:
                raise TicketRefused("the client wants protection by a layer of SASL: use TLS (SASL_SSL)")
            self._stage = _Stage.OVER
            return Step(None, self._name())
        raise TicketRefused("the client says something when all is said")

    def _offer(self) -> Step:
        self._stage = _Stage.CHOICE
        return Step(self._context.wrap(NO_LAYER))

    def _name(self) -> str:
        """Raises Disconnect for a principal that is no user, as Kafka closes without an answer."""
        try:
            return self._short_name(self._context.client)
        except ValueError as fault:
            raise Disconnect(str(fault)) from None
