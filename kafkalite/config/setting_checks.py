"""Checks of a broker's settings that need more than a type and bounds.

Parsers of one setting's text raise ValueError saying what is allowed. Rules between settings work on parsed values:
broker.id and node.id are one number, and a broker that runs standalone has one copy of each partition.
Source: kafka.server.KafkaConfig.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kafkalite.common.errors import ConfigError
from kafkalite.common.names import java_trim

_REPLICA = re.compile(r"[0-9]{1,10}:[0-9]{1,10}\Z", re.ASCII)
_ZOOKEEPER_PORT = 2181
_AUTHORIZERS = (
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.auth.SimpleAclAuthorizer",
)


def parse_gzip_level(text: str) -> int:
    if text.strip() not in {"-1", *"123456789"}:
        raise ValueError("must be an integer from 1 to 9, or -1")
    return int(text)


def parse_directories(text: str) -> str:
    directories = [part.strip() for part in text.split(",") if part.strip()]
    if not directories:
        raise ValueError("must name a directory, or several with commas between them")
    return ",".join(directories)


def parse_zookeeper_connect(text: str) -> str | None:
    """host:port,host:port/chroot without blanks and with all ports; None when nothing is given."""
    servers, slash, chroot = "".join(text.split()).partition("/")
    if not servers and not slash:
        return None
    found = []
    for server in servers.split(","):
        host, colon, port = server.rpartition(":") if not server.endswith("]") else (server, "", "")
        if not colon:
            host, port = server, str(_ZOOKEEPER_PORT)
        is_bare = ":" not in host or (host.startswith("[") and host.endswith("]"))
        if (
            not host
            or not is_bare
            or not (port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 65536)
        ):
            raise ValueError("must be host:port, or several with commas between them, and then perhaps a /chroot")
        found.append(f"{host}:{port}")
    chroot = chroot.rstrip("/")
    if any(part in ("", ".", "..") for part in chroot.split("/")) and chroot:
        raise ValueError("must have a chroot such as /kafka at its end, or none")
    return ",".join(found) + (f"/{chroot}" if chroot else "")


def parse_endpoint_identification(text: str) -> str:
    word = text.strip().upper()
    if word not in ("", "HTTPS"):
        raise ValueError("must be HTTPS or empty")
    return word


def parse_throttled_replicas(text: str) -> tuple[str, ...]:
    """partition:broker of each replica, or "*" alone. Source: ThrottledReplicaListValidator."""
    words = tuple(filter(None, (part.strip() for part in text.split(","))))
    if words != ("*",) and not all(map(_REPLICA.match, words)):
        raise ValueError("must be * or a list of partition:broker")
    return words


RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"


def parse_replica_selector(text: str) -> str | None:
    """Kafka's own selectors, with or without their package; None where consumers read from the leader."""
    for known in (RACK_AWARE_SELECTOR, LEADER_SELECTOR):
        if text.strip() in (known, known.rpartition(".")[2]):
            return known if known is RACK_AWARE_SELECTOR else None
    if text.strip():
        raise ValueError("must be RackAwareReplicaSelector or LeaderSelector")
    return None


def parse_authorizer(text: str) -> str:
    word = text.strip()
    if word not in ("", *_AUTHORIZERS):
        raise ValueError(f"must be empty or {_AUTHORIZERS[0]}, since kafkalite runs no Java classes")
    return word


def parse_principals(text: str) -> tuple[str, ...]:
    """Principals with semicolons between them, since names of certificates have commas."""
    principals = tuple(filter(None, map(java_trim, text.split(";"))))
    for each in principals:
        kind, colon, name = each.partition(":")
        if not (kind and colon and name):
            raise ValueError(f"must be a list such as User:alice;User:bob, and '{each[:80]}' is not TYPE:NAME")
    return principals


def parse_store_type(text: str) -> str:
    word = text.strip().upper()
    if word not in ("PEM", "PKCS12", "JKS"):
        raise ValueError("must be PEM, PKCS12 or JKS")
    return word


_PRINCIPAL_BUILDER = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"


def parse_principal_builder(text: str) -> str:
    if text.strip() != _PRINCIPAL_BUILDER:
        raise ValueError(f"must be {_PRINCIPAL_BUILDER}, since kafkalite runs no Java classes")
    return _PRINCIPAL_BUILDER


def resolve_broker_id(values: dict[str, Any]) -> None:
    """Makes broker.id and node.id one number, which with ZooKeeper may be -1; log.dirs wins over log.dir."""
    broker_id, node_id = values.get("broker_id", -1), values.get("node_id", -1)
    if broker_id >= 0 and node_id >= 0 and broker_id != node_id:
        raise ConfigError(f"broker.id={broker_id} and node.id={node_id} are the same setting and must not differ")
    in_cluster = values.get("zookeeper_connect") is not None
    values["broker_id"] = values["node_id"] = max(broker_id, node_id, -1 if in_cluster else 0)
    if in_cluster:
        _check_broker_id(values["broker_id"], values)
    if values.get("log_dirs") is not None:
        values["log_dir"] = values["log_dirs"]


def _check_broker_id(broker_id: int, values: Mapping[str, Any]) -> None:
    generates = values.get("broker_id_generation_enable", True)
    reserved = values.get("reserved_broker_max_id", 1000)
    if broker_id < 0 and not generates:
        raise ConfigError("broker.id must be given when broker.id.generation.enable=false")
    if broker_id > reserved and generates:
        raise ConfigError(
            f"broker.id={broker_id} must not be above reserved.broker.max.id={reserved}: numbers above it are made up "
            "for brokers that have none; raise that, or set broker.id.generation.enable=false"
        )


def one_copy_warnings(values: Mapping[str, Any]) -> list[str]:
    """Warnings for settings that ask for more than one replica, where there can be only one; they are common, so they
    do not prevent a start."""
    found = []
    for name, what in (
        ("default.replication.factor", "new topics"),
        ("offsets.topic.replication.factor", "the topic"),
        ("transaction.state.log.replication.factor", "the topic"),
    ):
        if (factor := values.get(name.replace(".", "_"), 1)) > 1:
            found.append(
                f"{name}={factor} has no effect: there is one copy of each partition, and {what} will have 1 replica"
            )
    if (replicas := values.get("min_insync_replicas", 1)) > 1:
        found.append(
            f"min.insync.replicas={replicas} asks for more copies than the one that there is: a topic with 1 replica "
            "takes acks=all with that one, as in Apache Kafka"
        )
    return found


def limits_conflict(values: Mapping[str, Any]) -> str | None:
    """The conflict between limits of a broker that are each valid by themselves, if there is one."""
    queued_bytes, request_bytes = values["queued_max_request_bytes"], values["socket_request_max_bytes"]
    if 0 < queued_bytes < request_bytes:
        return f"queued.max.request.bytes={queued_bytes} must be at least socket.request.max.bytes, {request_bytes}"
    if values["max_connections_per_ip"] == 0 and not values["max_connections_per_ip_overrides"]:
        return (
            "max.connections.per.ip=0 would refuse everyone; set max.connections.per.ip.overrides for those who may "
            "connect"
        )
    buffer_bytes, threads = values["log_cleaner_dedupe_buffer_size"], values["log_cleaner_threads"]
    load_factor = values["log_cleaner_io_buffer_load_factor"]
    if buffer_bytes // threads <= 1 << 20:
        return (
            f"log.cleaner.dedupe.buffer.size={buffer_bytes} must be more than 1 MiB for each of "
            f"log.cleaner.threads={threads}"
        )
    if buffer_bytes // threads // 24 * load_factor <= 1:
        return f"log.cleaner.io.buffer.load.factor={load_factor} leaves no room for a single key"
    wait_ms = values["replica_fetch_wait_max_ms"]
    for name in ("replica.socket.timeout.ms", "replica.lag.time.max.ms"):  # else idle followers are cut off for ever
        if wait_ms > (longest_ms := values[name.replace(".", "_")]):
            return f"replica.fetch.wait.max.ms={wait_ms} must not be more than {name}, {longest_ms}"
    return None
