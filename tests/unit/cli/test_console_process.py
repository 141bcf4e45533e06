"""The console beside a broker: how it finds the broker, and that it is started again, but not for ever."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from kafkalite.cli.console_command import STARTS_MAX, ConsoleProcess, client_of
from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig

LISTENERS = "INSIDE://0.0.0.0:1,OUTSIDE://127.0.0.1:2"
PORTS = {"INSIDE": 1001, "OUTSIDE": 1002}


def config(protocols: str, **more: str) -> BrokerConfig:
    return BrokerConfig.load(
        {
            "listeners": LISTENERS,
            "listener.security.protocol.map": protocols,
            "inter.broker.listener.name": "INSIDE",
            **{name.replace("_", "."): value for name, value in more.items()},
        }
    )


def test_the_simplest_listener_is_asked() -> None:
    address, properties = client_of(config("INSIDE:SASL_PLAINTEXT,OUTSIDE:PLAINTEXT"), PORTS)
    assert (address, properties) == ("127.0.0.1:1002", {"security.protocol": "PLAINTEXT"})
    address, properties = client_of(config("INSIDE:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT"), PORTS)
    assert address == "127.0.0.1:1001"


def test_a_listener_with_tls_needs_a_file_that_tells_whom_to_trust(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"console\.command\.config"):
        client_of(config("INSIDE:SSL,OUTSIDE:SSL"), PORTS)
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\nssl.truststore.location=/trusted.pem\n")
    address, properties = client_of(config("INSIDE:PLAINTEXT,OUTSIDE:SSL", console_command_config=str(file)), PORTS)
    assert address == "127.0.0.1:1002" and properties["ssl.truststore.location"] == "/trusted.pem"


def test_a_console_that_dies_again_and_again_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []

    async def story() -> None:
        command = [sys.executable, "-c", "print(input())"]
        process = ConsoleProcess(command, {"a": "b"}, told.append, monotonic_s=lambda: 0.0, again_s=0.0)
        await process._run()
        await process.stop()

    asyncio.run(story())
    assert told == ['{"a": "b"}'] * STARTS_MAX and "not restarted" in caplog.text
