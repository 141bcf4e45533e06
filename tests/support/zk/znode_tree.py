"""Everything that stands in ZooKeeper below a path, as values that can be compared and kept.

Read with a client of its own (plain kazoo), not with the broker's session. The digits of sequential nodes are put as
their rank among their siblings, because a counter remembers those that are gone: `config_change_<0>`.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.security import ACL

_SEQUENTIAL = re.compile(r"(.*_)(\d{10})")
_PERMISSIONS = "rwcda"  # bits 0 to 4
SESSION_S = 5.0  # a server that is just starting may take a connection and never answer on it
START_S = 60.0


class Znode(NamedTuple):
    """`data` as JSON means it; as text where it is none; None where there is none."""

    data: Any
    is_ephemeral: bool
    acl: tuple[str, ...]


Tree = Mapping[str, Znode]


@contextmanager
def zookeeper_client(connect: str) -> Iterator[KazooClient]:
    """`connect` may end in a chroot."""
    client = KazooClient(connect, timeout=SESSION_S)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the chroot is not there yet
        client.start(START_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def read_tree(client: KazooClient, top: str = "/") -> dict[str, Znode]:
    """All nodes below `top` by their path; ZooKeeper's own are left out. One that goes meanwhile is left out too."""
    found: dict[str, Znode] = {}
    waiting = [(top, top)]
    while waiting:
        path, shown = waiting.pop()
        try:
            data, stat = client.get(path)
            acls, _ = client.get_acls(path)
            children = sorted(client.get_children(path))
        except NoNodeError:
            continue
        if path != "/":
            found[shown] = Znode(meaning(data), stat.ephemeralOwner != 0, tuple(sorted(map(acl_text, acls))))
        names = zip(children, ranked(children), strict=True)
        waiting += [(f"{path.rstrip('/')}/{name}", f"{shown.rstrip('/')}/{put}") for name, put in names]
    return {path: found[path] for path in sorted(found) if path.split("/")[1] != "zookeeper"}


def meaning(data: bytes | None) -> Any:
    if not data:
        return None
    text = data.decode()
    try:
        return json.loads(text)
    except ValueError:
        return text


def acl_text(acl: ACL) -> str:
    """Such as "world:anyone:rwcda"."""
    permissions = "".join(letter for bit, letter in enumerate(_PERMISSIONS) if acl.perms >> bit & 1)
    return f"{acl.id.scheme}:{acl.id.id}:{permissions}"


def ranked(names: list[str]) -> list[str]:
    """Sorted names with ranks for the digits that ZooKeeper has added."""
    counts: dict[str, int] = {}
    shown = []
    for name in names:
        match = _SEQUENTIAL.fullmatch(name)
        if match is None:
            shown.append(name)
            continue
        rank = counts.get(match[1], 0)
        counts[match[1]] = rank + 1
        shown.append(f"{match[1]}<{rank}>")
    return shown
