"""Limits by entity, and which of them is for a client.

The most specific entity that matches gives the limit, for each type of quota by itself. It also says whose consumption
is counted together: a limit of a user is shared by all clients of the user, one of a client id by all users of it; a
limit of a default entity is one for each name that it stands for.
Source: kafka.server.ClientQuotaManager.DefaultQuotaCallback, KIP-55.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkalite.security.quota.entities import DEFAULT

_Pair = tuple[str, str]  # a user and a client id; "": none


class Sharers(NamedTuple):
    """A group that is counted together: by user, sanitized, by client id, or by both; empty where all are."""

    user: str
    client_id: str


class QuotaLimits:
    """The limits of one type of quota. Users are sanitized names, client ids are not, DEFAULT is the default."""

    __slots__ = ("_by_pair",)

    def __init__(self) -> None:
        self._by_pair: dict[_Pair, float] = {}

    def __len__(self) -> int:
        return len(self._by_pair)

    def put(self, user: str, client_id: str, limit: float | None) -> bool:
        """Set the limit of an entity ("": of any user, of any client id), or remove it; whether that is a change."""
        if self._by_pair.get((user, client_id)) == limit:
            return False
        if limit is None:
            del self._by_pair[(user, client_id)]
        else:
            self._by_pair[(user, client_id)] = limit
        return True

    def sharers(self, user: str, client_id: str) -> Sharers:
        """The group with which a client shares its limit."""
        own, default = (user, client_id), Sharers("", client_id)
        candidates = (
            (own, Sharers(user, client_id)),
            ((user, DEFAULT), Sharers(user, client_id)),
            ((user, ""), Sharers(user, "")),
            ((DEFAULT, client_id), Sharers(user, client_id)),
            ((DEFAULT, DEFAULT), Sharers(user, client_id)),
            ((DEFAULT, ""), Sharers(user, "")),
        )
        return next((sharers for pair, sharers in candidates if pair in self._by_pair), default)

    def of(self, sharers: Sharers) -> float | None:
        user, client_id = sharers
        if user and client_id:
            pairs = ((user, client_id), (user, DEFAULT), (DEFAULT, client_id), (DEFAULT, DEFAULT))
        elif user:
            pairs = ((user, ""), (DEFAULT, ""))  # type: ignore[assignment]
        elif client_id:
            pairs = (("", client_id), ("", DEFAULT))  # type: ignore[assignment]
        else:
            return None
        return next((self._by_pair[pair] for pair in pairs if pair in self._by_pair), None)
