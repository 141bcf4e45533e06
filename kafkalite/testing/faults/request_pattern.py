"""The requests that a fault is about: by API, topic, client, and by their number."""

from __future__ import annotations

from difflib import get_close_matches
from random import Random
from typing import TYPE_CHECKING

from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.apis import SERVED

if TYPE_CHECKING:
    from kafkalite.testing.requests.recorded_request import RecordedRequest

_APIS = {api.name.casefold(): api.name for api in SERVED.values()}


def api_name(given: str) -> str:
    """Kafka's name of an API from any of its spellings: "InitProducerId", "INIT_PRODUCER_ID". Raises ValueError."""
    name = _APIS.get(given.replace("_", "").casefold())
    if name is None:
        near = get_close_matches(given.replace("_", "").casefold(), _APIS, 3, 0.5)
        raise ValueError(f"no API is named {given!r}{_or(_APIS[one] for one in near)}")
    return name


def error_code(given: str | int | ErrorCode) -> ErrorCode:
    """One of Kafka's errors by its name or number. Raises ValueError."""
    if isinstance(given, int):
        return ErrorCode(given)
    name = given.upper()
    if name not in ErrorCode.__members__:
        raise ValueError(f"no error is named {given!r}{_or(get_close_matches(name, ErrorCode.__members__, 3, 0.5))}")
    return ErrorCode[name]


def _or(names: object) -> str:
    listed = list(names)  # type: ignore[call-overload]
    return f"; near to it: {', '.join(listed)}" if listed else ""


class RequestPattern:
    """`api`, `topic` and `client_id` of None fit every request. Of those that fit, the first `after` are let through,
    and the next `times` are chosen (None: all), each with the `probability`, by a generator that begins with `seed`."""

    def __init__(
        self,
        api: str | None = None,
        *,
        topic: str | None = None,
        client_id: str | None = None,
        times: int | None = 1,
        after: int = 0,
        probability: float = 1.0,
        seed: int = 0,
    ) -> None:
        if (times is not None and times < 1) or after < 0 or not 0 < probability <= 1:
            raise ValueError("times is 1 or more, or None; after is 0 or more; probability is above 0, and at most 1")
        self.api = None if api is None else api_name(api)
        self.topic = topic
        self.client_id = client_id
        self._left = times
        self._after = after
        self._probability = probability
        self._random = Random(seed)

    @property
    def is_live(self) -> bool:
        """Whether it may choose more."""
        return self._left != 0

    def fits_client(self, request: RecordedRequest) -> bool:
        """Whether API and client are those asked for."""
        is_api = self.api is None or request.api == self.api
        return is_api and (self.client_id is None or request.client_id == self.client_id)

    def chooses(self, request: RecordedRequest, *, names_topic: bool) -> bool:
        """Whether this request is one of them; it is counted. `names_topic`: it is about `topic`, if there is one."""
        if not names_topic or not self.is_live or not self.fits_client(request):
            return False
        if self._after:
            self._after -= 1
            return False
        if self._random.random() >= self._probability:
            return False
        if self._left is not None:
            self._left -= 1
        return True

    def give_back(self) -> None:
        """The last choice does not count."""
        if self._left is not None:
            self._left += 1

    def __str__(self) -> str:
        about = "any request" if self.api is None else self.api
        about += "" if self.topic is None else f" of {self.topic}"
        return about if self.client_id is None else f"{about} from {self.client_id}"
