"""The client's side of SASL GSSAPI: tickets of Kerberos, and then an agreement on no protection of what follows.

The server offers its security layers; the client takes none, as in Kafka, and names nobody else for whom it acts.
Source: RFC 4752, com.sun.security.sasl.gsskerb.GssKrb5Client.
"""

from __future__ import annotations

from typing import Protocol

from kafkalite.security.sasl.gssapi import NO_LAYER

_TICKET_STEPS_MAX = 4  # Kerberos needs two
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
            raise ValueError("it goes on with tickets for ever")
        return self._context.step(challenge)  # empty when the server is to speak

    def _choose(self, offer: bytes) -> bytes:
        if len(offer) != _OFFER_BYTES or not offer[0] & NO_LAYER[0]:
            raise ValueError("it wants protection by a layer of SASL, and here TLS has that part (SASL_SSL)")
        self._has_chosen = True
        return self._context.wrap(NO_LAYER)
