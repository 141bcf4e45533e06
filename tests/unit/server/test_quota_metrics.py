"""The numbers of quotas, as a scraper reads them."""

from __future__ import annotations

from kafkalite.common.metrics import Metrics
from kafkalite.network.connection_quotas import ConnectionQuotas, NetworkLimits
from kafkalite.security.quota.client_quotas import ClientQuotaManager, QuotaWindows
from kafkalite.server.traffic_metrics import add_quota_metrics
from tests.support.manual_clock import ManualClock
from tests.support.prometheus import Family, parse, value


def scrape(clients: ClientQuotaManager, connections: ConnectionQuotas, clock: ManualClock) -> dict[str, Family]:
    metrics = Metrics()
    add_quota_metrics(metrics, clients, connections, clock)
    return parse("".join(piece.decode() if isinstance(piece, bytes) else piece for piece in metrics.pieces()))


def test_whoever_has_a_quota_is_shown_with_what_it_used() -> None:
    clock = ManualClock()
    clients = ClientQuotaManager(QuotaWindows(11, 1_000), QuotaWindows(11, 1_000))
    connections = ConnectionQuotas(NetworkLimits(max_connection_creation_rate=1), {}, clock)
    assert (
        value(scrape(clients, connections, clock), "kafka_server_socket_server_metrics_broker_connection_accept_rate")
        == 0
    )
    clients.put("users/a%2Ab", {"producer_byte_rate": "100", "controller_mutation_rate": "2"})
    clients.put("clients/app", {"request_percentage": "50"})
    now_ms = clock.monotonic_ms()
    resolved = clients.resolve("a*b", "app", now_ms)
    assert resolved.produce is not None and resolved.mutation is not None and resolved.request is not None
    resolved.produce.rate.record(3_000, now_ms)
    resolved.produce.throttle_times.add(700, now_ms)
    resolved.produce.throttle_times.add(300, now_ms)
    assert resolved.mutation.bucket is not None
    resolved.mutation.bucket.take(30, now_ms)
    resolved.request.rate.record(20, now_ms)
    for _ in range(11):
        connections.creation_wait_ms("OUTSIDE")
    told = scrape(clients, connections, clock)
    user, app = {"user": "a*b", "client_id": ""}, {"user": "", "client_id": "app"}
    assert value(told, "kafka_server_produce_byte_rate", **user) == 300
    assert value(told, "kafka_server_produce_throttle_time", **user) == 500
    assert value(told, "kafka_server_controllermutation_tokens", **user) == -8
    assert value(told, "kafka_server_request_request_time", **app) == 2
    sockets = "kafka_server_socket_server_metrics"
    assert value(told, f"{sockets}_connection_accept_rate", listener="OUTSIDE") == 1.1
    assert value(told, f"{sockets}_connection_accept_throttle_time", listener="OUTSIDE") == 1_000
    assert value(told, f"{sockets}_broker_connection_accept_rate") == 1.1
    clock.advance(60_000)
    told = scrape(clients, connections, clock)
    assert value(told, "kafka_server_produce_byte_rate", **user) == 0
    assert value(told, "kafka_server_produce_throttle_time", **user) == 0
