"""Migration of a standalone broker into a cluster: the topics of its journal go to ZooKeeper, once, on request.

A broker with a journal whose topics ZooKeeper does not know would make their logs strays. So it does not start without
`--adopt`, which creates the topics in ZooKeeper with their ids, settings and leader epochs, and renames the journal. A
journal of which ZooKeeper knows all topics is renamed silently.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalite.common.errors import ConfigError
from kafkalite.common.names import NO_LEADER
from kafkalite.metadata.cluster_metadata import ClusterMetadata, TopicRecord
from kafkalite.metadata.metadata_journal import JOURNAL_NAME
from kafkalite.metadata.standalone_metadata import StandaloneMetadata
from kafkalite.zk.client.operations import Create, NodeExists, Operation, SetData
from kafkalite.zk.cluster.cluster_view import ClusterView
from kafkalite.zk.znodes import security_nodes, znode_data, znode_paths

if TYPE_CHECKING:
    from kafkalite.zk.client.session import ZooKeeperSession

logger = logging.getLogger(__name__)

MIGRATED_SUFFIX = ".in-zookeeper"  # behind the name of a journal that is in ZooKeeper
_OPERATIONS_MAX = 1000  # of one transaction, some 300 KiB


class JournalMigration:
    """Migrates the journals in `data_dirs`. `adopts`: also creates topics that ZooKeeper does not have."""

    def __init__(self, data_dirs: Sequence[str | Path], adopts: bool) -> None:
        self._directories = [Path(each) for each in data_dirs]
        self.adopts = adopts

    @property
    def has_journal(self) -> bool:
        return any((each / JOURNAL_NAME).exists() for each in self._directories)

    async def carry_out(
        self, metadata: ClusterMetadata, view: ClusterView, session: ZooKeeperSession, broker_id: int
    ) -> None:
        """Migrate; `view` must be complete. Raises ConfigError when a topic would be lost."""
        for directory in self._directories:
            journal = directory / JOURNAL_NAME
            if not journal.exists():
                continue
            old = StandaloneMetadata(directory)
            await old.start()
            try:
                missing = self._missing(journal, old.topics, view)
                if missing:
                    await adopt_topics(missing, session, view, broker_id)
                    for broker, config in old.broker_configs.items():
                        if broker not in view.broker_configs:
                            await metadata.writes.set_broker_config(broker, config)
                    if old.delegation_tokens:
                        await session.make_paths(security_nodes.TOKEN_PERSISTENT)
                    await _bring_security(old, metadata)
                    await metadata.writes.skip_producer_ids((await old.next_producer_id_block()).start - 1)
            finally:
                await old.stop()
            journal.replace(journal.with_name(JOURNAL_NAME + MIGRATED_SUFFIX))
            if missing:
                logger.info("%s: its %d topics are in ZooKeeper now", journal, len(missing))

    def _missing(self, journal: Path, topics: Mapping[str, TopicRecord], view: ClusterView) -> list[TopicRecord]:
        """The topics that ZooKeeper does not have. Raises ConfigError unless they may be created there."""
        missing = []
        for name, topic in topics.items():
            known = view.assignments.get(name)
            if known is None:
                missing.append(topic)
            elif known.value.topic_id not in (None, topic.topic_id):
                raise ConfigError(
                    f"the topic {name} in {journal} and the one in ZooKeeper are two (they have different ids): delete "
                    "the one in ZooKeeper, or move that file away to do without the topics in it"
                )
        if missing and not self.adopts:
            some = ", ".join(topic.name for topic in missing[:5]) + (", ..." if len(missing) > 5 else "")
            raise ConfigError(
                f"{journal} has topics that ZooKeeper does not know ({some}): start with --adopt to make them there, "
                "or move that file away to do without them"
            )
        return missing


async def _bring_security(old: ClusterMetadata, metadata: ClusterMetadata) -> None:
    """Users, quotas, access control lists and delegation tokens, where the cluster has none of that name."""
    for path, config in old.entity_configs.items():
        await metadata.writes.change_entity_config(path, lambda there, config=config: there or config)  # type: ignore[misc]
    for token_id, token in old.delegation_tokens.items():
        await metadata.writes.change_delegation_token(token_id, lambda there, token=token: there or token)  # type: ignore[misc]
    for resource, entries in old.acls.items():
        await metadata.writes.change_acls(resource, lambda there, entries=entries: there or entries)  # type: ignore[misc]


async def adopt_topics(
    topics: Iterable[TopicRecord], session: ZooKeeperSession, view: ClusterView, broker_id: int
) -> None:
    """Creates these topics in ZooKeeper, all of them on this broker, to be led as soon as it is registered. Their
    leader epochs continue. Raises ConfigError if ZooKeeper has one of them already."""
    controller_epoch = view.controller_epoch.value if view.controller_epoch is not None else 0
    batch: list[Operation] = []
    for topic in topics:
        operations = list(_creation(topic, broker_id, controller_epoch))
        config = znode_paths.config(znode_paths.CONFIG_TOPICS, topic.name)
        if config in view.paths:
            operations[0] = SetData(config, znode_data.config_json(topic.config))
        if len(batch) + len(operations) > _OPERATIONS_MAX:
            await _write(session, batch)
            batch = []
        batch += operations
    await _write(session, batch)


async def _write(session: ZooKeeperSession, operations: Sequence[Operation]) -> None:
    try:
        for first in range(0, len(operations), _OPERATIONS_MAX):
            await session.write(operations[first : first + _OPERATIONS_MAX])
    except NodeExists as taken:
        raise ConfigError(
            f"cannot adopt {znode_paths.topic_of(taken.path)}: {taken.path} is in ZooKeeper already"
        ) from None


def _creation(topic: TopicRecord, broker_id: int, controller_epoch: int) -> Iterator[Operation]:
    """The operations that create a topic. The data of its own node come last, so that a controller that reads them
    finds the states and creates none. (If all operations fit into one transaction, no step in between is visible.)"""
    replicas = dict.fromkeys(topic.partitions, (broker_id,))
    yield Create(znode_paths.config(znode_paths.CONFIG_TOPICS, topic.name), znode_data.config_json(topic.config))
    yield Create(znode_paths.topic(topic.name))
    yield Create(znode_paths.partitions(topic.name))
    for number, partition in topic.partitions.items():
        state = znode_data.StateNode(NO_LEADER, max(partition.leader_epoch, 0), (broker_id,), controller_epoch)
        yield Create(znode_paths.partition(topic.name, number))
        yield Create(znode_paths.state(topic.name, number), znode_data.state_json(state))
    yield SetData(znode_paths.topic(topic.name), znode_data.topic_json(znode_data.TopicNode(replicas, topic.topic_id)))
