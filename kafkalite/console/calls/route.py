"""A route as a value: the table of routes is what routes requests, checks them, and describes itself to programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalite.console.request.parameters import Parameter

if TYPE_CHECKING:
    from kafkalite.client.cluster_client import ClusterClient
    from kafkalite.client.history import History
    from kafkalite.console.brokers.broker_pool import BrokerPool
    from kafkalite.console.calls.sessions import Session
    from kafkalite.console.decoders.schema_decoder import DecoderPool


class Download(NamedTuple):
    """Bytes to be saved as a file."""

    name: str
    media_type: str
    pieces: Iterator[bytes]


class Event(NamedTuple):
    """One event of a stream: record, progress, done or error."""

    name: str
    data: Any


@dataclass(slots=True)
class Call:
    """One request, checked. `cluster` is borrowed for its time, `pool` is where it comes from."""

    path: dict[str, Any]
    query: dict[str, Any]
    body: dict[str, Any]
    session: Session
    cluster: ClusterClient
    pool: BrokerPool
    history: History
    decoders: DecoderPool
    timeout_s: float = 30.0


Handler = Callable[[Call], Any]
"""JSON, a Download, or an iterator of events. Runs in a thread. Raises ApiError, Unanswered, ConfigError."""


@dataclass(frozen=True, slots=True)
class Route:
    """`is_change`: refused unless the console may write. `streams`: the handler's result is an iterator of events, and
    the cluster is kept until its end. `answer`: a sentence about what comes back."""

    method: str
    path: str
    handler: Handler
    summary: str
    parameters: tuple[Parameter, ...] = field(default=())
    streams: bool = False
    downloads: bool = False

    @property
    def is_change(self) -> bool:
        return self.method != "GET"
