"""Stock clients log in by OAUTHBEARER, with tokens that an authority has signed; others are not let in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

import kafkalite
from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig
from tests.support.tokens import TokenAuthority, unsecured
from tests.support.wait import DEADLINE_S

HANDLER = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler"
Token = Callable[..., str]


@pytest.fixture(scope="module")
def authority() -> TokenAuthority:
    return TokenAuthority()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, authority: TokenAuthority) -> Iterator[kafkalite.Broker]:
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path_factory.mktemp("broker")),
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": HANDLER,
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": "OAuthBearerLoginModule required;",
        "sasl.oauthbearer.jwks.endpoint.url": authority.write(tmp_path_factory.mktemp("keys") / "jwks.json"),
        "sasl.oauthbearer.expected.audience": "kafka",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:alice",
    }
    with kafkalite.Broker(BrokerConfig.load(settings)) as running:
        yield running


@pytest.fixture
def token(authority: TokenAuthority) -> Token:
    def new(**changes: Any) -> str:
        now_s = int(time.time())
        return authority.sign(**({"sub": "alice", "aud": "kafka", "iat": now_s, "exp": now_s + 300} | changes))

    return new


def librdkafka(broker: kafkalite.Broker, token: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token, time.time() + 300),
        "log_level": 0,
    }


def python_settings(broker: kafkalite.Broker, provider: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider,
    }


def test_librdkafka(broker: kafkalite.Broker, token: Token) -> None:
    told: list[Any] = []
    producer = confluent_kafka.Producer(librdkafka(broker, token()))
    producer.produce("librdkafka", b"x", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(DEADLINE_S) == 0 and told == [None]


def test_kafka_python(broker: kafkalite.Broker, token: Token) -> None:
    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return token()

    producer = KafkaProducer(**python_settings(broker, Provider()))
    assert producer.send("kafka-python", b"x").get(DEADLINE_S).offset == 0
    producer.close()


def test_aiokafka(broker: kafkalite.Broker, token: Token) -> None:
    class Provider(AioTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return token()

    async def story() -> None:
        async with AIOKafkaProducer(**python_settings(broker, Provider())) as producer:
            await producer.send_and_wait("aiokafka", b"x")

    asyncio.run(story())


@pytest.mark.parametrize("wrong", ["audience", "expired", "unsecured", "stranger", "other user"])
def test_nobody_else_gets_in(broker: kafkalite.Broker, token: Token, wrong: str) -> None:
    now_s = int(time.time())
    claims = {"sub": "alice", "aud": "kafka", "iat": now_s, "exp": now_s + 300}
    text = {
        "audience": lambda: token(aud="other"),
        "expired": lambda: token(exp=now_s - 100, iat=now_s - 400),
        "unsecured": lambda: unsecured(**claims),
        "stranger": lambda: TokenAuthority().sign(**claims),
        "other user": lambda: token(sub="mallory"),
    }[wrong]()
    faults: list[confluent_kafka.KafkaError] = []
    if wrong == "other user":  # let in, and allowed nothing
        told: list[Any] = []
        producer = confluent_kafka.Producer(librdkafka(broker, text))
        producer.produce("librdkafka", b"x", on_delivery=lambda error, _: told.append(error.code()))
        producer.flush(DEADLINE_S)
        assert told == [confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED]
        return
    client = AdminClient(librdkafka(broker, text) | {"error_cb": faults.append})
    deadline = time.monotonic() + DEADLINE_S
    while not any(fault.code() == confluent_kafka.KafkaError._AUTHENTICATION for fault in faults):
        assert time.monotonic() < deadline
        client.poll(0.1)
    assert "invalid_token" in str(faults)


def test_unsecured_tokens_have_to_be_asked_for(tmp_path: Path) -> None:
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path),
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": "OAuthBearerLoginModule required;",
    }
    with (
        pytest.raises(ConfigError, match="nothing says how tokens are judged"),
        kafkalite.Broker(BrokerConfig.load(settings)),
    ):
        pass
    settings["listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config"] = (
        'OAuthBearerLoginModule required unsecuredValidatorRequiredScope="kafka";'
    )
    with kafkalite.Broker(BrokerConfig.load(settings)) as running:
        text = unsecured(sub="anybody", exp=int(time.time()) + 300, scope=["kafka", "more"])
        client = AdminClient(librdkafka(running, text))
        while True:
            try:
                assert client.list_topics(timeout=1).brokers
                return
            except confluent_kafka.KafkaException:
                client.poll(0)
