"""SASL GSSAPI, both sides: tickets of Kerberos, and then an agreement on no security layer, which is left to TLS.

After the tickets the server offers no security layer, and the client accepts that. The client
may name another user for whom it acts; as in Kafka, the ticket's principal counts. Tickets are handled by the package
gssapi over MIT's Kerberos, which is an extra: `kafkalite[gssapi]`.
Source: RFC 4752, com.sun.security.sasl.gsskerb.{GssKrb5Server, GssKrb5Client}, KIP-43.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Protocol

from kafkalite.common.errors import ConfigError, Disconnect
from kafkalite.security.principal_rules import ShortName
from kafkalite.security.sasl.exchange import AuthenticationFailed, Step

MECHANISM = "GSSAPI"
NO_LAYER = b"\x01\0\0\0"
"""The layers of one side, and how much it receives at a time with one: none, nothing."""

_FAILED = f"Authentication failed during authentication due to invalid credentials with SASL mechanism {MECHANISM}"
_TICKET_STEPS_MAX = 4  # Kerberos needs one of the server, two of the client


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
                raise TicketRefused("the client sends tickets without end")
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


_CHALLENGE_BYTES_MAX = 64 * 1024
_OFFER_BYTES = 4


class InitiatedContext(Protocol):
    """The client's side of one context of GSS-API. Its methods raise OSError and ValueError."""

    @property
    def is_complete(self) -> bool: ...

    def step(self, token: bytes | None) -> bytes: ...

    def wrap(self, data: bytes) -> bytes: ...

    def unwrap(self, data: bytes) -> bytes: ...


class GssapiClient:
    """One authentication. The server has proven itself when the context is complete."""

    def __init__(self, context: InitiatedContext) -> None:
        self._context = context
        self._steps = 1
        self._has_chosen = False

    def first(self) -> bytes:
        return self._context.step(None)

    def answer(self, challenge: bytes) -> bytes | None:
        if len(challenge) > _CHALLENGE_BYTES_MAX:
            raise ValueError("it says more than belongs to Kerberos")
        if self._has_chosen:
            if challenge:
                raise ValueError("it asks on after all is said")
            return None
        if self._context.is_complete:
            return self._choose(self._context.unwrap(challenge))
        self._steps += 1
        if self._steps > _TICKET_STEPS_MAX:
            raise ValueError("it sends tickets without end")
        return self._context.step(challenge)  # empty when the server sends first

    def _choose(self, offer: bytes) -> bytes:
        if len(offer) != _OFFER_BYTES or not offer[0] & NO_LAYER[0]:
            raise ValueError("it wants protection by a layer of SASL, and here TLS has that part (SASL_SSL)")
        self._has_chosen = True
        return self._context.wrap(NO_LAYER)


def load_library() -> Any:
    """The package gssapi. Raises ConfigError without it."""
    try:
        import gssapi  # an extra
    except ImportError as fault:  # also where MIT's library is missing
        raise ConfigError(
            f"{MECHANISM} needs the package gssapi, and that MIT's Kerberos: pip install 'kafkalite[gssapi]' ({fault})"
        ) from None
    return gssapi


def fault_text(fault: Exception) -> str:
    """The library's error message, on one line."""
    return " ".join(str(fault).split())


def principal_name(gssapi: Any, principal: str) -> Any:
    return gssapi.Name(principal, gssapi.NameType.kerberos_principal)
