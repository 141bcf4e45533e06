"""The package gssapi over MIT's Kerberos, which is an extra: `kafkalite[gssapi]`."""

from __future__ import annotations

from typing import Any

from kafkalite.common.errors import ConfigError
from kafkalite.security.sasl.gssapi import MECHANISM


def library() -> Any:
    """The package. Raises ConfigError without it."""
    try:
        import gssapi  # an extra
    except ImportError as fault:  # also where MIT's library is missing
        raise ConfigError(
            f"{MECHANISM} needs the package gssapi, and that MIT's Kerberos: pip install 'kafkalite[gssapi]' ({fault})"
        ) from None
    return gssapi


def told(fault: Exception) -> str:
    """The library's words, on one line."""
    return " ".join(str(fault).split())


def principal_name(gssapi: Any, principal: str) -> Any:
    return gssapi.Name(principal, gssapi.NameType.kerberos_principal)
