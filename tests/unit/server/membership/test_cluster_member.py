"""The addresses that a broker registers."""

from __future__ import annotations

import asyncio

import pytest

from kafkalite.config.broker_config import BrokerConfig
from kafkalite.server.membership.cluster_member import advertised_endpoints

SESSION_TIMEOUT_MS = 6_000


def advertised(ports: dict[str, int], **settings: str) -> list[str]:
    config = BrokerConfig.load({name.replace("_", "."): value for name, value in settings.items()})
    return [str(endpoint) for endpoint in asyncio.run(advertised_endpoints(config, ports))]


def test_others_are_told_what_is_advertised_or_where_it_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.getfqdn", lambda: "host.example")
    assert advertised({"PLAINTEXT": 4711}, listeners="PLAINTEXT://127.0.0.1:0") == ["PLAINTEXT://127.0.0.1:4711"]
    assert advertised({"PLAINTEXT": 9092}, listeners="PLAINTEXT://:9092") == ["PLAINTEXT://host.example:9092"]
    assert advertised(
        {"IN": 1, "OUT": 2},
        listeners="IN://[::1]:1,OUT://0.0.0.0:0",
        advertised_listeners="OUT://broker.example:443",
        listener_security_protocol_map="IN:PLAINTEXT,OUT:PLAINTEXT",
    ) == ["IN://[::1]:1", "OUT://broker.example:443"]
