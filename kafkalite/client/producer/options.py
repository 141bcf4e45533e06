"""The options of a bulk load, with the names of Spark's Kafka sink and of Kafka's producer. docs/spark.md lists them.

Those of the producer have the prefix "kafka." or none; those that have no meaning here (linger.ms, buffer.memory, ...)
are ignored; other names are errors.
Source: org.apache.spark.sql.kafka010.KafkaSourceProvider, org.apache.kafka.clients.producer.ProducerConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafkalite.client.blocking_client import parse_address
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.logins import ClientSecurity
from kafkalite.common.errors import ConfigError
from kafkalite.common.options import FLAG, Option, as_table, number, one_of, read, unknown
from kafkalite.record.compression import CODECS

ACKS_ALL = -1
_PREFIX = "kafka."
_MOST = 1 << 31
OWN = (
    Option("topic", "a topic", "", "the topic of all rows; without it each row has a column `topic`"),
    Option(
        "includeTimestamp",
        FLAG,
        "false",
        "false: the time of writing; true: the column `timestamp` where it is not null",
        "include_timestamp",
    ),
    Option(
        "transactional",
        FLAG,
        "false",
        "true: one transaction per task attempt, committed with the job",
        "transactional",
    ),
    Option("transactionalIdPrefix", "1 to 200 characters", "kafkalite-spark", "the beginning of their ids"),
)
_IGNORED = ("checkpointLocation", "includeHeaders")
KAFKA = (
    Option("bootstrap.servers", "HOST:PORT, several with commas between them", "", "must be given"),
    Option("acks", one_of({"all": ACKS_ALL, "-1": ACKS_ALL, "1": 1, "0": 0}), "all", "see the guarantees", "acks"),
    Option("enable.idempotence", FLAG, "", "by default true with acks=all, false without", "idempotent"),
    Option("compression.type", one_of(CODECS), "none", "of record batches", "codec"),
    Option("compression.level", number(None), "", "the codec's own default unless set", "level"),
    Option("batch.size", number(1, _MOST), "524288", "bytes of a record batch before compression", "batch_bytes"),
    Option("max.request.size", number(1, _MOST), "1048576", "bytes of a request, and of a row", "max_request_bytes"),
    Option("max.in.flight.requests.per.connection", number(1, 5), "5", "to one broker", "in_flight_max"),
    Option("request.timeout.ms", number(1, _MOST), "30000", "for one response", "request_timeout_ms"),
    Option("delivery.timeout.ms", number(1, _MOST), "120000", "for a batch, with all retries", "delivery_timeout_ms"),
    Option("retry.backoff.ms", number(1, _MOST), "100", "before the first retry", "retry_backoff_ms"),
    Option("max.block.ms", number(1, _MOST), "60000", "for a topic or a coordinator to be there", "max_block_ms"),
    Option(
        "transaction.timeout.ms",
        number(1, _MOST),
        "900000",
        "an open transaction is aborted after it; a broker's usual limit",
        "transaction_timeout_ms",
    ),
)
_SECURITY = ("security.protocol", "sasl.", "ssl.")
_WITHOUT_MEANING = (
    "linger.ms", "buffer.memory", "client.id", "metadata.max.age.ms", "send.buffer.bytes",
    "receive.buffer.bytes", "reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.max.ms", "retries",
    "connections.max.idle.ms", "key.serializer", "value.serializer",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """A producer's settings. Sizes in bytes; `acks` is ACKS_ALL, 1 or 0. `security`: properties of Kafka's clients."""

    bootstrap_servers: str
    acks: int = ACKS_ALL
    idempotent: bool = True
    codec: int = 0
    level: int | None = None
    batch_bytes: int = 512 << 10
    max_request_bytes: int = 1 << 20
    in_flight_max: int = 5
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    retry_backoff_ms: int = 100
    transaction_timeout_ms: int = 900_000
    max_block_ms: int = 60_000
    security: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # passwords are among them

    def connect(self) -> ClusterClient:
        """The cluster, with connections of this process. Raises ConfigError."""
        security = ClientSecurity.of(dict(self.security)) if self.security else None
        return ClusterClient(self.bootstrap_servers, self.request_timeout_ms / 1000, security)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """A bulk load: its topic or None for one in each row, and how it is sent."""

    producer: ProducerOptions
    topic: str | None
    include_timestamp: bool
    transactional: bool
    transactional_id_prefix: str


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """From Spark's options, whose names may have any case. Raises ConfigError that names the option and the fix."""
    values = _known(options)
    own = read(OWN, values)
    producer = _producer(values, own["transactional"])
    prefix = values.get("transactionalidprefix", "kafkalite-spark")
    if not 0 < len(prefix) <= 200:
        raise ConfigError("the option 'transactionalIdPrefix' must have 1 to 200 characters")
    topic = values.get("topic")
    if topic is not None and not topic.strip():
        raise ConfigError("the option 'topic' is empty; name a topic, or leave it out and have a column 'topic'")
    return WriteOptions(producer, topic, transactional_id_prefix=prefix, **own)


def _producer(values: Mapping[str, str], transactional: bool) -> ProducerOptions:
    servers = values.get("bootstrap.servers", "")
    if not servers.strip():
        raise ConfigError("set the option 'kafka.bootstrap.servers' to a broker's HOST:PORT")
    for server in servers.split(","):
        parse_address(server)
    found = read(KAFKA, values)
    is_safe = found["acks"] == ACKS_ALL
    if found["idempotent"] is None:
        found["idempotent"] = is_safe
    elif found["idempotent"] and not is_safe:
        raise ConfigError("kafka.enable.idempotence=true needs kafka.acks=all; leave one of them out")
    if transactional and not found["idempotent"]:
        raise ConfigError("transactional=true needs kafka.acks=all and kafka.enable.idempotence=true")
    return ProducerOptions(servers, **found, security=_security(values))


def _security(values: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    found = {name: value for name, value in values.items() if name.startswith(_SECURITY)}
    ClientSecurity.of(found)  # refuses invalid settings here, before any task starts
    return tuple(found.items())


def _known(options: Mapping[str, str]) -> dict[str, str]:
    """The options by their lower-case names, Kafka's without the prefix. ConfigError for an unknown one."""
    own = [one.name for one in OWN] + list(_IGNORED)
    of_kafka = [one.name for one in KAFKA]
    values = {}
    for name, value in options.items():
        lower = name.lower()
        short = lower.removeprefix(_PREFIX)
        has_prefix = lower.startswith(_PREFIX)
        if lower in map(str.lower, own) or short in of_kafka or (short.startswith(_SECURITY) and has_prefix):
            values[short] = value
        elif not (short in _WITHOUT_MEANING and has_prefix):
            raise unknown(name, (*own, *(_PREFIX + each for each in of_kafka)), " for writing")
    return values


def table() -> str:
    """All options as a table in Markdown."""
    return as_table((*(one._replace(name=_PREFIX + one.name) for one in KAFKA), *OWN))
