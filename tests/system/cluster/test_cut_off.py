"""ZooKeeper cannot be reached. By nobody: all goes on but changes. By one broker alone: that one gives way."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable

import pytest

from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from kafkalite.record.batch import build_batch
from kafkalite.record.record import Record
from tests.support.wait import until
from tests.system.cluster.load import Load, p99_ms
from tests.system.cluster.members import SESSION_TIMEOUT_MS, Cluster, exists
from tests.system.cluster.outcome import assert_usable

MANY_S = pytest.param(60.0, marks=[pytest.mark.long, pytest.mark.timeout(600)])


@pytest.mark.parametrize("away_s", [3.2, MANY_S])
def test_without_zookeeper_records_come_and_go_and_nothing_else_changes(
    cluster: Cluster, away_s: float, report: Callable[[str], None]
) -> None:
    assert away_s * 1000 > 2 * SESSION_TIMEOUT_MS
    topic = f"outage-{uuid.uuid4().hex[:8]}"
    ids = sorted(cluster.members)
    cluster.create(topic, ids)
    refused: list[tuple[int, str]] = []
    with contextlib.ExitStack() as stack:
        loads = [stack.enter_context(Load(cluster.bootstrap, topic, cluster.led_by(i, topic))) for i in ids]
        for load in loads:
            load.await_progress("before")
        began = time.monotonic()
        cluster.zookeeper.stop()
        try:
            for broker_id in ids:
                refused.append(try_to_create(cluster, broker_id, f"{topic}-refused"))
            until(lambda: time.monotonic() - began > away_s, "time to pass", away_s + 1)
            for load in loads:
                load.await_progress("without ZooKeeper")
            ended = time.monotonic()
        finally:
            cluster.zookeeper.start()
        cluster.await_whole()
        whole_s = time.monotonic() - ended
        for load in loads:
            load.await_progress("after")
        before = [answer for load in loads for answer in load.between(0, began)]
        during = [answer for load in loads for answer in load.between(began, ended)]
    for code, message in refused:
        assert code == ErrorCode.REQUEST_TIMED_OUT and "ZooKeeper" in message, f"{ErrorCode(code).name}: {message}"
    made = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)  # by an earlier try, whose time was over
    until(lambda: try_to_create(cluster, ids[0], f"{topic}-later")[0] in made, "a topic to be created again")
    ports = {partition: cluster.members[leader].port for partition, leader in cluster.leaders(topic).items()}
    count = sum(load.check(ports) for load in loads)
    assert_usable(cluster, topic)
    longest_ms = max(answer.seconds for answer in during) * 1000
    report(
        f"ZooKeeper away for {ended - began:.0f} s, {count} records acknowledged, none failed or lost; p99 "
        f"{p99_ms(before):.1f} ms before, {p99_ms(during):.1f} ms meanwhile, longest {longest_ms:.0f} ms; whole again "
        f"{whole_s:.1f} s after its start began; a new topic was refused: {refused[0][1]}"
    )


def try_to_create(cluster: Cluster, broker_id: int, name: str) -> tuple[int, str]:
    new = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    told = cluster.members[broker_id].ask(CreateTopicsRequest(topics=[new], timeout_ms=1000), 5).topics[0]
    return int(told.error_code), told.error_message or ""


@pytest.mark.long  # its quick form, with brokers in one process, is tests/system/cluster/test_fenced.py
@pytest.mark.parametrize("how", ["cut", "silence"])
def test_a_broker_that_others_can_reach_and_zookeeper_cannot_gives_way(
    cluster: Cluster, how: str, report: Callable[[str], None]
) -> None:
    topic = f"cut-{uuid.uuid4().hex[:8]}"
    ids = sorted(cluster.members)
    probe = f"{topic}-probe"
    cluster.create(topic, ids)
    cluster.create(probe, ids)
    controller = cluster.said_by(ids[0]).controller
    lonely = next(i for i in ids if i != controller)
    others = [i for i in ids if i != lonely]
    with contextlib.ExitStack() as stack, cluster.zookeeper_client() as zookeeper:
        loads = {i: stack.enter_context(Load(cluster.bootstrap, topic, cluster.led_by(i, topic))) for i in ids}
        for load in loads.values():
            load.await_progress("before")
        since = time.monotonic()
        getattr(cluster.cuts[lonely], how)()
        until(lambda: not exists(zookeeper, f"/brokers/ids/{lonely}"), "its session to end")
        gone_s = time.monotonic() - since
        until(lambda: append_one(cluster, lonely, probe) == ErrorCode.NOT_LEADER_OR_FOLLOWER, "it to stop leading")
        fenced_s = time.monotonic() - since
        for i in others:
            loads[i].await_progress(f"without broker {lonely}")
        since = time.monotonic()
        cluster.cuts[lonely].mend()
        cluster.await_whole()
        back_s = time.monotonic() - since
        for load in loads.values():
            load.await_progress("after")
    ports = {partition: cluster.members[leader].port for partition, leader in cluster.leaders(topic).items()}
    for load in loads.values():
        load.check(ports)
    assert_usable(cluster, topic)
    report(
        f"one broker and ZooKeeper apart ({how}): its node gone after {gone_s:.2f} s, it leads nothing after "
        f"{fenced_s:.2f} s (session timeout {SESSION_TIMEOUT_MS / 1000:g} s), back {back_s:.2f} s after it was mended"
    )


def append_one(cluster: Cluster, broker_id: int, topic: str) -> int:
    """The error code of one more record for the partition that this broker leads, or led."""
    batch = build_batch([Record(0, 1_700_000_000_000, None, b"-1", ())])
    index = sorted(cluster.members).index(broker_id)
    data = PartitionProduceData(index=index, records=memoryview(batch))
    produce = ProduceRequest(
        acks=-1, timeout_ms=5_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    told = cluster.members[broker_id].ask(produce, 9)
    return int(told.responses[0].partition_responses[0].error_code)
