"""Tickets of Kerberos by which this process logs in: from a keytab, or from the cache of kinit.

With a keytab MIT's library gets tickets when there are none, and new ones before they end; they are kept in memory. The
tickets of a cache are renewed by `kinit -R` when most of their time is over, as long as they are renewable. The key
distribution centre may block a step, so steps run in threads that may wait.
Source: org.apache.kafka.common.security.kerberos.KerberosLogin, com.sun.security.auth.module.Krb5LoginModule.
"""

from __future__ import annotations

import logging
import os
import subprocess
import threading
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from kafkalite.common.clock import monotonic_s
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.security.sasl.gssapi import GssapiClient, fault_text, load_library, principal_name

logger = logging.getLogger("kafkalite.authentication")

_KINIT_S = 30.0
_WAITING_MAX = 16
_cache_numbers = count(1)  # caches in memory are the process's


class NoTicket(OSError):
    """There is no ticket; the text is for the operator."""


class KerberosSettings(NamedTuple):
    """Settings that are not in the login module."""

    service: str
    kinit: str = "/usr/bin/kinit"
    renew_factor: float = 0.8
    renew_pause_ms: float = 60_000.0


class KerberosTickets:
    """Tickets of one principal for the brokers of one service."""

    def __init__(
        self,
        options: Mapping[str, str],
        settings: KerberosSettings,
        monotonic_ms: Callable[[], float] = lambda: monotonic_s() * 1000,
    ) -> None:
        """`options` are those of a Krb5LoginModule. Raises ValueError, and ConfigError without the package gssapi."""
        self._gssapi = load_library()
        self._settings = settings
        self._monotonic_ms = monotonic_ms
        self._waiting = threading.BoundedSemaphore(_WAITING_MAX)
        self._renewing = threading.Lock()
        self._lifetime_s = 0.0  # the longest since the last renewal
        self._renewed_ms = float("-inf")
        self.principal = options.get("principal", "")
        self._cache: str | None = None
        self._keytab: str | None = None
        if _is_true(options, "useKeyTab"):
            self._keytab = _keytab_of(options)
            if not self.principal:
                raise ValueError('has useKeyTab=true and no principal="NAME@REALM"')
        elif _is_true(options, "useTicketCache"):
            self._cache = options.get("ticketCache") or None
        else:
            raise ValueError(
                'has neither useKeyTab=true with keyTab="FILE" and principal="NAME@REALM" nor useTicketCache=true, '
                "which are this side's own login"
            )
        if self._keytab is not None:
            self._store = {"client_keytab": self._keytab, "ccache": f"MEMORY:kafkalite-{next(_cache_numbers)}"}
        else:
            self._store = {} if self._cache is None else {"ccache": self._cache}

    @property
    def name(self) -> str:
        return self.principal or "the ticket cache"

    def exchange(self, host: str) -> GssapiClient:
        """An authentication at the broker with this host name. Raises NoTicket."""
        if not self._waiting.acquire(blocking=False):
            raise NoTicket(f"{_WAITING_MAX} logins are waiting for the key distribution centre")
        try:
            if self._keytab is None:
                self._renew_if_due()
            credentials = self._credentials()
            context = self._gssapi.SecurityContext(
                name=self._gssapi.Name(f"{self._settings.service}@{host}", self._gssapi.NameType.hostbased_service),
                creds=credentials,
                mech=self._gssapi.MechType.kerberos,
                flags=self._gssapi.RequirementFlag.mutual_authentication | self._gssapi.RequirementFlag.integrity,
                usage="initiate",
            )
        except self._gssapi.exceptions.GSSError as fault:
            raise NoTicket(f"{self.name}: {fault_text(fault)}") from None
        finally:
            self._waiting.release()
        return GssapiClient(_Context(self._gssapi, context, self._waiting))

    def _credentials(self) -> Any:
        """Raises GSSError."""
        name = principal_name(self._gssapi, self.principal) if self.principal else None
        return self._gssapi.Credentials(name=name, usage="initiate", store=self._store or None)

    def _renew_if_due(self) -> None:
        """Raises GSSError if there are no tickets."""
        left_s = float(self._credentials().lifetime or 0)
        with self._renewing:
            self._lifetime_s = max(self._lifetime_s, left_s)
            is_due = left_s < self._lifetime_s * (1 - self._settings.renew_factor)
            now_ms = self._monotonic_ms()
            if not is_due or now_ms - self._renewed_ms < self._settings.renew_pause_ms:
                return
            self._renewed_ms = now_ms
            self._renew()
            self._lifetime_s = float(self._credentials().lifetime or 0)

    def _renew(self) -> None:
        cache = [] if self._cache is None else ["-c", self._cache]
        try:
            done = subprocess.run(
                [self._settings.kinit, "-R", *cache],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_KINIT_S,
                check=False,
            )
            why = " ".join(done.stderr.split())[:200] if done.returncode else ""
        except (OSError, subprocess.TimeoutExpired) as fault:
            why = str(fault)
        if why:
            logger.warning("the tickets of %s are not renewed: %s", self.name, why)


def _is_true(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "").strip().lower() == "true"


def _keytab_of(options: Mapping[str, str]) -> str:
    path = options.get("keyTab", "").removeprefix("FILE:")
    if not path:
        raise ValueError('has useKeyTab=true and no keyTab="FILE"')
    if not os.access(path, os.R_OK):
        raise ValueError(f"has keyTab {path[:200]}, which cannot be read")
    return path


class _Context:
    def __init__(self, gssapi: Any, context: Any, waiting: threading.BoundedSemaphore) -> None:
        self._error = gssapi.exceptions.GSSError
        self._context = context
        self._waiting = waiting

    @property
    def is_complete(self) -> bool:
        return bool(self._context.complete)

    def step(self, token: bytes | None) -> bytes:
        if not self._waiting.acquire(blocking=False):
            raise NoTicket(f"{_WAITING_MAX} logins are waiting for the key distribution centre")
        try:
            return bytes(self._context.step(token) or b"")
        except self._error as fault:
            raise (NoTicket if token is None else ValueError)(fault_text(fault)) from None
        finally:
            self._waiting.release()

    def wrap(self, data: bytes) -> bytes:
        return self._asked(lambda: self._context.wrap(data, encrypt=False).message)

    def unwrap(self, data: bytes) -> bytes:
        return self._asked(lambda: self._context.unwrap(data).message)

    def _asked(self, ask: Callable[[], Any]) -> bytes:
        try:
            return bytes(ask())
        except self._error as fault:
            raise ValueError(fault_text(fault)) from None
