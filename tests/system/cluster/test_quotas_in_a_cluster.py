"""Quotas that are set at one broker hold at each, within a second; what brokers ask each other is exempt."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import uvloop

from kafkalite.protocol.messages.entity_configs import (
    AlterClientQuotasRequest,
    AlteredEntity,
    DescribeClientQuotasRequest,
    QuotaEntity,
    QuotaOperation,
)
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.support.three_brokers import IDS, ThreeBrokers, three_brokers
from tests.support.zookeeper import ZooKeeper

SOON_S = 1.0


def quota(remove: bool, **quotas: float) -> AlterClientQuotasRequest:
    entity = [QuotaEntity(entity_type="user", entity_name="ANONYMOUS")]  # who the brokers are, too
    ops = [QuotaOperation(key=key, value=value, remove=remove) for key, value in quotas.items()]
    return AlterClientQuotasRequest(entries=[AlteredEntity(entity=entity, ops=ops)])


def test_each_broker_obeys_and_followers_are_exempt(zookeeper: ZooKeeper, chroot: str, tmp_path: Path) -> None:
    async def story(cluster: ThreeBrokers) -> None:
        wanted = CreatableTopic(name="t", num_partitions=1, replication_factor=3)
        answer = await cluster.ask(1, CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 5)
        assert answer.topics[0].error_code == 0
        await cluster.until(lambda: all(cluster.leaders("t", each).get(0, -1) > 0 for each in IDS))
        leader = cluster.leaders("t")[0]
        quotas = {"consumer_byte_rate": 1.0, "request_percentage": 0.0001}
        began_s = time.monotonic()
        answer = await cluster.ask(1, quota(False, **quotas), 1)
        assert answer.entries[0].error_code == 0
        managers = [cluster.server(each)._quotas for each in IDS]
        await cluster.until(lambda: all(manager.counts_time for manager in managers))
        assert time.monotonic() - began_s < SOON_S
        for each in IDS:
            told = await cluster.ask(each, DescribeClientQuotasRequest(components=[], strict=False), 1)
            assert {value.key: value.value for value in told.entries[0].values} == quotas
            waits_ms = (await cluster.ask(each, MetadataRequest(topics=[]), 9)).throttle_time_ms
            assert waits_ms > 0
        for _ in range(3):  # each on a connection of its own
            stored: Any = await cluster.produce(leader, "t", 0, bytes(10_000))
            assert stored.error_code == 0  # with acks=all
        await cluster.ask(2, quota(True, **quotas), 1)
        await cluster.until(lambda: not any(manager.has_limits for manager in managers))
        fetched = await cluster.fetch(leader, "t", 0)
        assert len(fetched.records) > 30_000

    async def life() -> None:
        async with three_brokers(zookeeper.connect + chroot, tmp_path) as cluster:
            await story(cluster)

    uvloop.run(life())
