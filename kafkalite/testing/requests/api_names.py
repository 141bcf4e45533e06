"""Kafka's names of APIs, as people spell them, and what may have been meant by a wrong one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from kafkalite.protocol.apis import SERVED
from kafkalite.testing.records.arguments import check_text

_OF_LOGINS = ("SaslHandshake", "SaslAuthenticate")
"""Answered by the authenticator of a connection, which is asked before anybody who looks on."""

_APIS = {api.name.casefold(): api.name for api in SERVED.values()}


def api_name(given: str) -> str:
    """Kafka's name of an API from any of its spellings: "InitProducerId", "INIT_PRODUCER_ID". Raises ValueError,
    also for those of logins, TypeError if it is no text."""
    check_text("api", given)
    spelt = given.replace("_", "").casefold()
    if spelt not in _APIS:
        raise ValueError(f"no API is named {given!r}{near_to(spelt, _APIS, _APIS)}")
    name = _APIS[spelt]
    if name in _OF_LOGINS:
        raise ValueError(f"{name} belongs to a login, and logins are neither recorded nor spoilt")
    return name


def near_to(name: str, names: Iterable[str], shown: dict[str, str] | None = None) -> str:
    """A few names like that one, as the end of a message; nothing if there is none. `shown` has other spellings."""
    near = [one if shown is None else shown[one] for one in get_close_matches(name, list(names), 3, 0.5)]
    return f"; near to it: {', '.join(near)}" if near else ""
