"""One broker and the stock clients that talk to it.

`bootstrap` is an embedded broker shared by the whole run, or any other broker when KAFKALITE_TEST_BOOTSTRAP=host:port
says so (a real Apache Kafka then serves as the oracle of these tests; give it group.initial.rebalance.delay.ms=0 to
keep them quick). Each client library has a fixture that makes clients in its own words, with settings fit for a test,
and closes all of them whatever happens. Topics and groups get unique names, so tests never meet. Tests wait with
`until`, or with the client's own poll under a deadline; nothing sleeps.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.support.wait import DEADLINE_S, until

ELSEWHERE = "KAFKALITE_TEST_BOOTSTRAP"
OVERRIDES = {"group_initial_rebalance_delay_ms": 0, "group_min_session_timeout_ms": 1000, "num_partitions": 3}

LOG = logging.getLogger("librdkafka")  # what a client logs while its broker is away would bury the failure that matters
LOG.addHandler(logging.NullHandler())
LOG.propagate = False

T = TypeVar("T")


class OwnBroker:
    """An embedded broker of one test, which may stop it and start it again on the same directory and port."""

    def __init__(self, data_dir: Path, **overrides: object) -> None:
        self.data_dir = data_dir
        self.overrides = OVERRIDES | overrides
        self.port = 0
        self.broker: Any = None

    def start(self) -> None:
        import kafkalite

        self.broker = kafkalite.Broker(data_dir=self.data_dir, port=self.port, **self.overrides)
        self.broker.__enter__()
        self.port = int(self.bootstrap.rsplit(":", 1)[1])

    def stop(self) -> None:
        broker, self.broker = self.broker, None
        if broker is not None:
            broker.__exit__(None, None, None)

    def restart(self) -> None:
        self.stop()
        self.start()

    @property
    def bootstrap(self) -> str:
        return str(self.broker.bootstrap_servers)


class Confluent:
    """confluent-kafka's clients. Settings are librdkafka's, with underscores for dots."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.open: list[Any] = []
        self.admins: list[AdminClient] = []  # an admin client that is let go cancels what it was asked

    def settings(self, given: dict[str, Any], **defaults: Any) -> dict[str, Any]:
        chosen = {"bootstrap_servers": self.bootstrap} | defaults | given
        return {name.replace("_", "."): value for name, value in chosen.items()}

    def producer(self, **given: Any) -> confluent_kafka.Producer:
        settings = self.settings(given, linger_ms=0, message_timeout_ms=15_000)
        producer = confluent_kafka.Producer(settings, logger=LOG)
        self.open.append(producer)
        return producer

    def consumer(self, **given: Any) -> confluent_kafka.Consumer:
        defaults = {
            "group_id": f"group-{uuid.uuid4().hex[:12]}",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "session_timeout_ms": 6000,
            "heartbeat_interval_ms": 100,
            "fetch_wait_max_ms": 100,
            "reconnect_backoff_max_ms": 500,
        }
        consumer = confluent_kafka.Consumer(self.settings(given, **defaults), logger=LOG)
        self.open.append(consumer)
        return consumer

    def admin(self, **given: Any) -> AdminClient:
        self.admins.append(AdminClient(self.settings(given), logger=LOG))
        return self.admins[-1]

    def send(self, topic: str, records: list[dict[str, Any]], **settings: Any) -> list[confluent_kafka.Message]:
        """Produce the records and return them as they were acknowledged, in order; one refusal fails the test."""
        producer = self.producer(**settings)
        answers: list[tuple[Any, confluent_kafka.Message]] = []
        for record in records:
            producer.produce(topic, on_delivery=lambda error, message: answers.append((error, message)), **record)
        unsent = producer.flush(DEADLINE_S)
        assert unsent == 0, f"{unsent} of {len(records)} records got no answer in {DEADLINE_S:g} s"
        refused = [str(error) for error, _ in answers if error is not None]
        assert not refused, f"{len(refused)} of {len(records)} records were refused, the first: {refused[0]}"
        return [message for _, message in answers]

    def take(self, consumer: confluent_kafka.Consumer, count: int) -> list[confluent_kafka.Message]:
        """Poll until `count` records have come; an error or the deadline fails the test."""
        taken: list[confluent_kafka.Message] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(taken) < count:
            if time.monotonic() > deadline:
                offsets = sorted((m.partition(), m.offset()) for m in taken)
                pytest.fail(f"only {len(taken)} of {count} records came in {DEADLINE_S:g} s: {offsets[:50]}")
            message = consumer.poll(0.2)
            if message is not None:
                assert message.error() is None, str(message.error())
                taken.append(message)
        return taken

    def read(self, topic: str, count: int, partition: int = 0, offset: int = 0) -> list[confluent_kafka.Message]:
        """The `count` records of a partition from an offset on."""
        consumer = self.consumer()
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, offset)])
        return self.take(consumer, count)

    def close(self) -> None:
        while self.open:
            client = self.open.pop()
            if isinstance(client, confluent_kafka.Producer):
                client.purge()
                with contextlib.suppress(confluent_kafka.KafkaException):  # it was fenced
                    client.flush(1)
            else:
                client.close()
        self.admins.clear()


class KafkaPython:
    """kafka-python's clients, with its own setting names."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.open: list[Any] = []

    def keep(self, client: T) -> T:
        self.open.append(client)
        return client

    def producer(self, **given: Any) -> kafka.KafkaProducer:
        defaults = {"bootstrap_servers": self.bootstrap, "delivery_timeout_ms": 15_000, "request_timeout_ms": 10_000}
        return self.keep(kafka.KafkaProducer(**defaults | given))

    def consumer(self, *topics: str, **given: Any) -> kafka.KafkaConsumer:
        defaults = {
            "bootstrap_servers": self.bootstrap,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "fetch_max_wait_ms": 100,
            "session_timeout_ms": 6000,
            "heartbeat_interval_ms": 100,
            "metadata_max_age_ms": 1000,  # a leader that assigned before it knew the topic looks again
        }
        return self.keep(kafka.KafkaConsumer(*topics, **defaults | given))

    def admin(self, **given: Any) -> kafka.KafkaAdminClient:
        return self.keep(kafka.KafkaAdminClient(**{"bootstrap_servers": self.bootstrap} | given))

    def take(self, consumer: kafka.KafkaConsumer, count: int) -> list[Any]:
        """Poll until `count` records have come."""
        taken: list[Any] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(taken) < count:
            if time.monotonic() > deadline:
                offsets = sorted((record.partition, record.offset) for record in taken)
                pytest.fail(f"only {len(taken)} of {count} records came in {DEADLINE_S:g} s: {offsets[:50]}")
            # kafka-python 3.0.12 loses a join that outlasts a poll: it takes no assignment and sends no heartbeat
            for records in consumer.poll(timeout_ms=10_000).values():
                taken.extend(records)
        return taken

    def close(self) -> None:
        while self.open:
            client = self.open.pop()
            if isinstance(client, kafka.KafkaProducer):
                client.close(timeout=2)
            elif isinstance(client, kafka.KafkaConsumer):
                client.close(autocommit=False)
            else:
                client.close()


class Kcat:
    """kcat as a person types it."""

    def __init__(self, path: str, bootstrap: str) -> None:
        self.path = path
        self.bootstrap = bootstrap

    def __call__(self, *arguments: str, typed: str | bytes = b"", check: bool = True) -> str:
        command = [self.path, "-b", self.bootstrap, *arguments]
        told = typed.encode() if isinstance(typed, str) else typed
        done = subprocess.run(command, input=told, capture_output=True, timeout=DEADLINE_S, check=False)
        if check:
            assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.decode(errors='replace')}"
        return done.stdout.decode() if check else done.stdout.decode() + done.stderr.decode()


@pytest.fixture(scope="session")
def elsewhere() -> str | None:
    """The address of a broker that is not ours, if the tests run against one."""
    return os.environ.get(ELSEWHERE)


@pytest.fixture(scope="session")
def bootstrap(elsewhere: str | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if elsewhere:
        yield elsewhere
        return
    broker = OwnBroker(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker.bootstrap
    broker.stop()


@pytest.fixture
def own_broker(elsewhere: str | None, tmp_path: Path) -> Iterator[Callable[..., OwnBroker]]:
    """Makes started brokers of this test's own, with overrides."""
    if elsewhere:
        pytest.skip(f"needs a broker of its own to configure, stop and start; {ELSEWHERE} points at another one")
    brokers: list[OwnBroker] = []
    number = itertools.count()

    def make(**overrides: object) -> OwnBroker:
        brokers.append(OwnBroker(tmp_path / f"broker-{next(number)}", **overrides))
        brokers[-1].start()
        return brokers[-1]

    yield make
    for broker in brokers:
        broker.stop()


@pytest.fixture(name="until", scope="session")
def until_fixture() -> Callable[..., Any]:
    return until


@pytest.fixture
def unique() -> Callable[[str], str]:
    """unique("orders") is a name that nobody else uses."""
    return lambda stem: f"{stem}-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def create_topic() -> Callable[..., str]:
    """Creates a topic at a broker, by confluent-kafka, and returns its name once every partition has a leader."""

    def create(bootstrap: str, name: str | None = None, partitions: int = 1, **config: object) -> str:
        name = name or f"topic-{uuid.uuid4().hex[:12]}"
        admin = AdminClient({"bootstrap.servers": bootstrap}, logger=LOG)
        wanted = {key.replace("_", "."): str(value) for key, value in config.items()}
        admin.create_topics([NewTopic(name, partitions, 1, config=wanted)])[name].result(DEADLINE_S)

        def led() -> bool:
            found = admin.list_topics(name, timeout=DEADLINE_S).topics[name]
            return len(found.partitions) == partitions and all(p.leader >= 0 for p in found.partitions.values())

        until(led, f"a leader for each of {partitions} partitions of {name}")
        return name

    return create


@pytest.fixture
def topic(bootstrap: str, create_topic: Callable[..., str]) -> str:
    """A fresh topic of one partition."""
    return create_topic(bootstrap)


@pytest.fixture(scope="session")
def shortest_session_ms(bootstrap: str) -> int:
    """The shortest session timeout that the broker grants a group member."""
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=LOG)
    broker = ConfigResource(ResourceType.BROKER, str(next(iter(admin.list_topics(timeout=DEADLINE_S).brokers))))
    config = admin.describe_configs([broker])[broker].result(DEADLINE_S)
    return int(config["group.min.session.timeout.ms"].value)


@pytest.fixture
def confluent(bootstrap: str) -> Iterator[Confluent]:
    clients = Confluent(bootstrap)
    yield clients
    clients.close()


@pytest.fixture
def confluent_at() -> Iterator[Callable[[str], Confluent]]:
    """confluent-kafka's clients for another broker than the shared one. Ask for it after the broker's own fixture."""
    made: list[Confluent] = []

    def make(bootstrap: str) -> Confluent:
        made.append(Confluent(bootstrap))
        return made[-1]

    yield make
    for clients in made:
        clients.close()


@pytest.fixture
def kafka_python(bootstrap: str) -> Iterator[KafkaPython]:
    clients = KafkaPython(bootstrap)
    yield clients
    clients.close()


@pytest.fixture
def kcat(bootstrap: str) -> Kcat:
    path = shutil.which("kcat") or shutil.which("kafkacat")
    if path is None:
        pytest.skip("kcat is not installed (Debian: apt install kcat)")
    return Kcat(path, bootstrap)
