"""Blocks of producer ids, counted in one node for the whole cluster.

/latest_producer_id_block has the last block that was allocated. The next one begins where that one ends; the write that
allocates it has the version that was read, so that two brokers never get the same block.
Source: kafka.coordinator.transaction.ZkProducerIdManager, kafka.zk.ProducerIdBlockZNode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.metadata.cluster_metadata import PRODUCER_ID_BLOCK, PRODUCER_ID_MAX
from kafkalite.zk.client.operations import BadVersion, SetData
from kafkalite.zk.znodes import znode_data, znode_paths

if TYPE_CHECKING:
    from kafkalite.zk.client.session import ZooKeeperSession


async def next_block(session: ZooKeeperSession, broker_id: int) -> range:
    """Allocates a block. Raises KafkaError when none is left, or the node cannot be understood."""
    while True:
        first, version = await _read(session)
        block = range(first, first + PRODUCER_ID_BLOCK)
        if block.stop > PRODUCER_ID_MAX:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been given away.")
        if await _write(session, broker_id, block, version):
            return block


async def skip(session: ZooKeeperSession, broker_id: int, last: int) -> None:
    """Moves the count above `last` unless it is there already."""
    while 0 <= last < PRODUCER_ID_MAX:
        first, version = await _read(session)
        if first > last:
            return
        block = range(max(first, last + 1 - PRODUCER_ID_BLOCK), last + 1)
        if await _write(session, broker_id, block, version):
            return


async def _read(session: ZooKeeperSession) -> tuple[int, int]:
    """The first id that is not allocated, and the version of the node."""
    (node,) = await session.read([znode_paths.PRODUCER_ID_BLOCK])
    if node is None:
        await session.make_paths([znode_paths.PRODUCER_ID_BLOCK])
        return await _read(session)
    try:
        block = znode_data.parse_producer_id_block(node.data)
    except ValueError as fault:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"{znode_paths.PRODUCER_ID_BLOCK} in ZooKeeper is not understood: {fault}"
        ) from None
    return (block.ids.stop if block is not None else 0), node.version


async def _write(session: ZooKeeperSession, broker_id: int, block: range, version: int) -> bool:
    try:
        data = znode_data.producer_id_block_json(znode_data.ProducerIdBlockNode(broker_id, block))
        await session.write([SetData(znode_paths.PRODUCER_ID_BLOCK, data, version)])
    except BadVersion:
        return False
    return True
