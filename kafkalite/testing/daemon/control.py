"""The control of a test's broker over HTTP, for tests in other languages: what Python has as `broker.faults`,
`broker.clock`, `broker.records` and so on.

It is on the metrics listener, off unless a token is given, and every request has to bring that token:
`Authorization: Bearer TOKEN`. Bodies and answers are JSON; the table of docs/testing.md lists them. Text that is no
UTF-8 is given in base64, under the name with `_base64` behind it.
"""

from __future__ import annotations

import hmac
import json
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from kafkalite.common.errors import KafkaError, StorageError

if TYPE_CHECKING:
    from kafkalite.server.metrics_endpoint import HttpRequest
    from kafkalite.testing.async_broker import AsyncBroker
    from kafkalite.testing.records.payload import Payload
    from kafkalite.testing.records.stored_record import StoredRecord

PREFIX = "/control/"
TOKEN_LENGTH_MIN = 16
_RECORDS_MAX = 10_000

Action = Callable[["AsyncBroker", dict[str, Any]], Awaitable[object]]


class Control:
    """Belongs to the broker's loop. Raises ValueError for a token that could be guessed."""

    def __init__(self, broker: AsyncBroker, token: str) -> None:
        if len(token) < TOKEN_LENGTH_MIN:
            raise ValueError(f"the token has {len(token)} characters, and must have {TOKEN_LENGTH_MIN} or more")
        self._broker = broker
        self._token = token.encode()

    async def answer(self, request: HttpRequest) -> tuple[int, bytes]:
        """The status and the JSON of the answer."""
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
            arguments = json.loads(request.body or b"{}")
            if not isinstance(arguments, dict):
                raise ValueError("the body is a JSON object")
            return 200, await action(self._broker, {**dict(parse_qsl(url.query)), **arguments})
        except KafkaError as error:
            return 409, {"error": str(error), "code": error.code.name}
        except (ValueError, TypeError, KeyError) as error:
            missing = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            return 400, {"error": missing}
        except (RuntimeError, StorageError, TimeoutError) as error:
            return 409, {"error": str(error)}


async def _describe(broker: AsyncBroker, _: dict[str, Any]) -> object:
    return {"bootstrap_servers": broker.bootstrap_servers, "topics": broker.topics, "cluster_id": broker.cluster_id}


async def _reset(broker: AsyncBroker, _: dict[str, Any]) -> object:
    await broker.reset()
    return {}


async def _topics(broker: AsyncBroker, _: dict[str, Any]) -> object:
    return broker.topics


async def _create_topic(broker: AsyncBroker, arguments: dict[str, Any]) -> object:
    await broker.create_topic(str(arguments.pop("name")), int(arguments.pop("partitions", 1)), **arguments)
    return {}


async def _delete_topic(broker: AsyncBroker, arguments: dict[str, Any]) -> object:
    await broker.delete_topic(str(arguments["name"]))
    return {}


async def _records(broker: AsyncBroker, arguments: dict[str, Any]) -> object:
    """With `count` it waits for so many."""
    isolation = arguments.get("isolation", "read_uncommitted")
    partition = arguments.get("partition")
    topic = str(arguments["topic"])
    if "count" in arguments:
        await broker.wait_for(
            topic, int(arguments["count"]), timeout=float(arguments.get("timeout_s", 30)), isolation=isolation
        )
    found = broker.records(topic, None if partition is None else int(partition), isolation=isolation)
    if len(found) > _RECORDS_MAX:
        raise ValueError(f"the topic has {len(found)} records, more than the {_RECORDS_MAX} of an answer")
    return [_record(record) for record in found]


def _record(record: StoredRecord) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_shown("key", record.key),
        **_shown("value", record.value),
    }
    shown["headers"] = [{"name": name, **_shown("value", value)} for name, value in record.headers]
    return shown


def _shown(name: str, data: bytes | None) -> dict[str, Any]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}


async def _produce(broker: AsyncBroker, arguments: dict[str, Any]) -> object:
    headers = arguments.pop("headers", {})
    stored = await broker.produce(
        str(arguments["topic"]),
        _given(arguments, "value"),
        key=_given(arguments, "key"),
        headers=headers,
        partition=arguments.get("partition"),
        timestamp=arguments.get("timestamp"),
    )
    return {"partition": stored.partition, "offset": stored.offset, "timestamp": stored.timestamp}


def _given(arguments: dict[str, Any], name: str) -> Payload:
    encoded = arguments.get(f"{name}_base64")
    given: Payload = b64decode(encoded, validate=True) if encoded is not None else arguments.get(name)
    return given


async def _groups(broker: AsyncBroker, _: dict[str, Any]) -> object:
    return {
        group_id: {
            "state": group.state,
            "generation": group.generation,
            "members": [
                {
                    "member_id": one.member_id,
                    "client_id": one.client_id,
                    "partitions": [list(p) for p in one.partitions],
                }
                for one in group.members
            ],
            "offsets": [[topic, index, offset] for (topic, index), offset in sorted(group.offsets.items())],
            "lag": broker.lag(group_id),
        }
        for group_id, group in broker.groups.items()
    }


async def _maintain(broker: AsyncBroker, arguments: dict[str, Any]) -> object:
    if arguments["what"] == "compact":
        await broker.compact(str(arguments["topic"]))
    elif arguments["what"] == "roll":
        broker.roll(str(arguments["topic"]))
    elif arguments["what"] == "expire":
        broker.expire()
    else:
        raise ValueError("what is compact, roll or expire")
    return {}


async def _clock(broker: AsyncBroker, _: dict[str, Any]) -> object:
    return {"now": broker.clock.now.isoformat(), "frozen": broker.clock.is_frozen}


async def _turn_clock(broker: AsyncBroker, arguments: dict[str, Any]) -> object:
    for what, value in arguments.items():
        if what == "set":
            broker.clock.set(datetime.fromisoformat(value))
        elif what == "advance":
            await broker.clock.advance(**value)
        elif what == "frozen":
            (broker.clock.freeze if value else broker.clock.resume)()
        else:
            raise ValueError(f"a clock takes set, advance and frozen, not {what}")
    return await _clock(broker, {})


async def _faults(broker: AsyncBroker, _: dict[str, Any]) -> object:
    return {
        "active": [{"fault": str(fault), "fired": fault.fired} for fault in broker.faults.active],
        "fired": [
            {"time": fired.time.isoformat(), "fault": fired.fault, "request": fired.request}
            for fired in broker.faults.fired
        ],
    }


async def _make_fault(broker: AsyncBroker, arguments: dict[str, Any]) -> object:
    """Of requests, or one of fence, rebalance, expire_session."""
    kind = arguments.get("fault")
    if kind in ("fence", "rebalance", "expire_session"):
        getattr(broker.faults, kind)(**{name: value for name, value in arguments.items() if name != "fault"})
        return {}
    [fault] = broker.faults.load([arguments])
    return {"fault": str(fault)}


async def _clear_faults(broker: AsyncBroker, _: dict[str, Any]) -> object:
    broker.faults.clear()
    return {}


async def _requests(broker: AsyncBroker, arguments: dict[str, Any]) -> object:
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


async def _record_requests(broker: AsyncBroker, arguments: dict[str, Any]) -> object:
    (broker.requests.start if arguments["record"] else broker.requests.stop)()
    return {}


async def _clear_requests(broker: AsyncBroker, _: dict[str, Any]) -> object:
    broker.requests.clear()
    return {}


_ACTIONS: dict[str, dict[str, Action]] = {
    "broker": {"GET": _describe},
    "reset": {"POST": _reset},
    "topics": {"GET": _topics, "POST": _create_topic, "DELETE": _delete_topic},
    "records": {"GET": _records, "POST": _produce},
    "groups": {"GET": _groups},
    "maintenance": {"POST": _maintain},
    "clock": {"GET": _clock, "POST": _turn_clock},
    "faults": {"GET": _faults, "POST": _make_fault, "DELETE": _clear_faults},
    "requests": {"GET": _requests, "POST": _record_requests, "DELETE": _clear_requests},
}
