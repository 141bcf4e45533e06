"""The settings of each of several brokers on one machine, made from the settings of one.

    broker.id         counted up from the configured one (0)
    listeners         ports counted up from the configured ones; port 0 stays any free one. advertised.listeners and
                      metrics.listener likewise
    log.dirs          a directory `broker<id>` in each that is configured; the first also has `zookeeper`, for our own

The name of such a directory has no dash before its number: with a dash it would be a partition's, if the directory
around it were ever taken for a broker's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.listeners import ListenerConfig, metrics_listener
from kafkalite.log.storage.file_names import META_PROPERTIES

BROKERS_MAX = 100  # each is a process of 30 MB
OWN_SESSION_TIMEOUT_MS = 6_000  # with a ZooKeeper beside us, where no network is in between (Kafka's default: 18 s)
_PORT_MAX = 65_535


class BrokerPlan(NamedTuple):
    """One broker: its id and all its settings, as text by Kafka's names. `adopts`: it takes over the data in its
    directories when it is started for the first time."""

    broker_id: int
    properties: Mapping[str, str]
    adopts: bool = False


class ClusterPlan(NamedTuple):
    """`directory` has the files that all share. `connect` is the ZooKeeper that was named, empty if none was."""

    brokers: tuple[BrokerPlan, ...]
    directory: str
    connect: str


def plan(properties: Mapping[str, str], count: int, *, adopts: bool = False) -> ClusterPlan:
    """Plans `count` brokers from `properties`, which are meant for one. With `adopts` the brokers whose directories
    have data take them over. Raises ConfigError."""
    if not 1 <= count <= BROKERS_MAX:
        raise ConfigError(f"-n {count} must be from 1 to {BROKERS_MAX} brokers")
    config = BrokerConfig.load(properties)
    first_id = max(0, config.broker_id)
    brokers = tuple(BrokerPlan(first_id + i, _properties_of(properties, config, first_id + i, i)) for i in range(count))
    if adopts:
        brokers = tuple(broker._replace(adopts=_has_data(broker)) for broker in brokers)
        if not any(broker.adopts for broker in brokers):
            raise ConfigError(
                f"--adopt: there is nothing to take over in {brokers[0].properties['log.dirs']} and further brokers' "
                f"directories; move that of a single broker to {config.data_dirs[0]}/broker{first_id}"
            )
    _check_ports([BrokerConfig.load(broker.properties) for broker in brokers])
    return ClusterPlan(brokers, config.data_dirs[0], properties.get("zookeeper.connect", "").strip())


def with_zookeeper(broker: BrokerPlan, connect: str) -> BrokerPlan:
    """The same broker with a ZooKeeper of our own."""
    own = {"zookeeper.session.timeout.ms": str(OWN_SESSION_TIMEOUT_MS), **broker.properties}
    return broker._replace(properties={**own, "zookeeper.connect": connect})


def check_directory(directory: str) -> None:
    """Raises ConfigError when this is the directory of a single broker, which would seem to have lost its topics."""
    try:
        names = os.listdir(directory)
    except OSError:
        return  # not there yet; or the first attempt to write there says what is wrong
    if META_PROPERTIES in names and not any(name.startswith("broker") for name in names):
        raise ConfigError(
            f"{directory} holds the data of a single broker; give several brokers another --data-dir. How a single "
            "broker becomes one of a cluster stands in docs/zookeeper.md"
        )


def check_is_not_of_several(directory: str) -> None:
    """Raises ConfigError when a single broker is given the directory of several, whose topics it would not have."""
    first = next(iter(sorted(Path(directory).glob(f"broker[0-9]*/{META_PROPERTIES}"))), None)
    if first is not None and not os.path.exists(os.path.join(directory, META_PROPERTIES)):
        raise ConfigError(
            f"{directory} holds the data of several brokers, such as {first.parent.name}: start them with -n, or give "
            "a single broker another --data-dir (log.dirs)"
        )


def _has_data(broker: BrokerPlan) -> bool:
    return any(os.path.exists(os.path.join(one, META_PROPERTIES)) for one in broker.properties["log.dirs"].split(","))


def _properties_of(properties: Mapping[str, str], config: BrokerConfig, broker_id: int, step: int) -> dict[str, str]:
    own = {name: text for name, text in properties.items() if name not in ("node.id", "log.dir")}
    own["broker.id"] = str(broker_id)
    own["log.dirs"] = ",".join(os.path.join(directory, f"broker{broker_id}") for directory in config.data_dirs)
    own["listeners"] = _counted_up(config.listeners, step)
    if config.advertised_listeners:
        own["advertised.listeners"] = _counted_up(config.advertised_listeners, step)
    else:
        own.pop("advertised.listeners", None)  # it is empty
    if step:
        own.pop("console.listener", None)  # one console shows them all
    if config.metrics_listener:
        own["metrics.listener"] = _step(metrics_listener(config.metrics_listener), step).address
    return own


def _counted_up(listeners: Sequence[ListenerConfig], step: int) -> str:
    return ",".join(str(_step(listener, step)) for listener in listeners)


def _step(listener: ListenerConfig, step: int) -> ListenerConfig:
    if listener.port + step > _PORT_MAX:
        raise ConfigError(f"listeners: {listener} leaves no ports to count up to; the last one is {_PORT_MAX}")
    return listener._replace(port=listener.port + step if listener.port else 0)


def _check_ports(configs: Sequence[BrokerConfig]) -> None:
    taken: dict[int, int] = {}
    for config in configs:
        used = [*config.listeners, *([metrics_listener(config.metrics_listener)] if config.metrics_listener else [])]
        for port in {listener.port for listener in used} - {0}:
            if port in taken:
                raise ConfigError(
                    f"listeners: with {len(configs)} brokers every port is counted up, and {port} would be wanted by "
                    f"broker {taken[port]} and by broker {config.broker_id}; leave {len(configs)} ports between two"
                )
            taken[port] = config.broker_id
