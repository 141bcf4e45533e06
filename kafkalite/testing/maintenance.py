"""Work that a broker does at its own times, done now: compaction, retention, expiry. And a reset.

All of it belongs to the broker's loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.names import INTERNAL_TOPICS
from kafkalite.log.partition.retention_policy import SEGMENTS_PER_TURN

if TYPE_CHECKING:
    from kafkalite.cleaner.manager.schedule import RunOutcome
    from kafkalite.log.partition.partition_log import PartitionLog
    from kafkalite.replication.replica_manager import Topic
    from kafkalite.server.broker_server import BrokerServer


def require_topic(server: BrokerServer, name: str) -> Topic:
    """Raises KafkaError(UNKNOWN_TOPIC_OR_PARTITION)."""
    topic = server.replica_manager.by_name.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    return topic


def _logs_of(server: BrokerServer, name: str) -> list[PartitionLog]:
    topic = require_topic(server, name)
    return [server.logs.logs[name, index] for index in sorted(topic.partitions)]


def roll(server: BrokerServer, name: str) -> None:
    """Begin a new segment in every partition whose last one has records. Raises KafkaError."""
    now_ms = server.clock.wall_ms()
    for log in _logs_of(server, name):
        log.roll(now_ms)


async def compact(server: BrokerServer, name: str) -> None:
    """Compact all records of a topic, those of active segments too, and wait for the end. What
    min.compaction.lag.ms protects stays. Raises KafkaError, also if the topic is not compacted."""
    require_topic(server, name)
    done: asyncio.Future[list[RunOutcome]] = asyncio.get_running_loop().create_future()

    def tell(outcomes: list[RunOutcome]) -> None:
        if not done.done():
            done.set_result(outcomes)

    server.cleaner.run_now(name, None, True, tell)
    errors = [f"{one.topic}-{one.partition}: {one.error}" for one in await done if one.error is not None]
    if errors:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"cannot compact {'; '.join(errors)}")


def expire(server: BrokerServer) -> None:
    """Apply retention, expire offsets, transactional ids and producers, and abort transactions that have timed out: all
    that is due by the broker's clock. Raises StorageError."""
    now_ms = server.clock.wall_ms()
    for key, log in list(server.logs.logs.items()):
        if key not in server.logs.being_cleaned:
            _apply_retention(log, now_ms)
        log.expire_producers(now_ms)
    server.groups.offsets.expire()
    server.transactions.abort_timed_out()
    server.transactions.expire()


def _apply_retention(log: PartitionLog, now_ms: int) -> None:
    while True:
        reasons = log.delete_old_segments(now_ms, SEGMENTS_PER_TURN)
        if log.segment_list.waits_for_disk:
            log.flusher.flush()
        elif len(reasons) < SEGMENTS_PER_TURN:
            return


async def reset(server: BrokerServer) -> None:
    """Delete all topics, and with them groups, offsets, transactions and producers; settings that were changed while
    the broker runs are as at its start."""
    names = sorted(server.replica_manager.by_name, key=lambda name: name not in INTERNAL_TOPICS)  # groups go first
    for name in names:
        await server.topic_admin.delete(name)
    for broker in list(server.metadata.broker_configs):
        await server.metadata.set_broker_config(broker, {})
