"""Faults on demand: `broker.faults`.

    with broker.faults.error("PRODUCE", "NOT_LEADER_OR_FOLLOWER", times=2, topic="orders"):
        ...                                     # the client retries, or does not

A fault spoils the requests that it chooses by API, topic, client and number; of several that match, the first one does.
`fired` lists the faults that have spoiled a request. Without faults, requests cost the same as on any broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol, Unpack

from kafkalite.common.errors import ErrorCode
from kafkalite.common.region import Part
from kafkalite.network.client_connection import Answer, ClientConnection, Handler, Pending
from kafkalite.server.broker_server import BrokerServer
from kafkalite.testing.faults import disruptions, spoils
from kafkalite.testing.faults.fault import (
    Call,
    Choice,
    Fault,
    FiredFault,
    RequestPattern,
    Spoil,
    await_answer,
    check_choice,
    error_code,
    hang_up,
)
from kafkalite.testing.faults.spoils import is_in_session, names_topic
from kafkalite.testing.records.stored_record import check_bool, check_number, check_text
from kafkalite.testing.requests.interception import Interception
from kafkalite.testing.requests.recorded_request import Frames, RecordedRequest, api_name

_KINDS = ("error", "delay", "disconnect", "blackhole", "truncate_response", "throttle", "corrupt")
_SECONDS_MAX = (1 << 31) // 1_000  # throttle_time_ms has 32 bits


class Crashable(Protocol):
    """The methods of `kafkalite.Broker` for crashes."""

    @property
    def is_running(self) -> bool: ...

    def crash(self, *, power_cut: bool = False) -> None: ...
    def restart(self) -> None: ...


class Faults:
    """May be used by any thread. `call` runs a function on the loop of the broker `server`.

    All methods that make a fault accept `topic`, `client_id`, `times` (1; None: no limit), `after` (requests that pass
    first), `probability` with `seed`, and `must_fire` (whether a `with` block fails if it did not).
    """

    def __init__(
        self,
        interception: Interception,
        server: Callable[[], BrokerServer],
        call: Callable[[Callable[[], Any]], Any] = lambda function: function(),
        broker: Crashable | None = None,
    ) -> None:
        self.fired: list[FiredFault] = []
        self._interception = interception
        self._server = server
        self._call = call
        self._broker = broker
        self._faults: list[Fault] = []
        self._held: set[asyncio.Future[Any]] = set()
        self._muted: dict[ClientConnection, asyncio.Future[None]] = {}

    # --- of requests

    def error(
        self,
        api: str,
        error: str | int | ErrorCode,
        *,
        topic: str | None = None,
        has_effect: bool = False,
        **which: Unpack[Choice],
    ) -> Fault:
        """Answer with one of Kafka's errors, by name or number, in every error field of the response. The request is
        not executed, except its part about other topics; with `has_effect` it is, and only the response is wrong. A
        Produce with acks=0 has no response: its connection is closed. Raises ValueError."""
        code = error_code(error)
        return self._add(
            f"error {code.name}", spoils.error(code, topic, has_effect=_flag(has_effect)), api, topic, which
        )

    def delay(
        self,
        seconds: float,
        api: str | None = None,
        *,
        topic: str | None = None,
        has_effect: bool = False,
        **which: Unpack[Choice],
    ) -> Fault:
        """Execute the request later, by the broker's clock; with `has_effect` at once, and only answer later."""
        _check_seconds(seconds)
        spoil = spoils.delay(seconds, self._sleep, has_effect=_flag(has_effect))
        return self._add(f"delay of {seconds:g} s", spoil, api, topic, which)

    def disconnect(
        self, api: str | None = None, *, topic: str | None = None, has_effect: bool = False, **which: Unpack[Choice]
    ) -> Fault:
        """Close the connection instead of executing the request; with `has_effect`, instead of answering it."""
        return self._add("disconnect", spoils.disconnect(has_effect=_flag(has_effect)), api, topic, which)

    def blackhole(
        self, api: str | None = None, *, topic: str | None = None, has_effect: bool = False, **which: Unpack[Choice]
    ) -> Fault:
        """Never answer, nor handle another request of that connection. With `has_effect` the request is executed."""
        return self._add("blackhole", spoils.blackhole(self._hold, has_effect=_flag(has_effect)), api, topic, which)

    def truncate_response(
        self, api: str | None = None, size: int | None = None, *, topic: str | None = None, **which: Unpack[Choice]
    ) -> Fault:
        """Send only the first bytes of the answer (None: half of it), and close the connection."""
        if size is not None and (not isinstance(size, int) or size < 0):
            raise ValueError(f"size is a number of bytes, 0 or more, or None for half of the answer; not {size!r}")
        return self._add("truncated response", spoils.truncate(size), api, topic, which)

    def throttle(
        self, seconds: float, api: str | None = None, *, topic: str | None = None, **which: Unpack[Choice]
    ) -> Fault:
        """Answer with a throttle time, and mute the connection for that time (KIP-219)."""
        _check_seconds(seconds)
        spoil = spoils.throttle(round(seconds * 1000), self._mute)
        return self._add(f"throttle of {seconds:g} s", spoil, api, topic, which)

    def corrupt(self, topic: str | None = None, *, api: str = "Fetch", **which: Unpack[Choice]) -> Fault:
        """Flip a bit of each record batch in the response to a Fetch, or to a ShareFetch if that is the `api`; one
        without batches does not count. The log is not changed. Raises ValueError for another API."""
        if api_name(api) not in ("Fetch", "ShareFetch"):
            raise ValueError(f"only the answers to Fetch and ShareFetch have records, not those to {api}")
        return self._add("corrupt records", spoils.corrupt(topic), api, topic, which)

    def load(self, faults: Iterable[Mapping[str, Any]]) -> list[Fault]:
        """Add the faults of a file: {"fault": "error", "api": "PRODUCE", "error": "REQUEST_TIMED_OUT", "times": 2}.
        Raises ValueError."""
        if isinstance(faults, str | Mapping):
            raise ValueError(f"faults are a list, not {faults!r}")
        made: list[Fault] = []
        try:
            for given in faults:
                made.append(self._loaded(given))
        except ValueError:
            for fault in made:  # all of them, or none
                fault.remove()
            raise
        return made

    def _loaded(self, given: Mapping[str, Any]) -> Fault:
        if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
            raise ValueError(f"a fault is a mapping of names, not {given!r}")
        arguments = dict(given)
        kind = arguments.pop("fault", None)
        if kind not in _KINDS:
            raise ValueError(f"a fault is one of {', '.join(_KINDS)}, not {kind!r}")
        try:
            made: Fault = getattr(self, str(kind))(**arguments)
        except TypeError as error:
            raise ValueError(f"fault {kind}: {str(error).partition('() ')[2] or error}") from None
        return made

    # --- of groups, producers

    def fence(self, transactional_id: str) -> None:
        """Fence the producer with that transactional.id, as a new producer with the id would. Raises ValueError if
        there is none."""
        self._disrupt("fence", f"transactional.id {transactional_id!r}", disruptions.fence, transactional_id)

    def rebalance(self, group: str) -> None:
        """Make the group rebalance: all members of a classic group join again; those of a consumer group give up their
        partitions with their next heartbeats, and get some with the heartbeats after that; those of a share group,
        where nothing is given up, take a new epoch. Raises ValueError if it has no members."""
        self._disrupt("rebalance", f"group {group!r}", disruptions.rebalance, group)

    def expire_session(self, group: str, member_id: str) -> None:
        """Remove a member from its group, as after a session timeout. Raises ValueError if it is no member."""
        about = f"member {member_id!r} of group {group!r}"
        self._disrupt("expired session", about, disruptions.expire_session, group, member_id)

    def _disrupt(self, name: str, about: str, disruption: Callable[..., None], *given: str) -> None:
        def disrupt() -> None:
            server = self._server()
            disruption(server, *given)
            self._note(server, name, about)

        self._call(disrupt)

    def _note(self, server: BrokerServer, name: str, about: str) -> None:
        self.fired.append(FiredFault(datetime.fromtimestamp(server.clock.wall_ms() / 1000, UTC), name, about))

    # --- of the broker

    def crash(self, *, power_cut: bool = False) -> None:
        """As `Broker.crash`."""
        crashable = self._crashable
        server = self._server() if crashable.is_running else None
        crashable.crash(power_cut=power_cut)
        if server is not None:
            self._note(server, "crash", "power cut" if power_cut else "kill -9")

    def restart(self) -> None:
        """As `Broker.restart`."""
        self._crashable.restart()

    @property
    def _crashable(self) -> Crashable:
        if self._broker is None:
            raise RuntimeError(
                "only a broker in a `with` block of its own can crash; one of a cluster is killed by `Cluster.kill`"
            )
        return self._broker

    # --- all of them

    @property
    def active(self) -> list[Fault]:
        return list(self._faults)

    def check(self) -> None:
        """Raises AssertionError if there is a fault that must fire, and has not."""
        silent = [str(fault) for fault in self._faults if fault.must_fire and not fault.fired]
        if silent:
            raise AssertionError(f"these faults never fired: {'; '.join(silent)}")

    def clear(self) -> None:
        """Remove all faults and the list of fired ones, and drop held requests: their connections close."""
        self._faults.clear()
        self.fired.clear()
        self._interception.remove(self._intercept)
        for held in list(self._held):
            held.get_loop().call_soon_threadsafe(held.cancel)

    def forget_connections(self) -> None:
        """Drops requests that were held before a restart: they have ended with the earlier loop."""
        self._held.clear()
        self._muted.clear()

    def _add(self, name: str, spoil: Spoil, api: str | None, topic: str | None, which: Choice) -> Fault:
        check_choice(which)
        check_text("topic", topic, or_none=True)
        must_fire = which.pop("must_fire", True)
        pattern = RequestPattern(api, topic=topic, **which)  # type: ignore[misc]  # without must_fire
        fault = Fault(name, pattern, spoil, self._remove, must_fire)
        self._faults.append(fault)
        if len(self._faults) == 1:
            self._interception.remove(self._intercept)  # it may still exist for a throttled connection
            self._interception.add(self._intercept)
        return fault

    def _remove(self, fault: Fault) -> None:
        if fault in self._faults:
            self._faults.remove(fault)
        if not self._faults and not self._muted:
            self._interception.remove(self._intercept)

    # --- on the broker's loop

    def _intercept(self, connection: ClientConnection, frame: memoryview, following: Handler) -> Answer:
        muted = self._muted.get(connection)
        if muted is not None:
            return Pending.of(self._after(muted, connection, bytearray(frame), following))
        server = self._server()
        kept = Frames(0, server.clock.wall_ms(), f"{connection.host}:{connection.port}", bytes(frame))
        request = RecordedRequest(kept)
        for fault in list(self._faults):
            call = Call(
                request, server, lambda frame: following(connection, memoryview(bytearray(frame))),
                lambda: hang_up(server, connection), connection, partial(self._miss, fault, request),
            )  # fmt: skip
            topic = fault.pattern.topic
            if fault.pattern.chooses(request, names_topic=topic is None or self._names(call, topic)):
                fault.fired += 1
                self.fired.append(_fired(fault, request))
                return fault.spoil(call)
        return following(connection, frame)

    def _miss(self, fault: Fault, request: RecordedRequest) -> None:
        fault.fired -= 1
        fault.pattern.give_back()
        if (fired := _fired(fault, request)) in self.fired:  # otherwise they have been cleared
            self.fired.remove(fired)

    def _names(self, call: Call, topic: str) -> bool:
        request, topic_id = call.request.request, spoils.topic_id(call, topic)
        if request is None or names_topic(request, topic, topic_id):
            return request is not None
        return is_in_session(call.server, request, topic, topic_id)

    async def _after(
        self, moment: asyncio.Future[None], connection: ClientConnection, frame: bytearray, following: Handler
    ) -> list[Part] | None:
        await asyncio.shield(moment)
        return await await_answer(self._intercept(connection, memoryview(frame), following))

    def _sleep(self, call: Call, seconds: float) -> asyncio.Future[None]:
        over = self._hold()
        call.server.clock.call_later(seconds * 1000, lambda: None if over.done() else over.set_result(None))
        return over

    def _hold(self) -> asyncio.Future[Any]:
        held: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._held.add(held)
        held.add_done_callback(self._held.discard)
        return held

    def _mute(self, call: Call, milliseconds: int) -> None:
        over = self._muted[call.connection] = self._sleep(call, milliseconds / 1000)
        over.add_done_callback(lambda _: self._muted.pop(call.connection, None))


def _flag(has_effect: bool) -> bool:
    check_bool("has_effect", has_effect)
    return has_effect


def _check_seconds(seconds: float) -> None:
    check_number("seconds", seconds)
    if not 0 <= seconds <= _SECONDS_MAX:
        raise ValueError(f"seconds is 0 to {_SECONDS_MAX}, not {seconds!r}")


def _fired(fault: Fault, request: RecordedRequest) -> FiredFault:
    return FiredFault(request.time, str(fault), f"{request.api} v{request.version} from {request.client_id!r}")
