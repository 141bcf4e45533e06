"""Tickets of Kerberos, by the package gssapi over MIT's library: those of clients, by the keytab of this broker.

The library reads the keytab for each ticket, so that new keys need no restart. It also remembers the tickets that were
presented, to refuse replays (KRB5RCACHENAME).
Source: com.sun.security.auth.module.Krb5LoginModule (keyTab, principal).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from kafkalite.common.clock import Clock
from kafkalite.common.errors import ConfigError
from kafkalite.common.log_lines import RateLimitedLogger
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.jaas import FoundModule, login_module, property_of
from kafkalite.security.principal_rules import short_names
from kafkalite.security.sasl.exchange import Exchange
from kafkalite.security.sasl.gssapi import (
    MECHANISM,
    GssapiExchange,
    TicketRefused,
    fault_text,
    load_library,
    principal_name,
)

_log = logging.getLogger("kafkalite.authentication")
RULES = "sasl.kerberos.principal.to.local.rules"
_MINORS_BASE = -1765328384
_MAY_PASS = frozenset(_MINORS_BASE + code for code in (21, 33, 34))  # not valid yet, and presented before


def kerberos_exchanges(config: BrokerConfig, listener: str, clock: Clock) -> Callable[[], Exchange]:
    """An exchange for each client of a listener. Raises ConfigError."""
    found = login_module(config, listener, MECHANISM)
    if found is None:
        raise ConfigError(
            f"{property_of(listener, MECHANISM)} is missing: it has the keys of this broker, as com.sun.security.auth."
            'module.Krb5LoginModule required useKeyTab=true keyTab="FILE" principal="kafka/HOST@REALM";'
        )
    gssapi = load_library()
    try:
        credentials = gssapi.Credentials(name=_principal(found), usage="accept", store={"keytab": _keytab(found)})
        realm = _default_realm(gssapi)
    except gssapi.exceptions.GSSError as fault:
        raise ConfigError(f"{found.where}: {fault_text(fault)}") from None
    try:
        short_name = short_names(config.listener_setting(listener, RULES), realm)
    except ValueError as fault:
        raise ConfigError(f"{RULES} of listener {listener} {fault}") from None
    log = RateLimitedLogger(clock, _log.warning)

    def refused(why: str) -> None:
        log.about(f"listener {listener}", "ticket", f"a ticket of Kerberos is refused: {why}")

    return lambda: GssapiExchange(_Context(gssapi, credentials), short_name, refused)


def _principal(found: FoundModule) -> Any:
    name = found.module.options.get("principal")
    if not name:
        raise ConfigError(f'{found.where} has no principal="kafka/HOST@REALM"')
    return principal_name(load_library(), name)


def _keytab(found: FoundModule) -> str:
    path = found.module.options.get("keyTab")
    if not path:
        raise ConfigError(f'{found.where} has no keyTab="FILE"')
    path = path.removeprefix("FILE:")
    try:
        with open(path, "rb"):
            return path
    except OSError as fault:
        raise ConfigError(f"{found.where}: keyTab {path} cannot be read: {fault.strerror or fault}") from None


def _default_realm(gssapi: Any) -> str:
    name = principal_name(gssapi, "nobody").canonicalize(gssapi.MechType.kerberos)
    return str(name).partition("@")[2]


class _Context:
    def __init__(self, gssapi: Any, credentials: Any) -> None:
        self._error = gssapi.exceptions.GSSError
        self._context = gssapi.SecurityContext(creds=credentials, usage="accept")
        self.is_complete = False

    @property
    def client(self) -> str:
        return str(self._context.initiator_name)

    def step(self, token: bytes) -> bytes:
        answer = self._asked(lambda: self._context.step(token) or b"")
        self._asked(self._look_whether_complete)
        return answer

    def _look_whether_complete(self) -> bytes:
        self.is_complete = bool(self._context.complete)  # raises the fault that `step` deferred in favour of its answer
        return b""

    def wrap(self, data: bytes) -> bytes:
        return self._asked(lambda: self._context.wrap(data, encrypt=False).message)

    def unwrap(self, data: bytes) -> bytes:
        return self._asked(lambda: self._context.unwrap(data).message)

    def _asked(self, ask: Callable[[], bytes]) -> bytes:
        try:
            return bytes(ask())
        except self._error as fault:
            minor = getattr(fault, "min_code", 0)
            signed = minor - (1 << 32) if minor >= 1 << 31 else minor
            raise TicketRefused(fault_text(fault), may_pass=signed in _MAY_PASS) from None
