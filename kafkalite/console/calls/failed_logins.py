"""Failed logins of the last minute, so that passwords cannot be guessed at leisure.

Counted for each user as seen from one address, and for each address: somebody who guesses shuts out himself, not those
who know their passwords elsewhere. The broker has its own limits besides, on connections and on the time of a refusal.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

WINDOW_S = 60.0
OF_A_USER_MAX = 10
OF_AN_ADDRESS_MAX = 60
_COUNTED_MAX = 2_000


@dataclass(slots=True)
class FailedLogins:
    """Times of failures by (address, user) and by (address, None); the pair that failed last is at the end."""

    _times_s: OrderedDict[tuple[str, str | None], deque[float]] = field(default_factory=OrderedDict)

    def may_try(self, address: str, user: str, now_s: float) -> bool:
        return (
            self._recent((address, user), now_s) < OF_A_USER_MAX
            and self._recent((address, None), now_s) < OF_AN_ADDRESS_MAX
        )

    def add(self, address: str, user: str, now_s: float) -> None:
        for key in ((address, user), (address, None)):
            self._times_s.setdefault(key, deque(maxlen=OF_AN_ADDRESS_MAX)).append(now_s)
            self._times_s.move_to_end(key)
        while len(self._times_s) > _COUNTED_MAX:
            self._times_s.popitem(last=False)

    def _recent(self, key: tuple[str, str | None], now_s: float) -> int:
        times_s = self._times_s.get(key, ())
        return sum(now_s - each <= WINDOW_S for each in times_s)
