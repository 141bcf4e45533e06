"""Stock clients over their quotas: they are told, wait by themselves, and lose nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka
import kafka.errors
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import kafkalite
from kafkalite.client.blocking_client import BlockingClient
from kafkalite.client.logins import ClientSecurity
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.protocol.messages.entity_configs import (
    AlterClientQuotasRequest,
    AlteredEntity,
    QuotaEntity,
    QuotaOperation,
)
from tests.support.share_requests import begin_at_earliest
from tests.support.wait import DEADLINE_S, until

RATE = 50_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafkalite.Broker]:
    settings = {
        "log.dirs": str(tmp_path_factory.mktemp("broker")),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "group.initial.rebalance.delay.ms": "0",
        "quota.window.num": "3",  # two seconds of the limit are free
        "controller.quota.window.num": "3",
    }
    with kafkalite.Broker(BrokerConfig.load(settings)) as running:
        yield running


def set_quota(
    broker: kafkalite.Broker,
    name: str,
    key: str,
    value: float,
    kind: str = "client-id",
    security: ClientSecurity | None = None,
) -> None:
    entity = [QuotaEntity(entity_type=kind, entity_name=name)]
    entry = AlteredEntity(entity=entity, ops=[QuotaOperation(key=key, value=value)])
    with BlockingClient(broker.bootstrap_servers, DEADLINE_S, security) as client:
        (result,) = client.ask(AlterClientQuotasRequest(entries=[entry]), 1).entries
        assert result.error_code == 0, result.error_message


def test_librdkafka_is_told_and_slows_down(broker: kafkalite.Broker) -> None:
    set_quota(broker, "rdkafka-throttled", "producer_byte_rate", RATE)
    throttled: list[Any] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "client.id": "rdkafka-throttled",
            "throttle_cb": throttled.append,
            "linger.ms": 0,
            "batch.size": 10_000,
        }
    )
    began = time.monotonic()
    errors: list[Any] = []
    for _ in range(200):  # four times what is free
        producer.produce("told", bytes(1_000), on_delivery=lambda error, _: errors.append(error))
    until(lambda: producer.flush(1) == 0, "all answers")
    assert errors == [None] * 200
    assert time.monotonic() - began > 1
    assert throttled and throttled[0].throttle_time > 0 and throttled[0].broker_id == 0


def test_consumers_wait_and_read_everything(broker: kafkalite.Broker) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.size": 10_000})
    for number in range(200):
        producer.produce("read", bytes(990) + str(number).zfill(10).encode())
    until(lambda: producer.flush(1) == 0, "all answers")
    set_quota(broker, "slow-reader", "consumer_byte_rate", RATE)
    throttled: list[Any] = []
    reader = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "client.id": "slow-reader",
            "group.id": "slow",
            "auto.offset.reset": "earliest",
            "throttle_cb": throttled.append,
        }
    )
    reader.subscribe(["read"])
    found: list[bytes] = []

    def read() -> bool:
        message = reader.poll(1)
        if message is not None and message.error() is None:
            found.append(message.value()[-10:])
        return len(found) == 200

    until(read, "all records")
    reader.close()
    assert found == [str(number).zfill(10).encode() for number in range(200)]
    assert throttled

    other = kafka.KafkaConsumer(
        "read",
        bootstrap_servers=broker.bootstrap_servers,
        client_id="slow-reader",
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(DEADLINE_S * 1000),
    )
    again = []
    for message in other:
        again.append(message.value[-10:])
        if len(again) == 200:
            break
    other.close()
    assert again == found


def test_kafka_python_produces_within_its_quota(broker: kafkalite.Broker, caplog: pytest.LogCaptureFixture) -> None:
    set_quota(broker, "python-throttled", "producer_byte_rate", RATE)
    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, client_id="python-throttled", batch_size=10_000
    )
    began = time.monotonic()
    futures = [producer.send("python", bytes(1_000)) for _ in range(200)]
    producer.flush(DEADLINE_S)
    assert [future.get(DEADLINE_S).offset for future in futures] == list(range(200))
    assert time.monotonic() - began > 1
    assert "throttled by broker" in caplog.text
    producer.close()


def test_librdkafkas_admin_waits_for_its_partitions(broker: kafkalite.Broker) -> None:
    """It asks in a version that is too old for a refusal."""
    set_quota(broker, "busy-admin", "controller_mutation_rate", 5)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "client.id": "busy-admin"})
    admin.create_topics([NewTopic("first", 30, 1)])["first"].result(DEADLINE_S)  # fifteen are free
    began = time.monotonic()
    admin.create_topics([NewTopic("second", 1, 1)])["second"].result(DEADLINE_S)
    assert time.monotonic() - began > 1


def test_kafka_pythons_admin_is_refused_and_may_try_again(broker: kafkalite.Broker) -> None:
    set_quota(broker, "python-admin", "controller_mutation_rate", 10)
    admin = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers, client_id="python-admin")

    def create(name: str, partition_count: int) -> Any:
        topic = kafka.admin.NewTopic(name, partition_count, 1)
        return admin.create_topics([topic], raise_errors=False)

    assert "error_code=89" not in str(create("third", 40))
    refused = str(create("fourth", 1))
    assert "89" in refused or "Throttling" in refused, refused

    def created() -> bool:
        try:
            return "89" not in str(create("fourth", 1))
        except kafka.errors.NodeNotReadyError:  # it knows that it is to wait
            return False

    until(created, "tokens")
    admin.close()


@pytest.mark.parametrize("lifetime_ms", ["0", "3600000"])
def test_a_user_is_held_to_its_quota_whoever_it_was_before_it_logged_in(tmp_path: Path, lifetime_ms: str) -> None:
    """A client asks ApiVersions before its login, under the same client id."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    settings = {
        "log.dirs": str(tmp_path),
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{module} user_alice="a" user_bob="b";',
        "connections.max.reauth.ms": lifetime_ms,
        "quota.window.num": "3",
    }

    def throttled(broker: kafkalite.Broker, name: str, password: str) -> list[Any]:
        told: list[Any] = []
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": name,
                "sasl.password": password,
                "client.id": "same",
                "throttle_cb": told.append,
            }
        )
        for _ in range(5):
            producer.produce("t", bytes(40_000))
            until(lambda: producer.flush(1) == 0, "the answer")
        return told

    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{module} username="bob" password="b";',
    }
    with kafkalite.Broker(BrokerConfig.load(settings)) as broker:
        set_quota(broker, "alice", "producer_byte_rate", RATE, "user", ClientSecurity.of(login))
        assert throttled(broker, "alice", "a")
        assert not throttled(broker, "bob", "b")


def test_a_share_consumer_is_slowed_down_and_gets_each_record_once(broker: kafkalite.Broker) -> None:
    begin_at_earliest(broker.bootstrap_servers, "workers")
    set_quota(broker, "worker-throttled", "consumer_byte_rate", RATE)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.size": 10_000})
    for _ in range(200):  # four times what a second allows
        producer.produce("jobs", bytes(1_000))
    assert producer.flush(DEADLINE_S) == 0
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "workers", "client.id": "worker-throttled"}
    consumer = confluent_kafka.ShareConsumer({**settings, "max.poll.records": 20})
    consumer.subscribe(["jobs"])
    found: list[tuple[int, int]] = []
    moments: list[float] = []

    def is_all() -> bool:
        for message in consumer.poll(0.5):
            found.append((message.offset(), message.delivery_count()))
            moments.append(time.monotonic())
        return len(found) >= 200

    until(is_all, lambda: f"200 records: {len(found)}")
    consumer.close()
    assert sorted(found) == [(offset, 1) for offset in range(200)]
    assert moments[-1] - moments[0] > 1, "two seconds of the limit are free"
