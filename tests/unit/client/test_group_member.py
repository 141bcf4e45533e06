"""Members that share work: joins, restarts in place, and processes that take each other's place."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from kafkalite.client.cluster_client import ClusterClient, Retries, WriteFailed
from kafkalite.client.group_member import GroupMember, Share
from kafkalite.client.producer.transactions import CommittedOffset, GroupOffsets, Transactions
from kafkalite.client.topic_changes import ensure_topics
from kafkalite.server.broker import Broker
from tests.support.wait import until


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path / "data", port=0, group_initial_rebalance_delay_ms=0) as broker:
        yield broker


def halves(members: Sequence[str]) -> Mapping[str, bytes]:
    return {member: b"%d of %d" % (at, len(members)) for at, member in enumerate(members)}


def member(cluster: ClusterClient, instance: str | None) -> GroupMember:
    return GroupMember(cluster, "g", "mirror", instance, Retries(10), session_timeout_ms=10_000)


@pytest.mark.parametrize("instance", [None, "a"])
def test_a_member_alone_has_everything(broker: Broker, instance: str | None) -> None:
    with ClusterClient(broker.bootstrap_servers, 10) as cluster:
        one = member(cluster, instance)
        assert one.join(halves) == Share(b"0 of 1", True)
        assert one.heartbeat()
        one.leave()
        assert one.heartbeat() is (instance is not None)  # a static one keeps its share


def test_two_members_share(broker: Broker) -> None:
    with ClusterClient(broker.bootstrap_servers, 10) as cluster:
        first = member(cluster, "a")
        first.join(halves)
        shares: list[Share] = []

        def join_second() -> None:
            with closing(ClusterClient(broker.bootstrap_servers, 10)) as own:
                shares.append(member(own.open(), "b").join(halves))

        second = threading.Thread(target=join_second)
        second.start()
        until(lambda: not first.heartbeat(), "a rebalance")
        assert first.join(halves) == Share(b"0 of 2", True)
        second.join()
        assert shares == [Share(b"1 of 2", False)]


def test_a_member_that_is_restarted_fences_the_one_before(broker: Broker) -> None:
    with ClusterClient(broker.bootstrap_servers, 10) as cluster:
        before = member(cluster, "a")
        before.join(halves)
        after = member(cluster, "a")
        assert after.join(lambda members: {}) == Share(b"0 of 1", True)  # as it was divided before
        assert after.heartbeat()
        with pytest.raises(WriteFailed, match="another process is instance 'a' of group g now"):
            before.heartbeat()


def test_only_a_member_of_the_present_generation_commits_in_a_transaction(broker: Broker) -> None:
    with ClusterClient(broker.bootstrap_servers, 10) as cluster:
        one = member(cluster, "a")
        one.join(halves)
        transactions, offsets = Transactions(cluster, Retries(10)), GroupOffsets("g", cluster, Retries(10))
        identity = transactions.begin("x", 10_000)
        keys = ("t", 0), ("t", 1)
        ensure_topics(cluster, Retries(10), {"t": 3})
        transactions.add(identity, keys, "g")
        offsets.commit(identity, {key: CommittedOffset(7, "here") for key in keys}, one.membership)
        transactions.end(identity, commit=True)
        assert offsets.committed_in([*keys, ("t", 2)]) == {key: CommittedOffset(7, "here") for key in keys}
        stale = one.membership._replace(generation_id=one.membership.generation_id - 1)
        transactions.add(identity, (), "g")
        with pytest.raises(WriteFailed, match="ILLEGAL_GENERATION"):
            offsets.commit(identity, {keys[0]: CommittedOffset(8, "")}, stale)
