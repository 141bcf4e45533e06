"""Offsets that consumers of before 0.8.2 keep in ZooKeeper: /consumers/G/offsets/T/P, the number as text.

Only version 0 of OffsetCommit and OffsetFetch uses them. Other nodes below /consumers (ids, owners) belong to the
clients, which may write offsets themselves, too: the last write wins.
Source: kafka.zk.{ConsumerOffset, KafkaZkClient.setOrCreateConsumerOffset} (3.9).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.names import TopicPartition
from kafkalite.zk.client import operations
from kafkalite.zk.znodes import znode_paths

if TYPE_CHECKING:
    from kafkalite.zk.client.session import ZooKeeperSession

NO_OFFSET = -1
WRITE_ATTEMPTS = 5  # others may create or delete the same nodes between our read and our write
MULTI_MAX = 1000  # partitions in one write: some 100 KB, and ZooKeeper takes a request of 1 MB

_FORBIDDEN = re.compile("[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
_NUMBER = re.compile(rb"[+-]?[0-9]{1,30}")
_LONG_MIN, _LONG_MAX = -(1 << 63), (1 << 63) - 1


class LegacyOffsets:
    """Commits and fetches raise KafkaError: REQUEST_TIMED_OUT when ZooKeeper cannot be reached (Kafka waits for it),
    and UNKNOWN_SERVER_ERROR when ZooKeeper refuses, as in Kafka."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session

    async def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits all of them in one transaction, or several if there are thousands."""
        rows = [(offset_path(group, *partition), offset) for partition, offset in offsets.items()]
        for first in range(0, len(rows), MULTI_MAX):
            await self._put(rows[first : first + MULTI_MAX])

    async def fetch(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, ErrorCode]]:
        """The offset and error of each partition: UNKNOWN_TOPIC_OR_PARTITION where nothing was committed,
        UNKNOWN_SERVER_ERROR where the data are no number; the offset is NO_OFFSET then."""
        where = {partition: offset_path(group, *partition) for partition in partitions}
        try:
            nodes = await self._session.read(list(where.values()))
        except operations.Unavailable as fault:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, str(fault)) from None
        except operations.OperationFailed as fault:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper refuses it: {fault}") from None
        return {partition: _offset_in(node) for partition, node in zip(where, nodes, strict=True)}

    async def _put(self, rows: Sequence[tuple[str, int]]) -> None:
        """Writes rows in one transaction; missing nodes are created with all their parents."""
        offsets = dict(rows)
        every = znode_paths.with_parents(list(offsets))
        for attempt in range(1, WRITE_ATTEMPTS + 1):
            try:
                writes: list[operations.Operation] = []
                for path, node in zip(every, await self._session.read(every), strict=True):
                    data = b"%d" % offsets[path] if path in offsets else b""
                    if node is None:
                        writes.append(operations.Create(path, data))
                    elif data:
                        writes.append(operations.SetData(path, data))
                await self._session.write(writes)
                return
            except operations.Unavailable as fault:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, str(fault)) from None
            except operations.OperationFailed as fault:
                if attempt == WRITE_ATTEMPTS or not isinstance(fault, operations.NodeExists | operations.NoNode):
                    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper refuses it: {fault}") from None


def offset_path(group: str, topic: str, partition: int) -> str:
    """The path as Kafka builds it, with the unchanged name of the group. Raises KafkaError for a name that ZooKeeper
    refuses."""
    path = znode_paths.consumer_offset(group, topic, partition)
    if _FORBIDDEN.search(group) or any(part in ("", ".", "..") for part in path[1:].split("/")):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the group {group!r} cannot have a node in ZooKeeper")
    return path


def _offset_in(node: operations.Node | None) -> tuple[int, ErrorCode]:
    if node is None or not node.data:
        return NO_OFFSET, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not _NUMBER.fullmatch(node.data) or not _LONG_MIN <= (offset := int(node.data)) <= _LONG_MAX:
        return NO_OFFSET, ErrorCode.UNKNOWN_SERVER_ERROR
    return offset, ErrorCode.NONE
