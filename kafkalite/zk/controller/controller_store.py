"""The controller's writes to ZooKeeper: fenced by the controller epoch, in pieces that ZooKeeper takes.

A broker is elected by one transaction that creates /controller, which lives with its session, and raises
/controller_epoch. Every write of the controller checks that node's version, so a replaced controller that does not know
it yet cannot write. Writes are atomic steps; many steps share one transaction (ZooKeeper accepts a megabyte), and one
that is refused, because its node has changed meanwhile, is taken out and does not block the others.

Kafka sends each write as a transaction of its own with that check, some hundred of them in flight; one for many steps
costs ZooKeeper one round and one sync of its log.
Source: kafka.zk.KafkaZkClient (registerControllerAndIncrementControllerEpoch, wrapRequestWithControllerEpochCheck,
createTopicPartitionStatesRaw, deleteTopicZNode, deleteTopicConfigs, deleteTopicDeletions).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.zk.client.operations import (
    BadVersion,
    Check,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    Operation,
    OperationFailed,
    SetData,
)
from kafkalite.zk.client.transactions import batches, transact
from kafkalite.zk.znodes import znode_data, znode_paths

if TYPE_CHECKING:
    from kafkalite.zk.client.session import ZooKeeperSession

logger = logging.getLogger(__name__)

_BATCH_BYTES_MAX = 512 * 1024  # of one transaction; ZooKeeper's jute.maxbuffer is 1 MiB and counts overhead, too
_BATCH_OPERATIONS_MAX = 1000  # some 20 ms of ZooKeeper's time, in which it answers no other request
_TOPIC_PARTITIONS_MAX = 250  # of a topic that are made, or deleted, in one step: two or three operations each
_REFUSALS_MAX = 8  # with more, the view is so stale that the rest is not worth trying
_ELECTION_ATTEMPTS = 5


class ControllerMoved(Exception):
    """Another broker has been elected since; this controller's view is stale."""


class Step(NamedTuple):
    """Operations that are done atomically."""

    operations: tuple[Operation, ...]


async def elect(session: ZooKeeperSession, broker_id: int, controller_json: bytes) -> ControllerStore | None:
    """Take part in the election. Returns the store to write with, or None if another broker is the controller.

    Raises Unavailable, after which the election may have succeeded; calling again finds out. Raises ValueError if the
    stored epoch is no number.
    """
    for _ in range(_ELECTION_ATTEMPTS):
        controller, epoch_node = await session.read([znode_paths.CONTROLLER, znode_paths.CONTROLLER_EPOCH])
        try:
            if epoch_node is None:
                await session.write([Create(znode_paths.CONTROLLER_EPOCH, znode_data.controller_epoch_text(0))])
                continue
            epoch = znode_data.parse_controller_epoch(epoch_node.data)
            if controller is not None:
                # Ours if the answer to the election was lost; one of an earlier session of ours counts as another
                # broker's.
                ours = controller.ephemeral_owner == session.session_id
                return ControllerStore(session, epoch, epoch_node.version) if ours else None
            await session.write(
                [
                    Create(znode_paths.CONTROLLER, controller_json, ephemeral=True),
                    SetData(
                        znode_paths.CONTROLLER_EPOCH, znode_data.controller_epoch_text(epoch + 1), epoch_node.version
                    ),
                ]
            )
            return ControllerStore(session, epoch + 1, epoch_node.version + 1)
        except (NodeExists, BadVersion, NoNode) as lost:
            logger.debug("broker %d lost a race for the controller: %s", broker_id, lost)
    return None


class ControllerStore:
    """Writes for the controller of one `epoch`. A write raises ControllerMoved when there is a newer controller, and
    Unavailable when it is not known whether it was done."""

    def __init__(self, session: ZooKeeperSession, epoch: int, epoch_version: int) -> None:
        self.epoch = epoch
        self._session = session
        self._check = Check(znode_paths.CONTROLLER_EPOCH, epoch_version)

    async def write(self, steps: Sequence[Step]) -> list[Step]:
        """Do all the steps, in order. Returns the ones that were refused, because their nodes have changed."""
        refused: list[Step] = []
        for batch in batches([step.operations for step in steps], _BATCH_OPERATIONS_MAX, _BATCH_BYTES_MAX):
            waiting = [steps[index] for index in batch]
            while waiting and len(refused) <= _REFUSALS_MAX:
                failed = await self._transact(waiting)
                if failed is None:
                    waiting.clear()
                else:
                    refused.append(waiting.pop(failed))
            refused += waiting
        return refused

    async def _transact(self, batch: Sequence[Step]) -> int | None:
        """One transaction. The index of the step that was refused, or None if all is done."""
        try:
            failed = await transact(self._session, [step.operations for step in batch], [self._check])
        except OperationFailed:
            raise ControllerMoved(f"the controller epoch is no longer {self.epoch}") from None
        if failed is None:
            return None
        index, refused = failed
        logger.debug("refused to the controller: %s", refused.reason)
        return index

    async def resign(self) -> None:
        """Resign, so that another broker can be elected. Does nothing if this one was replaced already."""
        try:
            await self._session.write([self._check, Delete(znode_paths.CONTROLLER)])
        except OperationFailed as failure:
            logger.debug("nothing to resign from: %s", failure)

    async def creations(self, states: Mapping[TopicPartition, bytes]) -> list[Step]:
        """The steps that create state nodes, by topic and partition, and the missing ones of their parents: an earlier
        controller, or Kafka's, may have created some."""
        by_topic: dict[str, list[int]] = {}
        for name, number in states:
            by_topic.setdefault(name, []).append(number)
        parents = await self._session.read([znode_paths.partitions(name) for name in by_topic])
        begun = [name for name, node in zip(by_topic, parents, strict=True) if node is not None]
        there = set(begun)
        candidates = [znode_paths.partition(name, number) for name in begun for number in by_topic[name]]
        found = await self._session.read(candidates)
        there |= {path for path, node in zip(candidates, found, strict=True) if node is not None}
        steps = []
        for name, numbers in by_topic.items():
            above: list[Operation] = [] if name in there else [Create(znode_paths.partitions(name))]
            for first in range(0, len(numbers), _TOPIC_PARTITIONS_MAX):
                operations = above
                above = []
                for number in numbers[first : first + _TOPIC_PARTITIONS_MAX]:
                    if znode_paths.partition(name, number) not in there:
                        operations.append(Create(znode_paths.partition(name, number)))
                    operations.append(Create(znode_paths.state(name, number), states[name, number]))
                steps.append(Step(tuple(operations)))
        return steps

    async def deletions(self, names: Sequence[str]) -> list[Step]:
        """The steps that delete topics: states first, then the topic and its settings, and last the node that orders
        it, so that a deletion that was interrupted is taken up again. A small topic goes in one step. The order of a
        topic that is not there goes only if there is none by then: otherwise that one is to be deleted. Each deletion
        is counted, so that no writer takes the next topic of that name for this one."""
        await self._session.make_paths([znode_paths.TOPIC_DELETIONS])
        found = await self._session.read([znode_paths.config(znode_paths.CONFIG_TOPICS, name) for name in names])
        configured = {name for name, node in zip(names, found, strict=True) if node is not None}
        trees = await self._trees([znode_paths.topic(name) for name in names])
        steps = []
        for name in names:
            tree = trees[znode_paths.topic(name)]
            below = [Delete(path) for path in reversed(tree[1:])]
            last: list[Operation] = [Delete(znode_paths.topic(name))]
            if not tree:
                last.insert(0, Create(znode_paths.topic(name)))  # refused if another client has
            elif name in configured:  # a tool writes the settings of a new topic before the topic
                last.append(Delete(znode_paths.config(znode_paths.CONFIG_TOPICS, name)))
            last += [Delete(znode_paths.delete_topic(name)), SetData(znode_paths.TOPIC_DELETIONS, b"")]
            while len(below) > 3 * _TOPIC_PARTITIONS_MAX:
                piece, below = below[:_TOPIC_PARTITIONS_MAX], below[_TOPIC_PARTITIONS_MAX:]
                steps.append(Step(tuple(piece)))
            steps.append(Step((*below, *last)))
        return steps

    async def read(self, wanted: Sequence[str]) -> list[Node | None]:
        """The node at each path as it is now."""
        return await self._session.read(wanted)

    async def children(self, path: str) -> list[str]:
        """The paths below `path`; none if it is not there."""
        (names,) = await self._session.children([path])
        return [f"{path}/{name}" for name in sorted(names or ())]

    async def _trees(self, roots: Sequence[str]) -> dict[str, list[str]]:
        """The paths of each root and of all nodes below it, parents first; an empty list if it is not there."""
        trees: dict[str, list[str]] = {root: [] for root in roots}
        level = [(root, root) for root in roots]
        while level:
            found = await self._session.children([path for _, path in level])
            deeper = []
            for (root, path), names in zip(level, found, strict=True):
                if names is not None:
                    trees[root].append(path)
                    deeper += [(root, f"{path}/{name}") for name in names]
            level = deeper
        return trees


def removals(nodes: Iterable[str]) -> list[Step]:
    """The steps that delete nodes without children."""
    return [Step((Delete(path),)) for path in nodes]
