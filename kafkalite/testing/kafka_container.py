"""An object with the methods of testcontainers' KafkaContainer, for suites that have one: only the import changes.

    from kafkalite.testing import KafkaContainer    # instead of: from testcontainers.kafka import KafkaContainer

    with KafkaContainer() as kafka:
        ...                                         # kafka.get_bootstrap_server()

There is no container behind it. Environment variables that name a setting of the broker (`KAFKA_NUM_PARTITIONS`) take
effect; those about listeners, directories and the shape of the cluster, and everything about images, networks and
volumes, do not.
Source: testcontainers-python, modules/kafka and core/container.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

from kafkalite.config.broker_config import BrokerConfig
from kafkalite.testing.broker import Broker

HOST = "127.0.0.1"

_OF_THE_CONTAINER = frozenset({
    "advertised.listeners", "broker.id", "inter.broker.listener.name", "listener.security.protocol.map", "listeners",
    "log.dir", "log.dirs", "metrics.listener", "zookeeper.connect",
})  # fmt: skip

_OF_NO_EFFECT = ("waiting_for", "maybe_emulate_amd64")
_OF_DOCKER = (
    "copy_from_container", "copy_into_container", "create_file", "exec", "get_container_id", "get_container_info",
    "get_docker_client", "get_wrapped_container", "wait",
)  # fmt: skip


class KafkaContainer:
    """`image` is ignored, and so is `port`, the one inside a container."""

    def __init__(
        self, image: str = "", port: int = 9093, *_: Any, env: Mapping[str, object] | None = None, **__: Any
    ) -> None:
        self.image = image
        self.port = port
        self.env: dict[str, str] = {name: str(value) for name, value in (env or {}).items()}
        self.kraft_enabled = False
        self._broker: Broker | None = None

    @property
    def broker(self) -> Broker:
        """Raises RuntimeError before `start`."""
        if self._broker is None:
            raise RuntimeError("this broker is not running: start() comes first")
        return self._broker

    def start(self, timeout: float = 30) -> KafkaContainer:
        """Clients may connect when this returns. Raises ConfigError for a setting with a wrong value."""
        if self._broker is None:
            self._broker = Broker(**self._settings()).__enter__()
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """Stop the broker and remove its data. Does nothing when it does not run."""
        broker, self._broker = self._broker, None
        if broker is not None:
            broker.__exit__()

    def __enter__(self) -> KafkaContainer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _settings(self) -> dict[str, Any]:
        names = BrokerConfig.by_name.keys() - _OF_THE_CONTAINER
        given = {
            name.removeprefix("KAFKA_").lower().replace("_", "."): value
            for name, value in self.env.items()
            if name.startswith("KAFKA_")
        }
        return {name.replace(".", "_"): value for name, value in given.items() if name in names}

    # --- addresses

    def get_bootstrap_server(self) -> str:
        """host:port for clients."""
        return self.broker.bootstrap_servers

    def get_container_host_ip(self) -> str:
        return HOST

    def get_exposed_port(self, port: int) -> int:
        """The broker's port, for any `port`."""
        return self.broker.port

    # --- settings before the start

    def with_env(self, key: str, value: object) -> KafkaContainer:
        self.env[key] = str(value)
        return self

    def with_envs(self, **variables: object) -> KafkaContainer:
        for key, value in variables.items():
            self.with_env(key, value)
        return self

    def with_env_file(self, env_file: str | PathLike[str]) -> KafkaContainer:
        """Lines of NAME=value. Raises OSError."""
        for line in Path(env_file).read_text(encoding="utf-8").splitlines():
            name, equals, value = line.strip().removeprefix("export ").partition("=")
            if equals and not name.startswith("#"):
                value = value.strip()
                is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
                self.with_env(name.strip(), value[1:-1] if is_quoted else value)
        return self

    def with_kraft(self) -> KafkaContainer:
        """No effect: a broker by itself needs no ZooKeeper."""
        self.kraft_enabled = True
        return self

    def with_cluster_id(self, cluster_id: str) -> KafkaContainer:
        """No effect: each start is a cluster of its own."""
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("with_") or name in _OF_NO_EFFECT:  # no container has names, networks or volumes here
            return lambda *_, **__: self
        if name in _OF_DOCKER:
            return partial(self._refuse, name)
        raise AttributeError(f"KafkaContainer of kafkalite has no {name!r}")

    def _refuse(self, name: str, *given: object, **_: object) -> NoReturn:
        """Raises NotImplementedError."""
        raise NotImplementedError(
            f"there is no container for {name}({', '.join(map(repr, given))}); kafkalite's broker creates topics and "
            "returns records itself: see `broker`"
        )

    # --- state

    @property
    def status(self) -> str:
        """Docker's word: running, or created before the start and after the end."""
        return "created" if self._broker is None else "running"

    def reload(self) -> None:
        """No effect: `status` is always up to date."""

    def get_logs(self) -> tuple[bytes, bytes]:
        """Nothing: the broker logs with `logging`, as the test does."""
        return b"", b""
