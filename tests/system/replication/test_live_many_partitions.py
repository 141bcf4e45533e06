"""Hundreds of partitions change their leaders at once: records, epochs and files are those of a few."""

from __future__ import annotations

from kafkalite.log.state.leader_epoch_cache import LeaderEpochCache
from kafkalite.log.storage.files import Files
from kafkalite.testing import Cluster
from tests.support.replication.live_cluster import EVERY, SETTINGS, Writer, await_equal_logs, create_topic, read_all

PARTITIONS = 120


def stored(epochs: LeaderEpochCache) -> list[tuple[int, int]]:
    """The entries of the file."""
    again = LeaderEpochCache(epochs.path, Files())
    again.load()
    return again.entries()


def test_a_whole_cluster_restarts_and_leaders_go() -> None:
    with Cluster(3, **SETTINGS) as cluster:
        create_topic(cluster, "t", placed_on=[(0, 1, 2), (1, 2, 0), (2, 0, 1)] * (PARTITIONS // 3))
        writer = Writer(cluster)

        def write(value: bytes) -> None:
            for partition in range(PARTITIONS):
                writer.write("t", [value], partition)
            writer.flush()

        write(b"first")
        for number in EVERY:
            cluster.kill(number, session_ends=False)
        for number in EVERY:
            cluster.start(number)
        write(b"after all were killed")
        cluster.stop(0)
        write(b"after a stop")
        cluster.kill(1)
        cluster.start(0)
        for partition in range(PARTITIONS):
            cluster.wait_for_isr("t", partition, {0, 2})
        write(b"after a kill")
        cluster.start(1)
        for partition in range(PARTITIONS):
            cluster.wait_for_isr("t", partition, EVERY)
        write(b"last")
        assert not writer.failures
        wanted = [b"first", b"after all were killed", b"after a stop", b"after a kill", b"last"]
        for partition in range(PARTITIONS):
            await_equal_logs(cluster, "t", partition, EVERY)
            for broker in cluster.brokers:
                epochs = broker.server.logs.logs["t", partition].epochs
                assert epochs.latest >= 2 and stored(epochs) == epochs.entries()
        for partition in range(0, PARTITIONS, 17):
            assert list(read_all(cluster, "t", partition).values()) == wanted
