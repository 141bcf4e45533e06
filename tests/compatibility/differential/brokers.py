"""The two brokers of the comparison, with the same settings, and the families of stories that are told to them."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

from bench.reference import compile_class, reference_kafka
from kafkalite.protocol.messages.transactions import InitProducerIdRequest
from kafkalite.server.broker import Broker
from tests.compatibility.differential.engine import OLDER, Explained, Story, Teller, tries
from tests.compatibility.interop.zookeeper_kafka import zookeeper_kafka

SECURED = ("authorization", "acls", "quotas", "broker_settings")  # told to brokers with an authorizer
RECEIVING = ("telemetry",)  # told to brokers that take metrics of clients
FAMILIES = (
    "api_versions", "metadata", "topics", "partitions", "configs", "config_changes", "produce", "bad_batches",
    "sequences", "fetch", "fetch_sessions", "list_offsets", "epochs", "delete_records", "log_dirs", "elections",
    "reassignments", "groups", "group_refusals", "static_members", "group_admin", "offsets", "offset_delete",
    "producer_ids", "transactional_ids", "transactions", "added_partitions", "transactional_produce", "committed_reads",
    "transaction_offsets", "transaction_markers", "transactions_v2", "transaction_admin", "topic_partitions", "frames",
    "old_versions", "config_resources", "features", "consumer_groups", "consumer_transactions", "share_groups",
    "share_records", "streams_groups", *RECEIVING, *SECURED,
)  # fmt: skip

SETTINGS = {
    "num.partitions": "2",
    "offsets.topic.num.partitions": "5",
    "log.retention.ms": "-1",  # the records of the stories are from 2023
    "group.min.session.timeout.ms": "1000",
    "group.consumer.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.record.lock.duration.ms": "1000",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
SECURED_SETTINGS = SETTINGS | {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",  # who creates the first list has none
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "auto.create.topics.enable": "true",
}
RECEIVING_SETTINGS = SETTINGS | {"metrics.listener": "127.0.0.1:0"}
RECEIVER = Path(__file__).with_name("java") / "MetricsReceiver.java"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
BROKER_ID = 1  # as the reference's


class Kind(Enum):
    """The brokers of a family of stories."""

    PLAIN = "plain"
    SECURED = "secured"
    RECEIVING = "receiving"


def kind_of(family: str) -> Kind:
    if family in SECURED:
        return Kind.SECURED
    return Kind.RECEIVING if family in RECEIVING else Kind.PLAIN


def settings_of(family: str) -> dict[str, str]:
    return {Kind.SECURED: SECURED_SETTINGS, Kind.RECEIVING: RECEIVING_SETTINGS}.get(kind_of(family), SETTINGS)


@contextlib.contextmanager
def kafkalite_broker(home: Path, family: str) -> Iterator[tuple[str, int]]:
    settings = {name.replace(".", "_"): value for name, value in settings_of(family).items()}
    with Broker(data_dir=home, port=0, broker_id=BROKER_ID, group_initial_rebalance_delay_ms=0, **settings) as broker:
        prepare(("127.0.0.1", broker.port))
        yield "127.0.0.1", broker.port


@contextlib.contextmanager
def apache_kafka(version: str, home: Path, kind: Kind) -> Iterator[tuple[str, int]]:
    """The reference of this version: KRaft, but on ZooKeeper for an authorizer of the older one."""
    if kind is Kind.SECURED and version == OLDER:
        with secured_kafka(home) as address:
            yield address
        return
    settings, classes = SETTINGS, None
    if kind is Kind.SECURED:
        settings = SECURED_SETTINGS | {"authorizer.class.name": STANDARD_AUTHORIZER}
    elif kind is Kind.RECEIVING:
        settings, classes = SETTINGS | {"metric.reporters": RECEIVER.stem}, home / "classes"
        compile_class(RECEIVER, version, classes)
    with reference_kafka(version, heap="512m", properties=settings, classes=classes) as kafka:
        host, _, port = kafka.bootstrap.rpartition(":")
        prepare((host, int(port)))
        yield host, int(port)


@contextlib.contextmanager
def secured_kafka(home: Path) -> Iterator[tuple[str, int]]:
    """On ZooKeeper, where AclAuthorizer is."""
    with zookeeper_kafka(home, [home / "data"], broker_id=BROKER_ID) as kafka:
        kafka.settings |= SECURED_SETTINGS | {"group.initial.rebalance.delay.ms": "0"}
        kafka.start()
        host, _, port = kafka.bootstrap.rpartition(":")
        prepare((host, int(port)))
        yield host, int(port)


def prepare(address: tuple[str, int]) -> None:
    """Have the broker make its internal topics, so that no story meets them half made."""
    teller = Teller(address, "prepare", Story(prepare_coordinators, (0,)), 0)
    try:
        prepare_coordinators(teller)
    finally:
        teller.close()


def prepare_coordinators(t: Teller) -> None:
    for number in range(20):  # 5 partitions and 2, so every one of them has been asked for
        t.group(f"g{number}")
        t.transactional_id(f"tx{number}")
    for _ in tries("producer ids"):
        if t.aside(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 2).error_code == 0:
            return


def stories(family: str) -> dict[str, Story]:
    """The stories of `cases_<family>.py`, by name."""
    module = importlib.import_module(f"tests.compatibility.differential.cases_{family}")
    return {value.name: value for value in vars(module).values() if isinstance(value, Story)}


def explanations(family: str) -> list[Explained]:
    """The stories of `cases_<family>.py`, in the order of the file."""
    module = importlib.import_module(f"tests.compatibility.differential.cases_{family}")
    return [value for value in vars(module).values() if isinstance(value, Explained)]


def tell(address: tuple[str, int], family: str, story: Story, version: int) -> Teller:
    """Tell the story; whatever happens, no connection is left."""
    teller = Teller(address, family, story, version)
    try:
        story.tell(teller)
    finally:
        teller.close()
    return teller
