"""Names of copies, of the topics with a mirror's state, and the choice of topics, as MirrorMaker 2 has them.

A copy has its source's alias and a dot before the name, or the same name. A topic whose name says that it comes from
the target, over any number of clusters, is not copied back there.
Source: org.apache.kafka.connect.mirror.{ReplicationPolicy, DefaultReplicationPolicy, IdentityReplicationPolicy,
DefaultTopicFilter, DefaultGroupFilter, MirrorSourceConnector.isCycle}.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kafkalite.common.errors import ConfigError
from kafkalite.common.named_tuple import NamedTuple

HEARTBEATS = "heartbeats"
TOPICS_EXCLUDED = r"mm2.*\.internal,.*\.replica,__.*"
GROUPS_EXCLUDED = r"console-consumer-.*,connect-.*,__.*"
_SEPARATOR = "."


class Naming(NamedTuple):
    """The names of one source's copies at the target; `keeps_names` for the same names there."""

    source: str
    target: str
    keeps_names: bool = False

    def copy_of(self, topic: str) -> str:
        """The name of a topic's copy."""
        if self.keeps_names and not topic.endswith(HEARTBEATS):
            return topic
        return f"{self.source}{_SEPARATOR}{topic}"

    def may_be_copied(self, topic: str) -> bool:
        """Whether a topic is neither a cluster's own nor one that comes from the target."""
        return not is_internal(topic) and topic != HEARTBEATS and not self._is_from_target(topic)

    def _is_from_target(self, topic: str) -> bool:
        if self.keeps_names and not topic.endswith(HEARTBEATS):
            return False  # only the state of the other mirror tells
        *aliases, _ = topic.split(_SEPARATOR)
        return self.target in aliases

    @property
    def offset_syncs(self) -> str:
        """The topic at the target with pairs of offsets."""
        return offset_syncs_of(self.source)

    @property
    def checkpoints(self) -> str:
        """The topic at the target with offsets of groups."""
        return f"{self.source}{_SEPARATOR}checkpoints.internal"

    @property
    def heartbeats(self) -> str:
        """The topic at the target that says that the source is upstream."""
        return f"{self.source}{_SEPARATOR}{HEARTBEATS}"


def offset_syncs_of(alias: str) -> str:
    """The topic with the pairs of offsets of copies from the cluster with this alias."""
    return f"mm2-offset-syncs.{alias}.internal"


def is_internal(topic: str) -> bool:
    """Whether a topic belongs to Kafka or to a mirror's state."""
    is_state = (topic.startswith("mm2") and topic.endswith(".internal")) or topic.endswith(".checkpoints.internal")
    return is_state or topic.startswith(("__", "."))


class Filter:
    """Names that match one of the expressions of `include` and none of `exclude`; both are lists with commas."""

    def __init__(self, include: str, exclude: str = "") -> None:
        """Raises ConfigError for an expression that is not valid."""
        self._include = tuple(_compiled(include))
        self._exclude = tuple(_compiled(exclude))

    def __contains__(self, name: str) -> bool:
        return any(one.fullmatch(name) for one in self._include) and not any(
            one.fullmatch(name) for one in self._exclude
        )


def _compiled(text: str) -> Iterator[re.Pattern[str]]:
    for part in filter(None, map(str.strip, text.split(","))):
        try:
            yield re.compile(part)
        except re.error as fault:
            raise ConfigError(f"{part!r} is no regular expression: {fault}") from None
