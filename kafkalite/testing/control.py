"""The control of a test's broker over HTTP: its records, groups, clock, faults and requests, for any language.

It is for tests in other languages: `broker.faults`, `broker.clock`, `broker.records` etc. It is on the metrics
listener, off unless a token is configured, and every request needs that token: `Authorization: Bearer TOKEN`. Bodies
and responses are JSON; the table of docs/testing.md lists them. Text that is no UTF-8 is in base64, under the name
followed by `_base64`.
"""

from __future__ import annotations

import hmac
import json
import logging
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import datetime
from inspect import isawaitable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from kafkalite.common.errors import KafkaError, StorageError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.text import read_json
from kafkalite.testing.async_broker import AsyncBroker
from kafkalite.testing.records.stored_record import check_bool, check_integer, check_text
from kafkalite.testing.requests.recorded_request import suggestions

if TYPE_CHECKING:
    from kafkalite.server.metrics_endpoint import HttpRequest
    from kafkalite.testing.records.stored_record import Payload, StoredRecord

logger = logging.getLogger(__name__)

PREFIX = "/control/"
TOKEN_LENGTH_MIN = 16
TIMEOUT_S_MAX = 30
_RECORDS_MAX = 10_000


class Action(NamedTuple):
    """One action of the control. `takes` are the names of its arguments; None: it checks them itself."""

    carry_out: Callable[[AsyncBroker, dict[str, Any]], object]  # or a coroutine
    takes: tuple[str, ...] | None = ()

    def check(self, given: dict[str, Any]) -> None:
        """Raises ValueError for an unknown argument: one with a misspelt name would have no effect."""
        takes = given if self.takes is None else self.takes
        for name in given:
            if name not in takes:
                there_are = f"there are {', '.join(takes)}" if takes else "there are none"
                raise ValueError(f"no argument is named {name!r}{suggestions(name, takes) or f'; {there_are}'}")


class Control:
    """The control over HTTP. Belongs to the broker's loop. Raises ValueError for a token that is too short."""

    def __init__(self, broker: AsyncBroker, token: str) -> None:
        if len(token) < TOKEN_LENGTH_MIN:
            raise ValueError(f"the token has {len(token)} characters, and must have {TOKEN_LENGTH_MIN} or more")
        self._broker = broker
        self._token = token.encode()

    async def answer(self, request: HttpRequest) -> tuple[int, bytes]:
        """The status and the JSON of the response."""
        status, answer = await self._answer(request)
        return status, json.dumps(answer).encode() + b"\n"

    async def _answer(self, request: HttpRequest) -> tuple[int, object]:
        given = (request.authorization or "").removeprefix("Bearer ").encode()
        if not hmac.compare_digest(given, self._token):
            return 401, {"error": "the header `Authorization: Bearer TOKEN` is missing, or has another token"}
        url = urlsplit(request.target)
        methods = _ACTIONS.get(url.path.removeprefix(PREFIX))
        if methods is None:
            return 404, {"error": f"there are {', '.join(PREFIX + path for path in _ACTIONS)}"}
        action = methods.get(request.method)
        if action is None:
            return 405, {"error": f"{url.path} takes {', '.join(methods)}"}
        try:
            arguments = read_json(request.body or b"{}")
            if not isinstance(arguments, dict):
                raise ValueError("the body is a JSON object")
            arguments = {**dict(parse_qsl(url.query)), **arguments}
            action.check(arguments)
            result = action.carry_out(self._broker, arguments)
            result = await result if isawaitable(result) else result
            return 200, {} if result is None else result
        except KafkaError as error:
            return 409, {"error": str(error), "code": error.code.name}
        except (ValueError, TypeError, KeyError) as error:
            missing = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            return 400, {"error": missing}
        except (RuntimeError, StorageError, TimeoutError) as error:
            return 409, {"error": str(error)}
        except Exception as error:  # the client gets a response
            logger.exception("%s %s failed", request.method, url.path)
            return 500, {"error": repr(error)}


def _text(arguments: dict[str, Any], name: str) -> str:
    """Raises KeyError if it is missing, TypeError."""
    value = arguments[name]
    check_text(name, value)
    return str(value)


def _integer(arguments: dict[str, Any], name: str) -> int | None:
    """A number, or one as text, as a query has it; None if it is missing. Raises TypeError."""
    value = arguments.get(name)
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) < 20:
        return int(value)
    check_integer(name, value, or_none=True)
    return None if value is None else int(value)


def _describe(broker: AsyncBroker, _: dict[str, Any]) -> object:
    return {"bootstrap_servers": broker.bootstrap_servers, "topics": broker.topics, "cluster_id": broker.cluster_id}


async def _create_topic(broker: AsyncBroker, arguments: dict[str, Any]) -> None:
    """Creates a topic. All other arguments are its settings."""
    name, partitions = _text(arguments, "name"), _integer(arguments, "partitions")
    settings = {key: value for key, value in arguments.items() if key not in ("name", "partitions")}
    await broker.create_topic(name, 1 if partitions is None else partitions, **settings)


async def _records(broker: AsyncBroker, arguments: dict[str, Any]) -> object:
    """The records of a topic. With `count` it waits for that many."""
    isolation = arguments.get("isolation", "read_uncommitted")
    topic, partition, count = _text(arguments, "topic"), _integer(arguments, "partition"), _integer(arguments, "count")
    timeout_s = float(arguments.get("timeout_s", TIMEOUT_S_MAX))
    if not 0 <= timeout_s <= TIMEOUT_S_MAX:
        raise ValueError(f"timeout_s is 0 to {TIMEOUT_S_MAX}, not {timeout_s:g}")
    if count is not None:
        await broker.wait_for(topic, count, timeout=timeout_s, isolation=isolation)
    found = broker.records(topic, partition, isolation=isolation)
    if len(found) > _RECORDS_MAX:
        raise ValueError(f"the topic has {len(found)} records, more than the {_RECORDS_MAX} of an answer")
    return [_record(record) for record in found]


def _record(record: StoredRecord) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_rendered("key", record.key),
        **_rendered("value", record.value),
    }
    shown["headers"] = [{"name": name, **_rendered("value", value)} for name, value in record.headers]
    return shown


def _rendered(name: str, data: bytes | None) -> dict[str, Any]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}


async def _produce(broker: AsyncBroker, arguments: dict[str, Any]) -> object:
    stored = await broker.produce(
        _text(arguments, "topic"),
        _given(arguments, "value"),
        key=_given(arguments, "key"),
        headers=arguments.get("headers", {}),
        partition=_integer(arguments, "partition"),
        timestamp=_integer(arguments, "timestamp"),
    )
    return {"partition": stored.partition, "offset": stored.offset, "timestamp": stored.timestamp}


def _given(arguments: dict[str, Any], name: str) -> Payload:
    encoded = arguments.get(f"{name}_base64")
    if encoded is None:
        given: Payload = arguments.get(name)
        return given
    if arguments.get(name) is not None:
        raise ValueError(f"{name} and {name}_base64 are the same: give one of them")
    check_text(f"{name}_base64", encoded)
    return b64decode(encoded, validate=True)


def _groups(broker: AsyncBroker, _: dict[str, Any]) -> object:
    return {
        group_id: {
            "kind": group.kind,
            "state": group.state,
            "generation": group.generation,
            "target_epoch": group.target_epoch,
            "members": [
                {
                    "member_id": one.member_id,
                    "client_id": one.client_id,
                    "partitions": [list(p) for p in one.partitions],
                    "epoch": one.epoch,
                    "target": None if one.target is None else [list(p) for p in one.target],
                }
                for one in group.members
            ],
            "offsets": [[topic, index, offset] for (topic, index), offset in sorted(group.offsets.items())],
            "lag": broker.lag(group_id),
        }
        for group_id, group in broker.groups.items()
    }


def _share_group(broker: AsyncBroker, arguments: dict[str, Any]) -> object:
    described = broker.share_group(_text(arguments, "group")).describe()
    return {
        "state": described.state,
        "epoch": described.epoch,
        "members": [
            {"member_id": one.member_id, "client_id": one.client_id, "partitions": [list(p) for p in one.partitions]}
            for one in described.members
        ],
        "partitions": [
            {
                "topic": topic,
                "partition": index,
                "start_offset": one.start_offset,
                "acknowledged": one.acknowledged,
                "archived": one.archived,
                "lock_timeouts": one.lock_timeouts,
                "in_flight": [
                    {
                        "offset": record.offset,
                        "state": record.state,
                        "delivery_count": record.delivery_count,
                        "member_id": record.member_id,
                        "acquired_at": record.acquired_at and record.acquired_at.isoformat(),
                        "locked_until": record.locked_until and record.locked_until.isoformat(),
                    }
                    for record in one.in_flight
                ],
            }
            for (topic, index), one in described.partitions.items()
        ],
    }


def _expire_locks(broker: AsyncBroker, arguments: dict[str, Any]) -> object:
    return {"records": broker.share_group(_text(arguments, "expire_locks")).expire_locks()}


async def _maintain(broker: AsyncBroker, arguments: dict[str, Any]) -> None:
    if arguments["what"] == "compact":
        await broker.compact(_text(arguments, "topic"))
    elif arguments["what"] == "roll":
        broker.roll(_text(arguments, "topic"))
    elif arguments["what"] == "expire":
        broker.expire()
    else:
        raise ValueError("what is compact, roll or expire")


def _clock(broker: AsyncBroker, _: dict[str, Any]) -> object:
    return {"now": broker.clock.now.isoformat(), "frozen": broker.clock.is_frozen}


async def _set_clock(broker: AsyncBroker, arguments: dict[str, Any]) -> object:
    """Performs the changes of the clock in the given order."""
    for what, value in arguments.items():
        if what == "set":
            broker.clock.set(datetime.fromisoformat(_text(arguments, what)))
        elif what == "advance":
            if not isinstance(value, dict):
                raise TypeError(f'advance has units, as in {{"days": 8}}, and is not {value!r}')
            await broker.clock.advance(**value)
        else:
            check_bool(what, value)
            (broker.clock.freeze if value else broker.clock.resume)()
    return _clock(broker, {})


def _faults(broker: AsyncBroker, _: dict[str, Any]) -> object:
    return {
        "active": [{"fault": str(fault), "fired": fault.fired} for fault in broker.faults.active],
        "fired": [
            {"time": fired.time.isoformat(), "fault": fired.fault, "request": fired.request}
            for fired in broker.faults.fired
        ],
    }


def _make_fault(broker: AsyncBroker, arguments: dict[str, Any]) -> object:
    """Makes a fault of requests, or one of fence, rebalance, expire_session."""
    kind = arguments.get("fault")
    if isinstance(kind, str) and kind in _DISRUPTIONS:
        takes = _DISRUPTIONS[kind]
        Action(_make_fault, ("fault", *takes)).check(arguments)
        getattr(broker.faults, kind)(*(_text(arguments, name) for name in takes))
        return {}
    [fault] = broker.faults.load([arguments])
    return {"fault": str(fault)}


def _requests(broker: AsyncBroker, arguments: dict[str, Any]) -> object:
    found = broker.requests.of(arguments.get("api"), client_id=arguments.get("client_id"), topic=arguments.get("topic"))
    return [
        {
            "time": each.time.isoformat(),
            "api": each.api,
            "version": each.version,
            "client_id": each.client_id,
            "client": each.client,
            "topics": each.topics,
            "errors": each.errors,
            "took_ms": each.took_ms,
        }
        for each in found
    ]


def _record_requests(broker: AsyncBroker, arguments: dict[str, Any]) -> None:
    check_bool("record", arguments["record"])
    (broker.requests.start if arguments["record"] else broker.requests.stop)()


_DISRUPTIONS = {
    "fence": ("transactional_id",),
    "rebalance": ("group",),
    "expire_session": ("group", "member_id"),
}
_RECORD = ("topic", "key", "key_base64", "value", "value_base64", "headers", "partition", "timestamp")

_ACTIONS: dict[str, dict[str, Action]] = {
    "broker": {"GET": Action(_describe)},
    "reset": {"POST": Action(lambda broker, _: broker.reset())},
    "topics": {
        "GET": Action(lambda broker, _: broker.topics),
        "POST": Action(_create_topic, None),
        "DELETE": Action(lambda broker, arguments: broker.delete_topic(_text(arguments, "name")), ("name",)),
    },
    "records": {
        "GET": Action(_records, ("topic", "partition", "isolation", "count", "timeout_s")),
        "POST": Action(_produce, _RECORD),
    },
    "groups": {"GET": Action(_groups)},
    "share_group": {"GET": Action(_share_group, ("group",)), "POST": Action(_expire_locks, ("expire_locks",))},
    "maintenance": {"POST": Action(_maintain, ("what", "topic"))},
    "clock": {"GET": Action(_clock), "POST": Action(_set_clock, ("set", "advance", "frozen"))},
    "faults": {
        "GET": Action(_faults),
        "POST": Action(_make_fault, None),
        "DELETE": Action(lambda broker, _: broker.faults.clear()),
    },
    "requests": {
        "GET": Action(_requests, ("api", "client_id", "topic")),
        "POST": Action(_record_requests, ("record",)),
        "DELETE": Action(lambda broker, _: broker.requests.clear()),
    },
}
