"""Topics of the target in step with those of the source: their creation, partitions, settings and access control lists.

A copy has as many partitions as its source, and the settings that the source's topic has of its own, except those that
belong to a cluster. Read permissions follow where that is asked for; only the mirror is to write to a copy.
Source: org.apache.kafka.connect.mirror.{MirrorSourceConnector, DefaultConfigPropertyFilter}.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from kafkalite.client.acl_admin import Entry, add_entries, list_entries
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.described_configs import own_settings
from kafkalite.client.mirror.naming import Filter, Naming
from kafkalite.client.topic_changes import add_partitions, alter_configs, create_topics
from kafkalite.common.names import TopicPartition
from kafkalite.security.acl.acl import Operation, PatternType, Permission, ResourceType

OF_A_CLUSTER = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.timestamp.difference.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
        "message.timestamp.type",
        "unclean.leader.election.enable",
        "min.insync.replicas",
    }
)
"""Settings that are not copied: times come with the records, and the others are about the cluster's brokers."""

logger = logging.getLogger("kafkalite.mirror")


class TargetTopics:
    """The copies of one source's topics. Refusals of the target are reported, and tried again later. Raises
    Unanswered."""

    def __init__(
        self,
        source: ClusterClient,
        target: ClusterClient,
        naming: Naming,
        topics: Filter,
        timeout_s: float,
        *,
        replication_factor: int = -1,
        report: Callable[[str], None] = logger.warning,
    ) -> None:
        self._source = source
        self._target = target
        self._naming = naming
        self._topics = topics
        self._timeout_s = timeout_s
        self._replication_factor = replication_factor
        self._report = report

    def chosen(self, not_from: Iterable[str] = ()) -> dict[str, int]:
        """The topics of the source that are copied, with their partition counts, as its metadata has them now;
        `not_from`: topics that come from the target."""
        left_out = frozenset(not_from)
        counts: dict[str, int] = {}
        for topic, _ in self._source.places:
            if topic in counts:
                counts[topic] += 1
            elif topic not in left_out and self._naming.may_be_copied(topic) and topic in self._topics:
                counts[topic] = 1
        return {topic: count for topic, count in counts.items() if topic not in self._source.internal}

    def follow(
        self, counts: Mapping[str, int], before_creation: Callable[[Sequence[str]], None]
    ) -> dict[TopicPartition, TopicPartition]:
        """Creates missing copies and partitions; `before_creation` gets the topics whose copies are missing. Returns
        the partitions whose copy is there, with it."""
        self._target.refresh()
        existing = self._target.topics
        missing = [topic for topic in counts if self._naming.copy_of(topic) not in existing]
        if missing:
            before_creation(missing)
        settings = dict(own_settings(self._source, missing)) if missing else {}
        for topic in missing:
            refused = create_topics(
                self._target,
                [self._naming.copy_of(topic)],
                self._timeout_s,
                partitions=counts[topic],
                replicas=self._replication_factor,
                configs=_copied(settings.get(topic, ())),
                if_not_exists=True,
            )
            self._report_all(refused)
        there = Counter(topic for topic, _ in self._target.places)
        growing = {topic: count for topic, count in counts.items() if 0 < there[self._naming.copy_of(topic)] < count}
        for topic, count in growing.items():
            self._report_all(add_partitions(self._target, self._naming.copy_of(topic), count, self._timeout_s))
        if missing or growing:
            self._target.refresh()
        pairs = (
            ((topic, index), (self._naming.copy_of(topic), index)) for topic in counts for index in range(counts[topic])
        )
        return {source: target for source, target in pairs if target in self._target.places}

    def follow_settings(self, topics: Iterable[str]) -> None:
        """Sets at the copies what the topics have of their own, and resets what they have not."""
        names = {topic: self._naming.copy_of(topic) for topic in topics}
        there = dict(own_settings(self._target, list(names.values())))
        for topic, settings in own_settings(self._source, list(names)):
            wanted, has = _copied(settings), _copied(there.get(names[topic], ()))
            changed = {name: value for name, value in wanted.items() if has.get(name) != value}
            removed = sorted(has.keys() - wanted.keys())
            if not (changed or removed):
                continue
            if alter_configs(self._target, names[topic], changed, removed):
                for name, value in changed.items():  # one that the target does not know is not to stop the others
                    self._report_all(alter_configs(self._target, names[topic], {name: value}, ()))

    def follow_acls(self, topics: Iterable[str]) -> None:
        """Gives the readers of topics the same permission at their copies."""
        copied = frozenset(topics)
        anything = Entry(ResourceType.TOPIC, None, PatternType.LITERAL, None, None, Operation.ANY, Permission.ANY)
        wanted = {
            _read_only(one)._replace(resource_name=self._naming.copy_of(one.resource_name or ""))
            for one in list_entries(self._source, anything)
            if one.resource_name in copied and (one.operation, one.permission) != (Operation.WRITE, Permission.ALLOW)
        }
        if new := sorted(wanted - set(list_entries(self._target, anything))):
            add_entries(self._target, new)

    def _report_all(self, refusals: Iterable[str]) -> None:
        for one in refusals:
            self._report(one)


def _copied(settings: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name: value for name, value in settings if name not in OF_A_CLUSTER}


def _read_only(entry: Entry) -> Entry:
    """ALL is allowed as READ: as MirrorMaker does it."""
    if (entry.operation, entry.permission) == (Operation.ALL, Permission.ALLOW):
        return entry._replace(operation=Operation.READ)
    return entry
