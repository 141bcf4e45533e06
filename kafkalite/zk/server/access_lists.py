"""Access lists of nodes: entries, the identities of a session, and whether an operation is allowed.

    scheme   identity                        a session has it
    world    anyone                          always
    ip       address, or address/bits        by its connection
    digest   user:base64(sha1(user:pass))    after an auth request with user:password
    auth     (empty)                         in a request only: stands for the session's own digests

Source: org.apache.zookeeper.server.ZooKeeperServer.checkACL, PrepRequestProcessor.fixupACL, server.auth.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import re
from collections.abc import Sequence

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.zk.server.refusals import INVALID_ACL, NO_AUTH, Refused

READ, WRITE, CREATE, DELETE, ADMIN = 1, 2, 4, 8, 16
ALL = 31


class Identity(NamedTuple):
    scheme: str
    name: str


class Entry(NamedTuple):
    """`permissions`: a sum of READ, WRITE, CREATE, DELETE, ADMIN."""

    permissions: int
    identity: Identity


AccessList = tuple[Entry, ...]

ANYONE = Identity("world", "anyone")
OPEN: AccessList = (Entry(ALL, ANYONE),)
_PROVEN = ("digest", "sasl")  # schemes whose identities stand for "auth"


def digest_identity(credentials: str) -> Identity:
    """The identity of `user:password`."""
    user = credentials.partition(":")[0]
    digest = base64.b64encode(hashlib.sha1(credentials.encode()).digest()).decode()
    return Identity("digest", f"{user}:{digest}")


def require(access_list: AccessList, permissions: int, identities: Sequence[Identity]) -> None:
    """Raises Refused unless one of `identities` has one of `permissions`. A node without entries is open."""
    if not access_list:
        return
    for entry in access_list:
        if entry.permissions & permissions:
            wanted = entry.identity
            if wanted == ANYONE or any(_matches(each, wanted) for each in identities):
                return
    raise Refused(NO_AUTH)


def resolve(entries: Sequence[Entry], identities: Sequence[Identity]) -> AccessList:
    """The list of a new node: `auth` becomes the session's own identities. Raises Refused for one that does not
    hold."""
    found: dict[Entry, None] = {}
    for entry in entries:
        scheme, name = entry.identity
        if scheme == "auth":
            proven = [each for each in identities if each.scheme in _PROVEN]
            if not proven:
                raise Refused(INVALID_ACL)
            found.update(dict.fromkeys(Entry(entry.permissions, each) for each in proven))
        elif entry.identity == ANYONE or _is_valid(scheme, name):
            found[entry] = None
        else:
            raise Refused(INVALID_ACL)
    if not found:
        raise Refused(INVALID_ACL)
    return tuple(found)


def redact(access_list: AccessList) -> AccessList:
    """The list for a client that may not change it: without the hashes of passwords."""
    return tuple(
        Entry(permissions, Identity(scheme, re.sub(":.*", ":x", name) if scheme == "digest" else name))
        for permissions, (scheme, name) in access_list
    )


def _matches(identity: Identity, wanted: Identity) -> bool:
    if identity.scheme != wanted.scheme:
        return False
    if identity.scheme != "ip":
        return identity.name == wanted.name
    try:
        return ipaddress.ip_address(identity.name) in ipaddress.ip_network(wanted.name, strict=False)
    except ValueError:
        return False


def _is_valid(scheme: str, name: str) -> bool:
    if scheme == "digest":
        return name.count(":") == 1
    if scheme == "ip":
        try:
            ipaddress.ip_network(name, strict=False)
        except ValueError:
            return False
        return True
    return scheme == "sasl" and bool(name)
