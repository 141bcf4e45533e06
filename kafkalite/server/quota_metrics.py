"""The metrics of quotas: what is counted against them, and how long clients were throttled.

The names are those that the JMX exporter gives Kafka's MBeans, as in `broker_metrics`. There is a row for each
client that has used its quota lately; a user or client id that shares its quota with others is empty in the row.
Source: the MBeans of kafka.server.{ClientQuotaManager, ClientRequestQuotaManager, ControllerMutationQuotaManager},
kafka.network.ConnectionQuotas.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from kafkalite.common.metrics import Column, Metrics, Row
from kafkalite.common.names import desanitized
from kafkalite.security.quota.entities import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)

if TYPE_CHECKING:
    from kafkalite.common.clock import Clock
    from kafkalite.network.connection_quotas import ConnectionQuotas
    from kafkalite.security.quota.client_quotas import ClientQuotaManager

_PER_PAUSE = 500
_WHO = ("user", "client_id")
_THROTTLE_TIME = "Milliseconds that they were told to wait, on the average of those who were."
_SOCKETS = "kafka_server_socket_server_metrics"
_LISTENER_COLUMNS = (
    Column(f"{_SOCKETS}_connection_accept_rate", "New connections in a second."),
    Column(f"{_SOCKETS}_connection_accept_throttle_time", "Milliseconds that new connections waited."),
    Column(
        f"{_SOCKETS}_ip_connection_accept_throttle_time",
        "Milliseconds that connections of addresses over their quota were kept before they were closed.",
    ),
)


def add_quota_metrics(
    metrics: Metrics, clients: ClientQuotaManager, connections: ConnectionQuotas, clock: Clock
) -> None:
    for key, name, rate in (
        (PRODUCER_BYTE_RATE, "produce", Column("kafka_server_produce_byte_rate", "Bytes produced in a second.")),
        (CONSUMER_BYTE_RATE, "fetch", Column("kafka_server_fetch_byte_rate", "Bytes fetched in a second.")),
        (
            REQUEST_PERCENTAGE,
            "request",
            Column("kafka_server_request_request_time", "Time of the broker, in percent of one processor."),
        ),
        (
            CONTROLLER_MUTATION_RATE,
            "controllermutation",
            Column("kafka_server_controllermutation_mutation_rate", "Partitions made or deleted in a second."),
        ),
    ):
        columns = (rate, Column(f"kafka_server_{name}_throttle_time", _THROTTLE_TIME))
        metrics.table(columns, _WHO, partial(_clients, clients, key, clock))
    tokens = Column("kafka_server_controllermutation_tokens", "Partitions that they may make or delete now.")
    metrics.table((tokens,), _WHO, partial(_tokens, clients, clock))
    metrics.gauge(
        f"{_SOCKETS}_broker_connection_accept_rate",
        "New connections in a second, of all listeners that clients share.",
        lambda: connections.rate.per_second(clock.monotonic_ms()),
    )
    metrics.table(_LISTENER_COLUMNS, ("listener",), partial(_listeners, connections, clock))


def _clients(clients: ClientQuotaManager, key: str, clock: Clock) -> Iterator[Row | None]:
    for number, counted in enumerate(clients.counted(key), start=1):
        now_ms = clock.monotonic_ms()
        user, client_id = counted.sharers
        numbers = counted.rate.per_second(now_ms), counted.throttle_times.average_ms(now_ms)
        yield Row((desanitized(user), client_id), numbers)
        if number % _PER_PAUSE == 0:
            yield None


def _tokens(clients: ClientQuotaManager, clock: Clock) -> Iterator[Row]:
    for counted in clients.counted(CONTROLLER_MUTATION_RATE):
        if counted.bucket is not None:
            user, client_id = counted.sharers
            yield Row((desanitized(user), client_id), (counted.bucket.tokens(clock.monotonic_ms()),))


def _listeners(connections: ConnectionQuotas, clock: Clock) -> Iterator[Row]:
    now_ms = clock.monotonic_ms()
    for listener in connections.listeners:
        waits = listener.accept_waits.average_ms(now_ms), listener.ip_waits.average_ms(now_ms)
        yield Row((listener.name,), (listener.rate.per_second(now_ms), *waits))
