"""The requests that a fault is about: by API, topic, client, and by their number."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, TypedDict

from kafkalite.common.errors import ErrorCode
from kafkalite.testing.records.arguments import check_bool, check_integer, check_number, check_text
from kafkalite.testing.requests.api_names import api_name, near_to

if TYPE_CHECKING:
    from kafkalite.testing.requests.recorded_request import RecordedRequest


class Choice(TypedDict, total=False):
    """The arguments that all faults of requests take, besides `topic`."""

    client_id: str | None
    times: int | None
    after: int
    probability: float
    seed: int
    must_fire: bool


def check_choice(given: Choice) -> None:
    """Raises TypeError for an argument that there is not, or that is of another type."""
    for name, value in given.items():
        if name not in Choice.__annotations__:
            raise TypeError(f"no fault takes {name!r}{near_to(name, Choice.__annotations__)}")
        if name in ("times", "after", "seed"):
            check_integer(name, value, or_none=name == "times")
    check_text("client_id", given.get("client_id"), or_none=True)
    check_number("probability", given.get("probability", 1.0))
    check_bool("must_fire", given.get("must_fire", True))


def error_code(given: str | int | ErrorCode) -> ErrorCode:
    """One of Kafka's errors by its name or number. Raises ValueError for another and for NONE, TypeError."""
    if isinstance(given, int) and not isinstance(given, bool):
        if given not in ErrorCode._value2member_map_:
            raise ValueError(f"no error of Kafka has the number {given}")
        code = ErrorCode(given)
    else:
        check_text("error", given)
        name = given.upper()  # type: ignore[union-attr]
        if name not in ErrorCode.__members__:
            raise ValueError(f"no error is named {given!r}{near_to(name, ErrorCode.__members__.keys() - {'NONE'})}")
        code = ErrorCode[name]
    if code is ErrorCode.NONE:
        raise ValueError("NONE is no error: a client would take for done what has not been")
    return code


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
