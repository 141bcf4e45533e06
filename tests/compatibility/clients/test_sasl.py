"""Stock clients log in by PLAIN and SCRAM, or are told why not, and get what their access control lists allow."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import kafka.errors
import pytest
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

import kafkalite
from kafkalite.config.broker_config import BrokerConfig
from tests.support.wait import DEADLINE_S, until

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="admin-secret" user_admin="admin-secret" user_alice="wonder\\"land";'
)
PASSWORDS = {"admin": "admin-secret", "alice": 'wonder"land'}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafkalite.Broker]:
    settings = {
        "log.dirs": str(tmp_path_factory.mktemp("broker")),
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin",
        "group.initial.rebalance.delay.ms": "0",
    }
    with kafkalite.Broker(BrokerConfig.load(settings)) as running:
        admin = AdminClient(librdkafka(running, "admin", "PLAIN"))
        upsertions = [
            UserScramCredentialUpsertion("alice", ScramCredentialInfo(mechanism, 4096), PASSWORDS["alice"].encode())
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        for upsertion in upsertions:  # librdkafka sends one mechanism of a user in a request
            for future in admin.alter_user_scram_credentials([upsertion]).values():
                future.result(DEADLINE_S)
        allow(admin, ResourceType.TOPIC, "orders", AclOperation.ALL)
        allow(admin, ResourceType.GROUP, "readers", AclOperation.READ)
        yield running


def allow(admin: AdminClient, type_: ResourceType, name: str, operation: AclOperation) -> None:
    binding = AclBinding(
        type_, name, ResourcePatternType.LITERAL, "User:alice", "*", operation, AclPermissionType.ALLOW
    )
    for future in admin.create_acls([binding]).values():
        future.result(DEADLINE_S)


def librdkafka(broker: kafkalite.Broker, name: str, mechanism: str, password: str | None = None) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": PASSWORDS[name] if password is None else password,
        "log_level": 0,
    }


def python_settings(broker: kafkalite.Broker, mechanism: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": password,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_produces_and_consumes(broker: kafkalite.Broker, mechanism: str) -> None:
    told: list[Any] = []
    producer = confluent_kafka.Producer(librdkafka(broker, "alice", mechanism) | {"enable.idempotence": True})
    producer.produce("orders", mechanism.encode(), on_delivery=lambda error, _: told.append(error))
    assert producer.flush(DEADLINE_S) == 0 and told == [None]
    consumer = confluent_kafka.Consumer(
        librdkafka(broker, "alice", mechanism) | {"group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    values: list[bytes | None] = []

    def has_come() -> bool:
        message = consumer.poll(1)
        if message is not None:
            assert message.error() is None, message.error()
            values.append(message.value())
        return mechanism.encode() in values

    until(has_come, "the record")
    consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_produces(broker: kafkalite.Broker, mechanism: str) -> None:
    producer = kafka.KafkaProducer(**python_settings(broker, mechanism, PASSWORDS["alice"]))
    assert producer.send("orders", b"x").get(DEADLINE_S).topic == "orders"
    with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
        producer.send("bills", b"x").get(DEADLINE_S)
    producer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_produces(broker: kafkalite.Broker, mechanism: str) -> None:
    async def story() -> None:
        async with aiokafka.AIOKafkaProducer(**python_settings(broker, mechanism, PASSWORDS["alice"])) as producer:
            sent = await producer.send_and_wait("orders", b"x")
            assert sent.topic == "orders"

    asyncio.run(story())


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", ["alice", "nobody"])
def test_a_wrong_password_and_an_unknown_user_are_told_the_same(
    broker: kafkalite.Broker, mechanism: str, name: str
) -> None:
    errors: list[Any] = []
    settings = librdkafka(broker, name, mechanism, "wrong") | {"error_cb": errors.append}
    producer = confluent_kafka.Producer(settings)
    until(lambda: producer.poll(0.1) is not None and bool(errors), "an error")
    assert errors[0].code() == confluent_kafka.KafkaError._AUTHENTICATION
    expected = {
        "PLAIN": "Authentication failed: Invalid username or password",
    }.get(mechanism, f"due to invalid credentials with SASL mechanism {mechanism}")
    assert expected in errors[0].str()


def test_a_mechanism_that_is_not_enabled(broker: kafkalite.Broker) -> None:
    errors: list[Any] = []
    settings = librdkafka(broker, "alice", "OAUTHBEARER", "") | {"error_cb": errors.append}
    settings |= {"sasl.oauthbearer.config": "principal=alice", "enable.sasl.oauthbearer.unsecure.jwt": True}
    producer = confluent_kafka.Producer(settings)
    until(lambda: producer.poll(0.1) is not None and bool(errors), "an error")
    assert "OAUTHBEARER" in errors[0].str() and "PLAIN" in errors[0].str()


def test_aiokafka_is_told_why(broker: kafkalite.Broker) -> None:
    async def story() -> None:
        producer = aiokafka.AIOKafkaProducer(**python_settings(broker, "PLAIN", "wrong"))
        with pytest.raises(AioKafkaError):
            await producer.start()
        await producer.stop()

    asyncio.run(story())


def test_a_client_without_login_is_cut_off(broker: kafkalite.Broker) -> None:
    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    with pytest.raises(confluent_kafka.KafkaException):
        client.list_topics(timeout=2)


def test_users_are_described_and_deleted(broker: kafkalite.Broker) -> None:
    admin = AdminClient(librdkafka(broker, "admin", "PLAIN"))
    new = UserScramCredentialUpsertion("CN=a, b*", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192), b"secret")
    (made,) = admin.alter_user_scram_credentials([new]).values()
    made.result(DEADLINE_S)
    described = admin.describe_user_scram_credentials(["CN=a, b*"])["CN=a, b*"].result(DEADLINE_S)
    (info,) = described.scram_credential_infos
    assert (info.mechanism, info.iterations) == (ScramMechanism.SCRAM_SHA_256, 8192)
    settings = librdkafka(broker, "admin", "SCRAM-SHA-256", "secret") | {"sasl.username": "CN=a, b*"}
    assert AdminClient(settings).list_topics(timeout=DEADLINE_S).brokers
    gone = UserScramCredentialDeletion("CN=a, b*", ScramMechanism.SCRAM_SHA_256)
    (deleted,) = admin.alter_user_scram_credentials([gone]).values()
    deleted.result(DEADLINE_S)
    with pytest.raises(confluent_kafka.KafkaException):
        admin.describe_user_scram_credentials(["CN=a, b*"])["CN=a, b*"].result(DEADLINE_S)


def test_lists_are_found_by_the_admin_client(broker: kafkalite.Broker) -> None:
    admin = AdminClient(librdkafka(broker, "admin", "PLAIN"))
    every = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, "User:alice", None, AclOperation.ANY, AclPermissionType.ANY
    )
    found = admin.describe_acls(every).result(DEADLINE_S)
    assert {(each.restype, each.name) for each in found} == {
        (ResourceType.TOPIC, "orders"),
        (ResourceType.GROUP, "readers"),
    }


def test_a_user_may_not_create_other_topics(broker: kafkalite.Broker) -> None:
    admin = AdminClient(librdkafka(broker, "alice", "PLAIN"))
    with pytest.raises(confluent_kafka.KafkaException) as refusal:
        admin.create_topics([NewTopic("bills", 1)])["bills"].result(DEADLINE_S)
    assert refusal.value.args[0].code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_mechanisms_and_users_change_while_the_broker_runs(broker: kafkalite.Broker) -> None:
    """New connections follow; what nobody could log in with is refused."""
    admin = AdminClient(librdkafka(broker, "admin", "PLAIN"))

    def change(name: str, value: str | None) -> None:
        operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(name, value, incremental_operation=operation)
        one = ConfigResource(ConfigResource.Type.BROKER, str(broker_id), incremental_configs=[entry])
        for future in admin.incremental_alter_configs([one]).values():
            future.result(DEADLINE_S)

    def is_let_in(mechanism: str, password: str) -> bool:
        client = AdminClient(librdkafka(broker, "alice", mechanism, password))
        try:
            return bool(client.list_topics(timeout=2).brokers)
        except confluent_kafka.KafkaException:
            return False

    [broker_id] = admin.list_topics(timeout=DEADLINE_S).brokers
    jaas = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    assert is_let_in("SCRAM-SHA-256", PASSWORDS["alice"]) and not is_let_in("PLAIN", "renewed")
    change("sasl.enabled.mechanisms", "PLAIN")
    change(jaas, JAAS.replace('wonder\\"land', "renewed"))
    assert not is_let_in("SCRAM-SHA-256", PASSWORDS["alice"]) and is_let_in("PLAIN", "renewed")
    with pytest.raises(confluent_kafka.KafkaException, match="kafkalite speaks"):
        change("sasl.enabled.mechanisms", "DIGEST-MD5")
    change("sasl.enabled.mechanisms", None)
    change(jaas, None)
    assert is_let_in("SCRAM-SHA-256", PASSWORDS["alice"]) and not is_let_in("PLAIN", "renewed")
