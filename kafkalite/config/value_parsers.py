"""Parsers of settings whose text needs more than a type and bounds; they raise ValueError saying what is allowed."""

from __future__ import annotations

import re

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
