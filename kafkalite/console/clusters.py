"""The clusters of one console: each is a console of its own below a path, with its own sessions, logins and history.

One cluster is served at the base path, several at BASE/NAME. A proxy may keep the base path or strip it.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.responses import PlainTextResponse, RedirectResponse

from kafkalite.client.broker_reports import generations, reports
from kafkalite.client.history import INTERVAL_MS, LAG_EVERY, History
from kafkalite.client.logins import ClientSecurity
from kafkalite.common.errors import ConfigError, Unanswered
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.console.app import Console
from kafkalite.console.brokers.broker_pool import BrokerPool
from kafkalite.console.brokers.mirrors import Mirrors
from kafkalite.console.calls.route import Sessions
from kafkalite.console.decoders.registry import SchemaRegistry
from kafkalite.console.decoders.schema_decoder import DecoderPool
from kafkalite.console.login import Login, Place
from kafkalite.console.request.parameters import ApiError
from kafkalite.console.single_sign_on import ISSUER, SingleSignOn

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

logger = logging.getLogger("kafkalite.console")

_BASE = re.compile(r"(/[A-Za-z0-9._~-]+)*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
_FIELDS = {"bootstrap": str, "properties": dict, "schema_registry": str, "mirrors": str, "write": bool}
_CLUSTERS_MAX = 100


class ServedCluster(NamedTuple):
    """A cluster of a console. `properties` are a Kafka client's: with SASL every user logs in, and a login in the
    properties is only used to sample. `name` is empty for the only one. `mirrors` are addresses of metrics."""

    bootstrap: str
    properties: Mapping[str, str]
    may_write: bool
    schema_registry: str | None = None
    name: str = ""
    mirrors: str | None = None


class Shared(NamedTuple):
    """Parts that all clusters of a console share. `names` are hosts that it accepts."""

    version: str
    names: tuple[str, ...]
    decoders: DecoderPool
    is_secure: bool


class ClusterConsole:
    """The console of one cluster at `path`; `siblings` are the names and paths of all."""

    def __init__(self, one: ServedCluster, shared: Shared, path: str, siblings: Sequence[tuple[str, str]]) -> None:
        """Raises ConfigError."""
        wants_login = one.properties.get("security.protocol", "").strip().upper().startswith("SASL_")
        pool = None if wants_login else BrokerPool(one.bootstrap, ClientSecurity.of(one.properties))
        self._sampled = pool
        if wants_login and "sasl.jaas.config" in one.properties:
            self._sampled = BrokerPool(one.bootstrap, ClientSecurity.of(one.properties))
        self._history = History(lambda: int(time.time() * 1000))
        self._sessions = Sessions(time.monotonic, pool)
        registry = SchemaRegistry.of(one.schema_registry, one.properties)
        mirrors = Mirrors.of(one.mirrors)
        place = Place(one.name, path, tuple(siblings), shared.is_secure)
        sign_on = SingleSignOn.of(one.properties)
        if sign_on is not None and not wants_login:
            raise ConfigError(f"{ISSUER} needs security.protocol=SASL_SSL or SASL_PLAINTEXT: brokers check the tokens")
        has = {"registry": registry is not None, "mirrors": mirrors is not None}
        login = Login(one.bootstrap, one.properties, self._sessions, one.may_write, has, place, sign_on)
        self.console = Console(
            self._sessions,
            self._history,
            login,
            one.may_write,
            shared.version,
            shared.names,
            registry,
            mirrors,
            path,
            shared.decoders,
        )
        self.application = self.console.application()

    def sample(self, stopping: threading.Event) -> None:
        """Samples every broker each five seconds, the groups less often. An unreachable cluster leaves a gap."""
        count = 0
        while not stopping.wait(0 if count == 0 else INTERVAL_MS / 1000):
            pool = self._sampled
            if pool is None:
                return
            try:
                with pool.borrow() as cluster:
                    self._history.add(reports(cluster, pool, "broker"))
                    if count % LAG_EVERY == 0:
                        self._history.add_lags(pool.groups.get(cluster))
                        self._history.add_generations(generations(cluster, pool))
            except (Unanswered, ConfigError, ApiError) as fault:
                logger.info("nothing was sampled: %s", fault)
            count += 1

    def close(self) -> None:
        """End the sessions."""
        self._sessions.close()


def checked_base(base: str) -> str:
    """The base path without a slash at its end. Raises ConfigError."""
    found = base.rstrip("/")
    if not _BASE.fullmatch(found):
        raise ConfigError(f"--base-path {base[:80]} must be a path such as /kafka")
    return found


def paths_of(clusters: Sequence[ServedCluster], base: str) -> list[tuple[str, str]]:
    """The name and the path of each cluster."""
    return [(one.name, f"{base}/{one.name}" if one.name else base) for one in clusters]


def mounted(base: str, applications: Mapping[str, ASGIApp]) -> ASGIApp:
    """The application that hands each request to that of its path, without the path."""
    only = applications.get(base)

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await next(iter(applications.values()))(scope, receive, send)
            return
        path = scope["path"]
        inside = path[len(base) :] if path == base or path.startswith(f"{base}/") else path
        if only is not None:
            if inside:
                await only({**scope, "path": inside}, receive, send)
            else:
                await RedirectResponse(f"{base}/")(scope, receive, send)
            return
        name, slash, rest = inside.removeprefix("/").partition("/")
        found = applications.get(f"{base}/{name}")
        if found is not None and slash:
            await found({**scope, "path": f"/{rest}"}, receive, send)
        elif found is not None or not name:
            await RedirectResponse(f"{base}/{name}/" if name else f"{next(iter(applications))}/")(scope, receive, send)
        else:
            await PlainTextResponse("there is no such cluster", 404)(scope, receive, send)

    return dispatch


def read_clusters(file: str, *, may_write: bool, read_properties: Any) -> list[ServedCluster]:
    """The clusters of a TOML file, a table for each: bootstrap, and perhaps properties (a table, or the path of a file
    from there on), schema_registry, mirrors and write, which needs --write as well. Raises ConfigError."""
    try:
        found = tomllib.loads(Path(file).read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as fault:
        raise ConfigError(f"--clusters {file}: {getattr(fault, 'strerror', None) or fault}") from None
    if not found or len(found) > _CLUSTERS_MAX:
        raise ConfigError(f"--clusters {file}: it must have one to {_CLUSTERS_MAX} tables, such as [production]")
    clusters = []
    for name, table in found.items():
        where = f"--clusters {file}: [{name}]"
        if not _NAME.fullmatch(name) or not isinstance(table, dict):
            raise ConfigError(f"{where} must be a table, named by letters, digits, dots, dashes and underscores")
        if isinstance(table.get("properties"), str):
            table["properties"] = read_properties(str(Path(file).parent / table["properties"]))
        for key, value in table.items():
            if key not in _FIELDS or type(value) is not _FIELDS[key]:
                raise ConfigError(f"{where} has {key!r}; there are {', '.join(_FIELDS)}, each of its type")
        if not table.get("bootstrap"):
            raise ConfigError(f"{where} has no bootstrap, such as kafka1:9092")
        properties = {key: str(value) for key, value in table.get("properties", {}).items()}
        writes = may_write and table.get("write", False)
        one = ServedCluster(table["bootstrap"], properties, writes, table.get("schema_registry"), name)
        clusters.append(one._replace(mirrors=table.get("mirrors")))
    return clusters
