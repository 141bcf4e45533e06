"""Arrow batches into a real broker, read again by kafkalite's own reader of files."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalite
from kafkalite.client import sasl_login
from kafkalite.client.cluster_client import ClusterClient, Retries, WriteFailed
from kafkalite.client.producer.bulk_load import BulkLoad
from kafkalite.client.producer.options import parse_write_options
from kafkalite.client.producer.producer import Producer
from kafkalite.client.producer.transactions import Identity, Transactions
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.server.broker import Broker
from tests.support.certificates import Authority
from tests.support.token_server import TokenServer, token_server
from tests.support.wait import until

pa = pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

NOW_MS = 1_700_000_000_000
COMMITTED = {"isolation_level": "read_committed"}


class Place:
    """A broker, and loads into it."""

    def __init__(self, broker: Broker, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.bootstrap = broker.bootstrap_servers
        self.clusters: list[ClusterClient] = []

    def connect(self) -> tuple[ClusterClient, Retries, Transactions]:
        self.clusters.append(ClusterClient(self.bootstrap, 30))
        retries = Retries(30)
        return self.clusters[-1], retries, Transactions(self.clusters[-1], retries)

    def load(self, identity: Identity | None = None, chunk_bytes: int = 64 << 20, **options: str) -> BulkLoad:
        parsed = parse_write_options({"bootstrap.servers": self.bootstrap, **options})
        cluster, retries, _ = self.connect()
        producer = Producer(parsed.producer, cluster, retries, identity)
        return BulkLoad(parsed, producer, now_ms=lambda: NOW_MS, chunk_bytes=chunk_bytes)

    def rows(self, topic: str, **options: Any) -> list[dict[str, Any]]:
        reader = kafkalite.read(str(self.data_dir), topic, **options)
        return sorted(reader.read_all().to_pylist(), key=lambda row: (row["partition"], row["offset"]))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with Broker(data_dir=tmp_path / "data", port=0, num_partitions=3) as broker:
        place = Place(broker, tmp_path / "data")
        yield place
        for cluster in place.clusters:
            cluster.close()


def test_a_broker_with_tls_and_logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logins: list[str] = []
    conversation = sasl_login.conversation
    monkeypatch.setattr(
        sasl_login, "conversation", lambda login, host: logins.append(login.name) or conversation(login, host)
    )
    authority = Authority()
    users = 'user_loader="secret"'
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "log.dirs": str(tmp_path / "data"),
        "ssl.keystore.location": authority.identify().write(tmp_path / "broker.pem"),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{module} {users};",
        "connections.max.reauth.ms": "1200",
    }
    options = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.SASL.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{module} username="loader" password="secret";',
        "kafka.ssl.truststore.location": authority.write(tmp_path / "ca.pem"),
    }
    with Broker(BrokerConfig.load(settings)) as broker:
        parsed = parse_write_options({"bootstrap.servers": broker.bootstrap_servers, "topic": "t", **options})
        assert "secret" not in repr(parsed)
        cluster = pickle.loads(pickle.dumps(parsed.producer)).connect()
        retries = Retries(30)
        count = 0

        def loads_on() -> bool:
            nonlocal count
            load = BulkLoad(parsed, Producer(parsed.producer, cluster, retries), now_ms=lambda: NOW_MS)
            load.write(batch(100))
            load.finish()
            count += 100
            return len(logins) >= 6

        until(loads_on, "logins again, before the sessions end")
        cluster.close()
    assert len(kafkalite.read(str(tmp_path / "data"), "t").read_all()) == count


def test_a_login_by_a_token_of_an_authority(tmp_path: Path) -> None:
    oauth = "org.apache.kafka.common.security.oauthbearer"
    with token_server(TokenServer({"loader": "s3cret"})) as server:
        settings = {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(tmp_path / "data"),
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.server.callback.handler.class": f"{oauth}.OAuthBearerValidatorCallbackHandler",
            "sasl.oauthbearer.jwks.endpoint.url": server.jwks_url,
            "sasl.oauthbearer.expected.audience": "kafka",
        }
        options = {
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.login.callback.handler.class": f"{oauth}.OAuthBearerLoginCallbackHandler",
            "kafka.sasl.oauthbearer.token.endpoint.url": server.url,
            "kafka.sasl.jaas.config": f"{oauth}.OAuthBearerLoginModule required"
            ' clientId="loader" clientSecret="s3cret";',
        }
        with Broker(BrokerConfig.load(settings)) as broker:
            parsed = parse_write_options({"bootstrap.servers": broker.bootstrap_servers, "topic": "t", **options})
            assert "s3cret" not in repr(parsed) and not server.asked
            cluster = pickle.loads(pickle.dumps(parsed.producer)).connect()  # as Spark's executors get it
            load = BulkLoad(parsed, Producer(parsed.producer, cluster, Retries(30)), now_ms=lambda: NOW_MS)
            load.write(batch(100))
            load.finish()
            cluster.close()
        assert len(server.asked) == 1
    assert len(kafkalite.read(str(tmp_path / "data"), "t").read_all()) == 100


def batch(count: int, **more: Any) -> Any:
    keys = pa.array([b"k%d" % row if row % 3 else None for row in range(count)], pa.binary())
    values = pa.array([b"value %d" % row if row % 5 else None for row in range(count)], pa.binary())
    return pa.record_batch({"key": keys, "value": values, **more})


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_rows_arrive_once_and_in_order_in_their_partitions(place: Place, codec: str) -> None:
    partitions = pa.array([row % 3 for row in range(1000)], pa.int32())
    rows = batch(1000, partition=partitions)
    load = place.load(topic="t", chunk_bytes=5000, **{"kafka.compression.type": codec, "kafka.batch.size": "2000"})
    for start in range(0, 1000, 90):
        load.write(rows.slice(start, 90))
    load.finish()
    assert load.row_count == 1000
    found = [(row["partition"], row["key"], row["value"]) for row in place.rows("t")]
    expected = zip([row % 3 for row in range(1000)], rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True)
    assert found == sorted(expected, key=lambda row: row[0])


def test_a_row_s_own_topic_time_and_headers(place: Place) -> None:
    headers = pa.array([None, [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]] * 2,
                       pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))  # fmt: skip
    times = pa.array([1_600_000_000_123_456, None, -1, 1_600_000_000_124_000], pa.timestamp("us", tz="UTC"))
    topics = pa.array(["one", "two", "two", "one"])
    rows = pa.record_batch(
        {"value": pa.array(["a", "b", "c", "é"]), "topic": topics, "headers": headers, "timestamp": times}
    )
    load = place.load(includeTimestamp="true")
    load.write(rows)
    load.finish()
    one = place.rows("one", include_headers=True)
    assert [(row["value"], row["timestamp"].timestamp(), row["headers"]) for row in one] == [
        (b"a", 1_600_000_000.123, None),
        ("é".encode(), 1_600_000_000.124, [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]),
    ]
    assert [(row["value"], round(row["timestamp"].timestamp() * 1000)) for row in place.rows("two")] == [
        (b"b", NOW_MS),
        (b"c", -1),
    ]


def test_a_row_that_cannot_be_written_is_told_before_anything_is_sent(place: Place) -> None:
    values = pa.array([b"small", b"x" * 2_000_000])
    load = place.load(topic="t")
    load.write(pa.record_batch({"value": values}))
    with pytest.raises(WriteFailed, match=r"needs 2000\d+ bytes, and kafka.max.request.size is 1048576"):
        load.finish()
    load = place.load(topic="t", **{"kafka.max.request.size": "9000000"})
    load.write(pa.record_batch({"value": values}))
    with pytest.raises(WriteFailed, match=r"and max.message.bytes of topic 't' is 1048588"):
        load.finish()
    load = place.load(topic="t")
    load.write(pa.record_batch({"value": values[:1], "partition": pa.array([3], pa.int32())}))
    with pytest.raises(WriteFailed, match="asks for partition 3 of topic 't', which has 0 to 2"):
        load.finish()
    load = place.load()
    load.write(pa.record_batch({"value": values[:1], "topic": pa.array([None], pa.string())}))
    with pytest.raises(WriteFailed, match="null in the column 'topic'"):
        load.finish()
    assert place.rows("t") == []
    load = place.load(topic="t", **{"kafka.max.request.size": "9000000", "kafka.compression.type": "zstd"})
    load.write(pa.record_batch({"value": values}))
    load.finish()
    assert sorted(len(row["value"]) for row in place.rows("t")) == [5, 2_000_000], "it fits when it is compressed"


@pytest.mark.parametrize("acks", ["0", "1"])
def test_without_idempotence(place: Place, acks: str) -> None:
    load = place.load(topic="t", chunk_bytes=3000, **{"kafka.acks": acks})
    load.write(batch(500))
    load.finish()
    place.load(topic="t").finish()
    if acks == "1":
        assert len(place.rows("t")) == 500


def test_a_transaction_is_ended_by_somebody_else(place: Place) -> None:
    _, _, task = place.connect()
    _, _, driver = place.connect()
    done = []
    for name, commit in (("a", True), ("b", False), ("c", None)):
        identity = task.begin(f"job-{name}", 60_000)
        assert not driver.is_ongoing(identity)
        load = place.load(identity, topic="t", chunk_bytes=2000)
        load.write(batch(300))
        load.finish()
        assert driver.is_ongoing(identity)
        if commit is not None:
            driver.end(identity, commit=commit)
            driver.end(identity, commit=commit)  # a repeated request has the same result
            assert not driver.is_ongoing(identity)
        done.append(identity)
    assert driver.ongoing_with_prefix("job-") == ["job-c"]
    assert driver.ongoing_with_prefix("another-") == []
    driver.begin("job-c", 60_000)
    assert driver.ongoing_with_prefix("job-") == []
    with pytest.raises(WriteFailed, match=r"job-c cannot be committed: (INVALID_PRODUCER_EPOCH|PRODUCER_FENCED)"):
        driver.end(done[2], commit=True)
    assert len(place.rows("t")) == 900
    assert len(place.rows("t", **COMMITTED)) == 300
