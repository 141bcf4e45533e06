"""Directories of another broker are taken over: their topics, in words and from a real Apache Kafka's files."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.log.directories.log_directories import StoredTopic
from kafkalite.log.directories.meta_properties import MetaProperties
from kafkalite.metadata.cluster_metadata import PartitionRecord, TopicRecord
from kafkalite.protocol.header import decode_response, request_frame
from kafkalite.protocol.messages.group_offsets import OffsetFetchRequest, OffsetFetchRequestTopic
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.record.record import read_records
from kafkalite.server.broker import Broker
from kafkalite.server.membership.single_broker import FIRST_PRODUCER_ID, Adopted, adopt, identity
from tests.support import places

GOLDEN = places.GOLDEN / "log" / "kafka-3.9-zookeeper"
ID, OTHER_ID = uuid.UUID(int=7), uuid.UUID(int=8)
KEPT = {"retention.ms": "-1", "retention.bytes": "-1"}
OWN = PartitionRecord((3,), 3, 5, (3,), 2)


def stored(topic_id: uuid.UUID | None, *partitions: int) -> StoredTopic:
    topic = StoredTopic()
    topic.topic_id = topic_id
    topic.partitions = set(partitions)
    return topic


def known(name: str, topic_id: uuid.UUID = ID, count: int = 1) -> dict[str, TopicRecord]:
    return {name: TopicRecord(name, topic_id, dict.fromkeys(range(count), OWN), {"retention.ms": "7"})}


def test_a_topic_that_nobody_knew_gets_its_id_and_is_kept_for_ever() -> None:
    found = adopt({"orders": stored(ID, 0, 1)}, {}, 3, some_are_offline=False)
    (record,) = found.records
    assert (record.name, record.topic_id, record.config) == ("orders", ID, KEPT)
    assert record.partitions == {i: PartitionRecord((3,), 3, 0, (3,), 0) for i in range(2)}
    assert found.new == ["orders"] and found.gone == [] and found.missing == {}
    (nameless,) = adopt({"old": stored(None, 0)}, {}, 3, some_are_offline=False).records
    assert nameless.topic_id.version == 4, "a broker before 2.8 gave no ids"


def test_internal_topics_stay_compacted() -> None:
    names = ("__consumer_offsets", "__transaction_state")
    found = adopt({name: stored(ID, 0) for name in names}, {}, 3, some_are_offline=False)
    assert [record.config["cleanup.policy"] for record in found.records] == ["compact"] * 2


def test_what_was_set_here_before_stays() -> None:
    found = adopt({"orders": stored(ID, 0, 1, 2)}, known("orders"), 3, some_are_offline=False)
    (record,) = found.records
    assert record.config == {"retention.ms": "7"} and record.partitions[0] == OWN, "an epoch never goes back"
    assert sorted(record.partitions) == [0, 1, 2], "and the other broker has added some"
    assert found.new == []


def test_unless_the_topic_is_another_one() -> None:
    found = adopt({"orders": stored(OTHER_ID, 0)}, known("orders"), 3, some_are_offline=False)
    assert found.records[0].config == KEPT and found.records[0].topic_id == OTHER_ID


def test_topics_that_are_gone_are_forgotten_if_every_disk_was_looked_at() -> None:
    assert adopt({}, known("orders"), 3, some_are_offline=False) == Adopted([], [], ["orders"], {})
    assert [r.name for r in adopt({}, known("orders"), 3, some_are_offline=True).records] == ["orders"]


def test_partitions_that_were_elsewhere_are_told() -> None:
    found = adopt({"orders": stored(ID, 1, 4)}, {}, 3, some_are_offline=False)
    assert found.missing == {"orders": [0, 2, 3]}
    assert any("orders lacks partitions 0, 2, 3, which begin empty here" in line for line in found.lines())


def test_whose_the_directories_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such directory"):
        identity([str(tmp_path / "nowhere")])
    (tmp_path / "new").mkdir()
    with pytest.raises(ConfigError, match=r"no meta\.properties names its owner"):
        identity([str(tmp_path / "new")])
    assert identity([str(tmp_path / "new"), str(GOLDEN / "one")]).broker_id == 3
    (tmp_path / "new" / "meta.properties").write_bytes(MetaProperties("other", 3).encode(0))
    with pytest.raises(ConfigError, match="must be of one broker"):
        identity([str(tmp_path / "new"), str(GOLDEN / "one")])


# a real Apache Kafka's directories


@pytest.fixture
def kafkas(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN, tmp_path / "kafka"))


def live(root: Path, story: Callable[[Any], Any], **how: Any) -> None:
    properties = {
        "log.dirs": f"{root}/one,{root}/two",
        "broker.id": "3",
        "listeners": "PLAINTEXT://127.0.0.1:0",
    }

    async def life() -> None:
        async with Broker(BrokerConfig.load(properties), **how) as broker:
            result = story(broker)
            if asyncio.iscoroutine(result):
                await result

    asyncio.run(life())


def contents(broker: Any, topic: str) -> list[list[list[Any]]]:
    """As `make_golden_directories.read` tells it."""
    partitions = broker._running.replica_manager.by_name[topic].partitions
    found = []
    for index in sorted(partitions):
        log = partitions[index].log
        records = [record for batch in log.batches(log.start_offset) for record in read_records(bytes(batch))]
        found.append(
            [
                [r.offset, r.timestamp, (r.key or b"").decode(), (r.value or b"").decode()]
                for r in records
                if r.offset >= log.start_offset
            ]
        )
    return found


def files_of(root: Path) -> dict[str, str]:
    """Every file that Kafka left, but for the marks of a stop, by what is in it."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "cleanshutdown" not in path.name and path.name != ".lock"
    }


def test_kafkas_records_commits_and_ids_are_there(kafkas: Path) -> None:
    told = json.loads((GOLDEN / "contents.json").read_text())
    ids = [line for path in kafkas.glob("*/orders-*/partition.metadata") for line in path.read_text().split()[3:]]

    async def story(broker: Any) -> None:
        assert {topic: contents(broker, topic) for topic in told} == told
        topics = broker._running.replica_manager.by_name
        assert sorted((name, len(topic.partitions)) for name, topic in topics.items()) == [
            ("__consumer_offsets", 2), ("__transaction_state", 2), ("compacted", 1), ("empty", 1), ("orders", 3),
            ("paid", 1),
        ]  # fmt: skip
        assert len(set(ids)) == 1
        assert topics["orders"].partitions[2].log.start_offset == 13
        assert broker.adopted.new == list(topics)
        assert broker._running.metadata._next_producer_id == FIRST_PRODUCER_ID
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        asked = OffsetFetchRequest(
            group_id="readers", topics=[OffsetFetchRequestTopic(name="orders", partition_indexes=[0, 1, 2])]
        )
        writer.write(request_frame(asked, 5, 1, "test"))
        frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        writer.close()
        _, answer = decode_response(OffsetFetchRequest, 5, memoryview(frame))
        found = answer.topics[0].partitions
        # the client that committed sent a zero byte too
        assert [(one.committed_offset, one.metadata.rstrip("\0")) for one in found] == [
            (11, "eleven"), (22, ""), (-1, ""),
        ]  # fmt: skip

    live(kafkas, story, adopt=True)


def test_producer_ids_begin_far_above_kafkas_also_where_it_had_no_topics(kafkas: Path) -> None:
    for path in kafkas.glob("*/*-*/"):
        shutil.rmtree(path)

    async def story(broker: Any) -> None:
        assert broker.adopted.lines() == ["0 topics with 0 partitions"]
        assert (await broker._running.metadata.writes.next_producer_id_block()).start == FIRST_PRODUCER_ID

    live(kafkas, story, adopt=True)


def test_who_only_looked_has_changed_nothing(kafkas: Path) -> None:
    before = files_of(kafkas)
    live(kafkas, lambda broker: None, adopt=True)
    after = files_of(kafkas)
    own = {name for name in after.keys() - before.keys() if "kafkalite" in name}
    assert after.keys() - before.keys() == own
    gone = before.keys() - after.keys()
    assert all(name.endswith(".snapshot") for name in gone), "of segments that Kafka was about to delete"
    changed = {name for name, digest in before.items() if name not in gone and after[name] != digest}
    assert {Path(name).name for name in changed} <= {
        "recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint",
    }  # fmt: skip
    for name in changed:  # the same lines in another order
        lines = (GOLDEN / name).read_text().splitlines(), (kafkas / name).read_text().splitlines()
        assert sorted(lines[0]) == sorted(lines[1])


def test_after_a_kill_everything_is_read_again_and_found_whole(kafkas: Path) -> None:
    told = json.loads((GOLDEN / "contents.json").read_text())
    for path in kafkas.glob("*/*"):
        if path.name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
            path.unlink()

    def story(broker: Any) -> None:
        assert {topic: contents(broker, topic) for topic in told} == told
        assert sum(log.lost_bytes for log in broker._running.logs.logs.values()) == 0

    live(kafkas, story)


def test_a_kafka_that_came_back_meanwhile_is_believed(kafkas: Path) -> None:
    """Deleted there, made there, grown there: the next start here sees it, without being told to look."""

    async def first(broker: Any) -> None:
        topics = broker._running.replica_manager
        await broker._running.topic_admin.change_overrides(
            "orders", lambda overrides: {**overrides, "max.message.bytes": "2000"}
        )
        batch = build_batch([NewRecord(None, b"ours")])
        topics.partition("empty", 0).append(memoryview(batch), 1, 9)

    def second(broker: Any) -> None:
        topics = broker._running.replica_manager
        assert sorted(topics.by_name) == ["__consumer_offsets", "__transaction_state", "empty", "new", "orders", "paid"]
        assert topics.by_name["orders"].overrides == KEPT | {"max.message.bytes": "2000"}
        assert len(topics.by_name["empty"].partitions) == 2
        assert topics.partition("empty", 0).high_watermark == 1
        assert broker.adopted.new == ["new"] and broker.adopted.gone == ["compacted"]

    live(kafkas, first)
    place = next(kafkas.glob("*/empty-0"))
    shutil.rmtree(next(kafkas.glob("*/compacted-0")))
    shutil.copytree(place, kafkas / "one" / "empty-1")
    for path in (kafkas / "one" / "empty-1").glob("0*"):
        path.unlink()
    shutil.copytree(kafkas / "one" / "empty-1", kafkas / "one" / "new-0")
    (kafkas / "one" / "new-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    for name in ("one", "two"):
        (kafkas / name / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    live(kafkas, second)


def test_what_kafka_set_aside_of_topics_that_were_made_here_is_taken_back(kafkas: Path) -> None:
    """With KRaft it calls every log that its metadata do not know a stray one."""

    async def first(broker: Any) -> None:
        topics = broker._running.replica_manager
        await broker._running.topic_admin.create("ours", 2, {"retention.ms": "7000"})
        topics.partition("ours", 1).append(memoryview(build_batch([NewRecord(None, b"x")])), 1, 9)

    def second(broker: Any) -> None:
        topics = broker._running.replica_manager
        assert topics.by_name["ours"].overrides == {"retention.ms": "7000"}
        assert topics.partition("ours", 1).high_watermark == 1
        assert broker.adopted.gone == [] and broker.adopted.new == []

    live(kafkas, first)
    for number, path in enumerate(kafkas.glob("*/ours-*")):
        path.rename(path.with_name(f"{path.name}.{number:032x}-stray"))
    for name in ("one", "two"):
        (kafkas / name / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    live(kafkas, second)
    assert not list(kafkas.glob("*/*-stray"))


def test_compacted_logs_whose_settings_nobody_knows_keep_all_their_segments(kafkas: Path) -> None:
    """After a kill the gaps that compaction left are not taken for losses."""
    for path in kafkas.glob("*/.kafka_cleanshutdown"):
        path.unlink()
    log = next(kafkas.glob("*/orders-0"))
    bases = sorted(log.glob("*.log"))
    assert len(bases) > 3
    for suffix in ("log", "index", "timeindex"):
        bases[1].with_suffix(f".{suffix}").unlink()
    for path in kafkas.glob("*/recovery-point-offset-checkpoint"):
        path.unlink()

    def story(broker: Any) -> None:
        assert broker._running.replica_manager.partition("orders", 0).high_watermark == 40
        assert all(path.exists() for path in bases if path != bases[1])

    live(kafkas, story, adopt=True)
