"""Three Python clients with nothing in common, as a test uses them that looks at logins: each writes a record and reads
it back as a member of a group, or says why it cannot.

Programs in other languages do the same: `tests/compatibility/interop/login_program.py`.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.support.wait import DEADLINE_S, until

GROUP = "readers"


class Login(NamedTuple):
    """How a client comes to a broker. `ca` and `identity` are PEM files; no `identity`: it has no certificate. Fields
    that the protocol and the mechanism do not need are ignored. It gives up after `limit_ms`."""

    bootstrap: str
    protocol: str
    mechanism: str = "PLAIN"
    username: str = ""
    password: str = ""
    token: str = ""
    ca: str = ""
    identity: str = ""
    limit_ms: int = 60_000

    @property
    def uses_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol.startswith("SASL")


class LoginClient(Protocol):
    """`exchange` writes a record and returns the values in the topic. `words_of` is what the library says of an error
    of `failures`, its name first."""

    failures: tuple[type[Exception], ...]

    def exchange(self, login: Login, topic: str, value: str) -> list[bytes]: ...

    def words_of(self, error: Exception) -> str: ...


_TLS = re.compile(r"certificate verify failed|SSL connection closed by peer|alert [a-z ]+")


class Refused(Exception):
    """librdkafka has said so: its calls only time out."""


class Confluent:
    failures = (Refused,)

    def exchange(self, login: Login, topic: str, value: str) -> list[bytes]:
        errors: list[confluent_kafka.KafkaError] = []
        settings = self._settings(login) | {"error_cb": errors.append}
        producer = confluent_kafka.Producer(settings | {"message.timeout.ms": login.limit_ms})
        told: list[Any] = []
        producer.produce(topic, value, on_delivery=lambda error, _: told.append(error))
        until(lambda: producer.flush(0.1) == 0 or errors, "the record to be answered", 2 * DEADLINE_S)
        if errors:
            raise Refused(errors[0])
        assert told == [None], told
        consumer = confluent_kafka.Consumer(settings | {"group.id": GROUP, "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        try:
            message = until(lambda: consumer.poll(0.1), "a record")
        finally:
            consumer.close()
        assert message.error() is None, message.error()
        return [message.value()]

    def words_of(self, error: Exception) -> str:
        cause = error.args[0]
        if found := _TLS.search(cause.str()):  # the rest depends on the moment
            return f"_SSL or _TRANSPORT: {found[0]}"
        return f"{cause.name()}: {cause.str()}"

    def _settings(self, login: Login) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "bootstrap.servers": login.bootstrap,
            "security.protocol": login.protocol,
            "ssl.ca.location": login.ca,
            "sasl.mechanism": login.mechanism,
            "log_level": 0,
        }
        if login.identity:
            settings |= {"ssl.key.location": login.identity, "ssl.certificate.location": login.identity}
        if login.mechanism == "OAUTHBEARER":
            return settings | {"oauth_cb": lambda _: (login.token, time.time() + 300)}
        return settings | {"sasl.username": login.username, "sasl.password": login.password}


class KafkaPython:
    failures = (kafka.errors.KafkaError,)

    def exchange(self, login: Login, topic: str, value: str) -> list[bytes]:
        class Provider(AbstractTokenProvider):  # type: ignore[misc]
            def token(self) -> str:
                return login.token

        settings = _python_settings(login, Provider())
        producer = kafka.KafkaProducer(
            max_block_ms=login.limit_ms, bootstrap_timeout_ms=login.limit_ms, enable_idempotence=False, **settings
        )
        try:
            producer.send(topic, value.encode()).get(DEADLINE_S)
        finally:
            producer.close(timeout=5)
        consumer = kafka.KafkaConsumer(topic, group_id=GROUP, auto_offset_reset="earliest", **settings)
        try:
            return [one.value for many in until(lambda: consumer.poll(1_000), "a record").values() for one in many]
        finally:
            consumer.close()

    def words_of(self, error: Exception) -> str:
        return _named(error)


class AioKafka:
    failures = (aiokafka.errors.KafkaError,)

    def exchange(self, login: Login, topic: str, value: str) -> list[bytes]:
        class Provider(AioTokenProvider):  # type: ignore[misc]
            async def token(self) -> str:
                return login.token

        settings = _python_settings(login, Provider()) | {"request_timeout_ms": login.limit_ms}
        if login.uses_tls:
            context = ssl.create_default_context(cafile=login.ca)
            if login.identity:
                context.load_cert_chain(login.identity)
            settings = {key: text for key, text in settings.items() if not key.startswith("ssl")}
            settings["ssl_context"] = context

        async def story() -> list[bytes]:
            producer = aiokafka.AIOKafkaProducer(**settings)
            try:
                await producer.start()
                await asyncio.wait_for(producer.send_and_wait(topic, value.encode()), DEADLINE_S)
            finally:
                await producer.stop()
            async with aiokafka.AIOKafkaConsumer(
                topic, group_id=GROUP, auto_offset_reset="earliest", **settings
            ) as consumer:
                return [(await asyncio.wait_for(consumer.getone(), DEADLINE_S)).value]

        return asyncio.run(story())

    def words_of(self, error: Exception) -> str:
        return _named(error)


def _named(error: Exception) -> str:
    name = type(error).__name__
    return str(error) if str(error).startswith(name) else f"{name}: {error}"


def _python_settings(login: Login, provider: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap_servers": login.bootstrap, "security_protocol": login.protocol}
    if login.uses_tls:
        settings["ssl_cafile"] = login.ca
        if login.identity:
            settings |= {"ssl_certfile": login.identity, "ssl_keyfile": login.identity}
    if login.uses_sasl:
        settings["sasl_mechanism"] = login.mechanism
        if login.mechanism == "OAUTHBEARER":
            settings["sasl_oauth_token_provider"] = provider
        else:
            settings |= {"sasl_plain_username": login.username, "sasl_plain_password": login.password}
    return settings


CLIENTS: Mapping[str, LoginClient] = {
    "confluent-kafka": Confluent(),
    "kafka-python": KafkaPython(),
    "aiokafka": AioKafka(),
}
