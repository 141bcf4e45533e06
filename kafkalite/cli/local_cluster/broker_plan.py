"""The brokers of a machine as values: ids, ports, directories and settings of each, from the settings of one.

    broker.id         counted up from the configured one, else from the first `broker<id>` that is there, else from 0
    listeners         ports counted up from the configured ones, or named by --ports; port 0 stays any free one.
                      advertised.listeners and metrics.listener likewise
    log.dirs          a directory `broker<id>` in each that is configured; the first also has `zookeeper`, for our own

The name of such a directory has no dash before its number: with a dash it would be a partition's, if the directory
around it were ever taken for a broker's.

With --cores the brokers share one machine as the threads of one server would, and settings without a value differ:

    num.partitions                   a partition for each broker
    *.replication.factor             1 of internal topics: a second replica on the same machine protects nothing more
    queued.max.request.bytes, socket.request.max.bytes, log.cleaner.dedupe.buffer.size
                                     the share of a broker, so that all together hold as much as one does alone
    zookeeper.session.timeout.ms     18 s, as elsewhere: a process that dies is started again at once and ends its
                                     former session, and each session pings three times as seldom as with 6 s
    metrics.listener                 is of the machine; those of the brokers are counted up from the port after it
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from kafkalite.cli.local_cluster.single_broker_directory import Moves, first_broker, needs_adoption, partitions_in
from kafkalite.common.errors import ConfigError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.listeners import ListenerConfig, metrics_listener
from kafkalite.log.storage.file_names import (
    META_PROPERTIES,
    ZOOKEEPER,
    broker_directories,
    broker_directory,
    check_is_not_of_several,
    is_used,
)

BROKERS_MAX = 100  # each is a process of 30 MB
OWN_SESSION_TIMEOUT_MS = 6_000  # with a ZooKeeper beside us, where no network is in between (Kafka's default: 18 s)
_PORT_MAX = 65_535
_REQUEST_BYTES = 128 << 20  # of one broker alone (queued.max.request.bytes)
_REQUEST_BYTES_MIN = 16 << 20
_DEDUPE_BYTES = 128 << 20
_DEDUPE_BYTES_MIN = 4 << 20
_ONE_REPLICA = (
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "share.coordinator.state.topic.replication.factor",
)


class BrokerPlan(NamedTuple):
    """One broker: its id and all its settings, as text by Kafka's names. `adopts`: it takes over the data in its
    directories when it is started for the first time. `cpu`: the core that it is pinned to, if any."""

    broker_id: int
    properties: Mapping[str, str]
    adopts: bool = False
    cpu: int | None = None


class ClusterPlan(NamedTuple):
    """`directory` has the lock that all share, `zookeeper_directory` the data of a ZooKeeper of our own. `connect` is
    the ZooKeeper that was named, empty if none was. `moves` are directories of a single broker, each with the one that
    its data are moved to before the start. `metrics_listener` is that of the machine, empty if there is none."""

    brokers: tuple[BrokerPlan, ...]
    directory: str
    zookeeper_directory: str
    connect: str
    moves: Moves = ()
    metrics_listener: str = ""


class Cores(NamedTuple):
    """The request for a broker on each of `brokers` cores. `ports` are those of the listener; without any they are
    counted up. `cpus`: the cores that the brokers are pinned to by turns, none if they are not."""

    brokers: int
    ports: tuple[int, ...] = ()
    cpus: tuple[int, ...] = ()


def plan(properties: Mapping[str, str], count: int, *, adopts: bool = False) -> ClusterPlan:
    """Plans `count` brokers from `properties`, which are meant for one. With `adopts` the brokers whose directories
    have data take them over. Raises ConfigError."""
    config = BrokerConfig.load(properties)
    first_id = max(0, config.broker_id)
    brokers = _brokers(properties, config, first_id, _checked("-n", count))
    if adopts:
        brokers = tuple(broker._replace(adopts=_has_data(broker)) for broker in brokers)
        if not any(broker.adopts for broker in brokers):
            raise ConfigError(
                f"--adopt: there is nothing to take over in {brokers[0].properties['log.dirs']} and further brokers' "
                f"directories; move that of a single broker to {broker_directory(config.data_dirs[0], first_id)}"
            )
    _check_ports([BrokerConfig.load(broker.properties) for broker in brokers])
    directory = config.data_dirs[0]
    connect = properties.get("zookeeper.connect", "").strip()
    return ClusterPlan(brokers, directory, os.path.join(directory, ZOOKEEPER), connect)


def plan_cores(properties: Mapping[str, str], cores: Cores, *, adopts: bool = False) -> ClusterPlan:
    """Plans a broker for each core from `properties`, which are meant for one. The directories of a single broker
    become those of the first; with `adopts` also if that was Apache Kafka. Raises ConfigError."""
    config = BrokerConfig.load(properties)
    first_id, moves = first_broker(properties, config, adopts=adopts)
    count = _checked("--cores", cores.brokers)
    shared = {**_of_a_core(properties, config, count), **properties}
    if config.metrics_listener:
        own = metrics_listener(config.metrics_listener)
        shared["metrics.listener"] = _step(own, 1).address
    if cores.ports:
        shared["listeners"] = _at_ports(config, cores)
    brokers = list(_brokers(shared, BrokerConfig.load(shared), first_id, count, cores.ports))
    _check_left_out(config.data_dirs, {broker.broker_id for broker in brokers})
    brokers[0] = brokers[0]._replace(adopts=adopts or needs_adoption(brokers[0].properties, moves))
    if cores.cpus:
        brokers = [each._replace(cpu=cores.cpus[i % len(cores.cpus)]) for i, each in enumerate(brokers)]
    _check_ports([BrokerConfig.load(broker.properties) for broker in brokers], config.metrics_listener)
    directory = config.data_dirs[0]
    connect = properties.get("zookeeper.connect", "").strip()
    zookeeper = os.path.join(directory, ZOOKEEPER)
    return ClusterPlan(tuple(brokers), directory, zookeeper, connect, moves, config.metrics_listener)


def plan_alone(properties: Mapping[str, str], *, adopts: bool = False) -> ClusterPlan:
    """Plans one broker with a ZooKeeper of our own beside it, whose data are in a directory of the broker's. The broker
    has its directories, ports and id as if it were alone. Raises ConfigError."""
    config = BrokerConfig.load(properties)
    if properties.get("zookeeper.connect", "").strip():
        raise ConfigError("--zookeeper-listener is for a ZooKeeper of our own, and zookeeper.connect names another")
    check_is_not_of_several(config.data_dirs[0])
    own = {name: text for name, text in properties.items() if name not in ("node.id", "log.dir")}
    own |= {"broker.id": str(max(0, config.broker_id)), "log.dirs": ",".join(config.data_dirs)}
    directory = os.path.join(config.data_dirs[0], ZOOKEEPER)
    return ClusterPlan((BrokerPlan(max(0, config.broker_id), own, adopts),), directory, directory, "")


def with_zookeeper(broker: BrokerPlan, connect: str) -> BrokerPlan:
    """The same broker with a ZooKeeper of our own."""
    own = {"zookeeper.session.timeout.ms": str(OWN_SESSION_TIMEOUT_MS), **broker.properties}
    return broker._replace(properties={**own, "zookeeper.connect": connect})


def check_directory(directory: str) -> None:
    """Raises ConfigError when this is the directory of a single broker, which would seem to have lost its topics."""
    try:
        names = os.listdir(directory)
    except OSError:
        return  # it does not exist yet; or the first write there reports the fault
    if META_PROPERTIES in names and not any(name.startswith("broker") for name in names):
        raise ConfigError(
            f"{directory} holds the data of a single broker; give several brokers another --data-dir. "
            "docs/zookeeper.md says how a single broker becomes one of a cluster"
        )


def _checked(option: str, count: int) -> int:
    if not 1 <= count <= BROKERS_MAX:
        raise ConfigError(f"{option} {count} must be from 1 to {BROKERS_MAX} brokers")
    return count


def _of_a_core(properties: Mapping[str, str], config: BrokerConfig, count: int) -> dict[str, str]:
    """The settings that differ from those of a broker alone, unless they are given."""
    settings = {"num.partitions": str(count), **dict.fromkeys(_ONE_REPLICA, "1")}
    settings["zookeeper.session.timeout.ms"] = str(config.zookeeper_session_timeout_ms)
    if count > 1:
        largest = max(_REQUEST_BYTES // count, _REQUEST_BYTES_MIN, 2 * config.message_max_bytes)
        if not {"socket.request.max.bytes", "queued.max.request.bytes"} & properties.keys():
            settings |= dict.fromkeys(("socket.request.max.bytes", "queued.max.request.bytes"), str(largest))
        dedupe = max(_DEDUPE_BYTES // count, _DEDUPE_BYTES_MIN * config.log_cleaner_threads)
        settings["log.cleaner.dedupe.buffer.size"] = str(dedupe)
    return settings


def _at_ports(config: BrokerConfig, cores: Cores) -> str:
    """The configured listener at the first of the ports."""
    if len(cores.ports) != cores.brokers:
        raise ConfigError(f"--ports names {len(cores.ports)} ports for {cores.brokers} brokers; name one for each")
    if len(config.listeners) > 1 or config.advertised_listeners:
        raise ConfigError("--ports is for one listener without advertised.listeners; give the first port by --port")
    return str(config.listeners[0]._replace(port=cores.ports[0]))


def _check_left_out(directories: Sequence[str], planned: set[int]) -> None:
    """Raises ConfigError when a broker that is not planned has partitions: they would have no leader."""
    for broker_id in broker_directories(directories[0]).keys() - planned:
        names = partitions_in([broker_directory(directory, broker_id) for directory in directories])
        if names:
            some = f"{names[0]} and {len(names) - 1} more partitions" if len(names) > 1 else names[0]
            raise ConfigError(
                f"broker{broker_id} in {directories[0]} has {some}, and would not be started: start with more --cores, "
                f"and move them first (kafkalite topic spread --brokers {','.join(map(str, sorted(planned)))})"
            )


def _has_data(broker: BrokerPlan) -> bool:
    return any(map(is_used, broker.properties["log.dirs"].split(",")))


def _brokers(
    properties: Mapping[str, str], config: BrokerConfig, first_id: int, count: int, ports: Sequence[int] = ()
) -> tuple[BrokerPlan, ...]:
    plans = []
    for step in range(count):
        own = _properties_of(properties, config, first_id + step, step)
        if ports:
            own["listeners"] = str(config.listeners[0]._replace(port=ports[step]))
        plans.append(BrokerPlan(first_id + step, own))
    return tuple(plans)


def _properties_of(properties: Mapping[str, str], config: BrokerConfig, broker_id: int, step: int) -> dict[str, str]:
    own = {name: text for name, text in properties.items() if name not in ("node.id", "log.dir")}
    own["broker.id"] = str(broker_id)
    own["log.dirs"] = ",".join(broker_directory(directory, broker_id) for directory in config.data_dirs)
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


def _check_ports(configs: Sequence[BrokerConfig], machine: str = "") -> None:
    taken: dict[int, int] = {}
    if machine and (shared := metrics_listener(machine).port):
        taken[shared] = -1
    for config in configs:
        used = [*config.listeners, *([metrics_listener(config.metrics_listener)] if config.metrics_listener else [])]
        for port in {listener.port for listener in used} - {0}:
            if port in taken:
                other = f"broker {taken[port]}" if taken[port] >= 0 else "the metrics of the machine"
                raise ConfigError(
                    f"listeners: with {len(configs)} brokers every port is counted up, and {port} would be used by "
                    f"{other} and by broker {config.broker_id}; leave {len(configs)} ports between two"
                )
            taken[port] = config.broker_id


_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


def usable_cores(cpu_max: Path = _CPU_MAX) -> int:
    """The number of cores that this process may use, at least 1: those of its affinity, as far as its control group has
    time for them. Source: sched_getaffinity(2); cpu.max of control groups, version 2."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota_us, period_us = cpu_max.read_text().split()
        share = int(quota_us) / int(period_us)
    except (OSError, ValueError, ZeroDivisionError):  # no such group, or "max"
        return cores
    return max(1, min(cores, int(share)))
