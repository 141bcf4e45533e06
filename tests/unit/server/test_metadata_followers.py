"""Limits that are changed while a broker runs take effect at once, by whichever way they come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import uvloop

from kafkalite.api.dispatch import Dispatcher
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.server.broker import Broker
from tests.support.loop import until

LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
}


def test_limits_of_connections_change_while_the_broker_runs(tmp_path: Path) -> None:
    async def story() -> None:
        async with Broker(BrokerConfig.load({**LISTENERS, "log.dirs": str(tmp_path)})) as broker:
            running: Any = broker._running
            quotas = running.server.quotas
            assert quotas.has_slot("OUTSIDE") and quotas.admit("OUTSIDE", "127.0.0.1") is None

            async def change(**settings: str) -> None:
                dotted = {name.replace("__", ".").replace("_", "."): text for name, text in settings.items()}
                await running.dynamic_config.change("0", lambda _: dotted, validate_only=False)

            await change(max_connections="1")
            await until(lambda: not quotas.has_slot("OUTSIDE"))
            assert not quotas.has_slot("PLAINTEXT") or quotas.is_protected("PLAINTEXT")
            await change(max_connections="5", listener__name__outside__max_connections="1")
            await until(lambda: quotas.has_slot("PLAINTEXT"))
            assert not quotas.has_slot("OUTSIDE")
            await change(max_connections_per_ip="1")
            await until(lambda: quotas.admit("OUTSIDE", "127.0.0.1") is not None)
            await change(max_connections_per_ip="1", max_connections_per_ip_overrides="localhost:3")
            await until(lambda: quotas.admit("OUTSIDE", "127.0.0.1") is None)
            await change(listener__name__outside__max_connection_creation_rate="7")
            await until(lambda: quotas.listener("OUTSIDE").rate.limit == 7)
            assert quotas.listener("PLAINTEXT").rate.limit > 1e9

    uvloop.run(story())


def test_the_dispatcher_of_quotas_stands_there_only_while_there_are_some(tmp_path: Path) -> None:
    async def story() -> None:
        async with Broker(data_dir=tmp_path, port=0) as broker:
            running: Any = broker._running
            handlers = [type(running.server.handler).__name__]
            epochs = [running.apis.admission_epoch.value]
            for config in (
                {"SCRAM-SHA-256": "no quota"},
                {"producer_byte_rate": "5"},
                {"producer_byte_rate": "5", "request_percentage": "7"},
                {"producer_byte_rate": "5", "request_percentage": "7"},
                {},
            ):
                await running.metadata.writes.change_entity_config("users/alice", lambda _, config=config: config)
                handlers.append(getattr(running.server.handler, "__name__", "Dispatcher"))
                epochs.append(running.apis.admission_epoch.value)
            assert handlers == ["Dispatcher", "Dispatcher", "within_bytes", "within_time", "within_time", "Dispatcher"]
            first = epochs[0]
            assert [epoch - first for epoch in epochs] == [0, 0, 1, 2, 2, 3]
            assert isinstance(running.server.handler, Dispatcher)

    uvloop.run(story())


def test_quotas_hold_from_the_start_on(tmp_path: Path) -> None:
    async def first() -> None:
        async with Broker(data_dir=tmp_path, port=0) as broker:
            metadata: Any = broker._running.metadata  # type: ignore[union-attr]
            await metadata.writes.change_entity_config("clients/<default>", lambda _: {"request_percentage": "7"})
            await metadata.writes.change_entity_config("ips/10.0.0.1", lambda _: {"connection_creation_rate": "0"})

    async def again() -> None:
        async with Broker(data_dir=tmp_path, port=0) as broker:
            running: Any = broker._running
            assert running.server.handler.__name__ == "within_time"
            assert running.server.quotas.ip_wait_ms("PLAINTEXT", "10.0.0.1") == 1_000
            assert running.server.quotas.ip_wait_ms("PLAINTEXT", "10.0.0.2") == 0

    uvloop.run(first())
    uvloop.run(again())
