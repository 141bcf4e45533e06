"""Two trees of ZooKeeper held against each other: path by path, and JSON key by key.

Permitted differences are listed with their reasons, and with the shape that both sides must have all the same. All else
is equal: numbers are not texts, a key that one side lacks is a difference, and so are ephemerality and access list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tests.support.zk.znode_tree import Tree, Znode


class _Missing:
    """Stands for the value of a key that is not there."""

    def __str__(self) -> str:
        return "missing"


_MISSING = _Missing()


class Allowed(NamedTuple):
    """In nodes whose path is like `path` (`*` is one name), the value at `key` (joined by dots; `*` is any one, "" the
    whole) may differ; as text it is of this `shape` on both sides ("missing" where there is none)."""

    path: str
    key: str
    shape: str
    why: str


ADDRESS = r"127\.0\.0\.1:\d+"
ID = r"[A-Za-z0-9_-]{22}"
TIME = r"\d{13}"

ALLOWED = (
    Allowed("/cluster/id", "id", ID, "drawn by the first broker"),
    Allowed("/brokers/ids/*", "timestamp", TIME, "when it registered"),
    Allowed("/brokers/ids/*", "port", r"\d+", "the port that was free"),
    Allowed("/brokers/ids/*", "endpoints.*", rf"PLAINTEXT://{ADDRESS}", "the port that was free"),
    Allowed("/brokers/topics/*", "topic_id", ID, "drawn for each topic"),
    Allowed("/controller", "timestamp", TIME, "when it was elected"),
)

_ELECTED_ANEW = (
    "kafkalite sees that a leader was away even when there was no controller meanwhile, and elects it anew; "
    "Kafka's new controller takes it for the one that it was"
)
_ID_KEPT = (
    "kafka-topics of 2.7 knows no topic ids and writes the node without; kafkalite's controller puts the id that it "
    "knows back at once, Kafka's leaves it, and the next one draws another"
)
_SAME_REPLICAS = (
    "Kafka's controller gives a new leader epoch to a partition that was reassigned to where it is, since its brokers "
    "ignore epochs that they know; kafkalite writes nothing, and clients need no new metadata"
)
_STATE = "/brokers/topics/*/partitions/*/state"
ALLOWED_FROM = {
    "start again": (
        Allowed(_STATE, "leader_epoch", "0|1", _ELECTED_ANEW),
        Allowed(_STATE, "controller_epoch", "1|2", _ELECTED_ANEW),
    ),
    "reassign as of 2.7": (Allowed(_STATE, "leader_epoch", "0|1", _SAME_REPLICAS),),
    "reassign": (Allowed(_STATE, "leader_epoch", "0|1|2", _SAME_REPLICAS),),
    "more partitions as of 2.7": (
        Allowed("/brokers/topics/t", "version", "2|3", _ID_KEPT),
        Allowed("/brokers/topics/t", "topic_id", f"{ID}|missing", _ID_KEPT),
    ),
}
"""What may differ between Kafka and kafkalite from a step of a story on."""


def differences(theirs: Tree, ours: Tree, allowed: Sequence[Allowed] = ALLOWED) -> list[str]:
    """One line for each; nothing if the trees say the same. Our own nodes are not compared."""
    found = []
    for path in sorted(theirs.keys() | ours.keys()):
        if path.split("/")[1] == "kafkalite":
            continue
        if path not in ours:
            found.append(f"{path}: is missing, Kafka has {_shown(theirs[path])}")
        elif path not in theirs:
            found.append(f"{path}: is too much, with {_shown(ours[path])}")
        else:
            found += [f"{path}{line}" for line in _between(theirs[path], ours[path], _rules(path, allowed))]
    return found


def _between(theirs: Znode, ours: Znode, rules: Sequence[Allowed]) -> Iterator[str]:
    if theirs.is_ephemeral != ours.is_ephemeral:
        yield f": is {'' if ours.is_ephemeral else 'not '}ephemeral"
    if theirs.acl != ours.acl:
        yield f": has the access list {ours.acl}, not {theirs.acl}"
    for key, want, have in _values(theirs.data, ours.data):
        rule = next((rule for rule in rules if _is_like(key, rule.key, ".")), None)
        where = f" {key}" if key else ""
        if rule is not None:
            for side, value in (("here", have), ("at Kafka", want)):
                if not re.fullmatch(rule.shape, str(value)):
                    yield f"{where}: {value} {side} is not of the shape {rule.shape}"
            if type(want) is not type(have) and _MISSING not in (want, have):
                yield f"{where}: {have!r} is of another kind than {want!r}"
        elif have is _MISSING:
            yield f"{where}: is missing, Kafka has {want!r}"
        elif want is _MISSING:
            yield f"{where}: is too much, with {have!r}"
        elif type(want) is not type(have) or want != have:
            yield f"{where}: is {have!r}, at Kafka {want!r}"


def _values(theirs: Any, ours: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Leaf by leaf; an object or array that only one side has is a leaf."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in dict.fromkeys([*theirs, *ours]):
            inner = f"{key}.{name}" if key else str(name)
            yield from _values(theirs.get(name, _MISSING), ours.get(name, _MISSING), inner)
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for index, (want, have) in enumerate(zip(theirs, ours, strict=True)):
            yield from _values(want, have, f"{key}.{index}" if key else str(index))
    else:
        yield key, theirs, ours


def _rules(path: str, allowed: Sequence[Allowed]) -> list[Allowed]:
    """The later ones first: they speak of a step."""
    return [rule for rule in reversed(allowed) if _is_like(path, rule.path, "/")]


def _is_like(name: str, pattern: str, separator: str) -> bool:
    parts, wanted = name.split(separator), pattern.split(separator)
    return len(parts) == len(wanted) and all(want in ("*", part) for part, want in zip(parts, wanted, strict=True))


def _shown(node: Znode) -> str:
    return f"{node.data!r}{' (ephemeral)' if node.is_ephemeral else ''}"
