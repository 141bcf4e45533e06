"""The options of a bulk load, with the names of Spark's Kafka sink and of Kafka's producer.

    kafka.bootstrap.servers   HOST:PORT, several with commas between them; also without the prefix. Required
    topic                     the topic of all rows; without it each row has a column `topic`
    includeTimestamp          false (default): the time of writing; true: the column `timestamp` where it is not null
    transactional             false (default); true: one transaction per task attempt, committed with the job
    transactionalIdPrefix     the beginning of their ids (default "kafkalite-spark")
    kafka.acks                all (default), 1, 0
    kafka.enable.idempotence  true (default with acks=all), false
    kafka.compression.type    none (default), gzip, snappy, lz4, zstd
    kafka.compression.level   the codec's own default unless set
    kafka.batch.size          bytes of a record batch before compression (default 524288)
    kafka.max.request.size    bytes of a request, and of a row (default 1048576)
    kafka.max.in.flight.requests.per.connection   1 to 5 (default 5)
    kafka.request.timeout.ms  for one response (default 30000)
    kafka.delivery.timeout.ms for a batch, with all retries (default 120000)
    kafka.retry.backoff.ms    before the first retry (default 100)
    kafka.max.block.ms        wait for a topic or a coordinator (default 60000)
    kafka.security.protocol, kafka.sasl.mechanism, kafka.sasl.jaas.config, kafka.ssl.*   as for Kafka's clients; PEM or
                              PKCS12 files, which every executor must have
    kafka.transaction.timeout.ms   an open transaction is aborted after it (default 900000, a broker's usual limit)

Settings of a producer that have no meaning here (linger.ms, buffer.memory, ...) are ignored; other names are errors.
Source: org.apache.spark.sql.kafka010.KafkaSourceProvider, org.apache.kafka.clients.producer.ProducerConfig.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from kafkalite.client.blocking_client import parse_address
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.logins import ClientSecurity
from kafkalite.common.errors import ConfigError
from kafkalite.record.compression import CODECS

ACKS_ALL = -1
_PREFIX = "kafka."
_ACKS = {"all": ACKS_ALL, "-1": ACKS_ALL, "1": 1, "0": 0}
_OWN = ("topic", "includeTimestamp", "transactional", "transactionalIdPrefix", "checkpointLocation", "includeHeaders")
_KAFKA = (
    "bootstrap.servers", "acks", "enable.idempotence", "compression.type", "compression.level", "batch.size",
    "max.request.size", "max.in.flight.requests.per.connection", "request.timeout.ms", "delivery.timeout.ms",
    "retry.backoff.ms", "transaction.timeout.ms", "max.block.ms",
)  # fmt: skip
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
    transactional = _flag("transactional", values.get("transactional", "false"))
    producer = _producer(values, transactional)
    prefix = values.get("transactionalidprefix", "kafkalite-spark")
    if not 0 < len(prefix) <= 200:
        raise ConfigError("the option 'transactionalIdPrefix' must have 1 to 200 characters")
    topic = values.get("topic")
    if topic is not None and not topic.strip():
        raise ConfigError("the option 'topic' is empty; name a topic, or leave it out and have a column 'topic'")
    include_timestamp = _flag("includeTimestamp", values.get("includetimestamp", "false"))
    return WriteOptions(producer, topic, include_timestamp, transactional, prefix)


def _producer(values: Mapping[str, str], transactional: bool) -> ProducerOptions:
    servers = values.get("bootstrap.servers", "")
    if not servers.strip():
        raise ConfigError("set the option 'kafka.bootstrap.servers' to a broker's HOST:PORT")
    for server in servers.split(","):
        parse_address(server)
    acks = _one_of("acks", values.get("acks", "all"), _ACKS)
    idempotent = _flag("enable.idempotence", values.get("enable.idempotence", str(acks == ACKS_ALL)))
    if idempotent and acks != ACKS_ALL:
        raise ConfigError("kafka.enable.idempotence=true needs kafka.acks=all; leave one of them out")
    if transactional and not idempotent:
        raise ConfigError("transactional=true needs kafka.acks=all and kafka.enable.idempotence=true")
    level = values.get("compression.level")

    def number(name: str, default: int, most: int = 1 << 31) -> int:
        return _number(name, values.get(name), default, most)

    return ProducerOptions(
        servers,
        acks,
        idempotent,
        _one_of("compression.type", values.get("compression.type", "none"), CODECS),
        None if level is None else _integer("compression.level", level),
        number("batch.size", 512 << 10),
        number("max.request.size", 1 << 20),
        number("max.in.flight.requests.per.connection", 5, 5),
        number("request.timeout.ms", 30_000),
        number("delivery.timeout.ms", 120_000),
        number("retry.backoff.ms", 100),
        number("transaction.timeout.ms", 900_000),
        number("max.block.ms", 60_000),
        _security(values),
    )


def _security(values: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    found = {name: value for name, value in values.items() if name.startswith(_SECURITY)}
    ClientSecurity.of(found)  # refuses invalid settings here, before any task starts
    return tuple(found.items())


def _known(options: Mapping[str, str]) -> dict[str, str]:
    """The options by their lower-case names, Kafka's without the prefix. ConfigError for an unknown one."""
    own = {name.lower(): name for name in _OWN}
    values = {}
    for name, value in options.items():
        lower = name.lower()
        short = lower.removeprefix(_PREFIX)
        if lower in own or short in _KAFKA or (short.startswith(_SECURITY) and lower.startswith(_PREFIX)):
            values[short] = value
        elif not (short in _WITHOUT_MEANING and lower.startswith(_PREFIX)):
            known = {**own, **{_PREFIX + each: _PREFIX + each for each in _KAFKA}}
            close = difflib.get_close_matches(lower, known, 1)
            hint = f"did you mean {known[close[0]]!r}?" if close else f"known are {', '.join(known.values())}"
            raise ConfigError(f"the format 'kafkalite' has no option {name!r} for writing; {hint}")
    return values


def _flag(name: str, text: str) -> bool:
    return bool(_one_of(name, text, {"true": True, "false": False}))


def _one_of(name: str, text: str, choices: Mapping[str, int]) -> int:
    if text.strip().lower() not in choices:
        raise ConfigError(f"the option {name!r} is {text!r}; it may be {', '.join(choices)}")
    return choices[text.strip().lower()]


def _number(name: str, text: str | None, default: int, most: int) -> int:
    if text is None:
        return default
    value = _integer(name, text)
    if not 1 <= value <= most:
        raise ConfigError(f"the option {name!r} is {text!r}; it may be a number from 1 to {most}")
    return value


def _integer(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"the option {name!r} is {text!r}; it must be a whole number") from None
