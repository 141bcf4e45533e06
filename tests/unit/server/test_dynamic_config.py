"""Settings that are changed while running: checked here, written to the metadata, and taken from there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.metadata.cluster_metadata import CLUSTER_DEFAULT
from kafkalite.server.dynamic_config import DynamicBrokerConfig
from tests.support.in_memory_cluster import InMemoryCluster


class Scene:
    def __init__(self, cluster: InMemoryCluster | None = None, *, follows: bool = True, **settings: str) -> None:
        self.metadata = (cluster or InMemoryCluster()).metadata(1)
        self.applied: list[int] = []
        given = {name.replace("_", "."): value for name, value in settings.items()}
        config = BrokerConfig.load({"broker.id": "1", **given})
        self.running = DynamicBrokerConfig(
            config, self.metadata, 1, lambda new: self.applied.append(new.message_max_bytes)
        )
        if follows:
            self.running.follow()

    async def set(self, broker: str, validate_only: bool = False, **changed: str) -> None:
        named = {name.replace("_", "."): value for name, value in changed.items()}
        await self.running.change(broker, lambda old: {**old, **named}, validate_only)


def play(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(story())


def test_what_is_set_for_this_broker_wins_over_what_is_set_for_all() -> None:
    async def story() -> None:
        scene = Scene(message_max_bytes="1000")
        await scene.set(CLUSTER_DEFAULT, message_max_bytes="2000")
        await scene.set("1", message_max_bytes="3000")
        await scene.set(CLUSTER_DEFAULT, message_max_bytes="4000")
        await scene.set("2", message_max_bytes="5000")  # another broker
        await scene.metadata.writes.set_broker_config("1", {})
        assert scene.applied == [2000, 3000, 3000, 4000]

    play(story)


def test_what_cannot_be_is_refused_and_nothing_is_written() -> None:
    async def story() -> None:
        scene = Scene()
        for broker in ("1", "2", CLUSTER_DEFAULT):
            with pytest.raises(ConfigError):
                await scene.set(broker, message_max_bytes="many")
        with pytest.raises(ConfigError):
            await scene.set("1", log_cleaner_threads="9")  # too much of a change at a time
        await scene.set("1", validate_only=True, message_max_bytes="7")
        assert scene.applied == [] and not scene.metadata.broker_configs

    play(story)


def test_what_others_changed_while_the_logs_were_loaded_is_applied() -> None:
    cluster = InMemoryCluster()
    scene = Scene(cluster, follows=False)
    cluster.configs["1"] = {"message.max.bytes": "2000"}
    scene.running.follow()
    assert scene.applied == [2000] and scene.running.now.message_max_bytes == 2000
    assert Scene(cluster).applied == [], "nothing has changed since"


def test_of_what_others_write_all_that_is_understood_holds(caplog: pytest.LogCaptureFixture) -> None:
    cluster = InMemoryCluster()
    cluster.configs["1"] = {"message.max.bytes": "2000", "log.retention.ms": "soon", "broker.rack": "a"}
    cluster.configs[CLUSTER_DEFAULT] = {"leader.replication.throttled.rate": "1", "log.retention.bytes": "55"}
    now = Scene(cluster).running.now
    assert (now.message_max_bytes, now.log_retention_ms, now.log_retention_bytes) == (2000, None, 55)
    assert now.broker_rack is None, "no broker changes it while it runs"
    assert "log.retention.ms" in caplog.text


PASSWORD = "listener.name.plaintext.ssl.keystore.password"


def test_secrets_are_encrypted_in_zookeeper_and_open_here() -> None:
    async def story() -> None:
        cluster = InMemoryCluster()
        scene = Scene(cluster, password_encoder_secret="s")
        await scene.set("1", **{PASSWORD: "hidden", "message.max.bytes": "7"})
        kept = cluster.configs["1"][PASSWORD]
        assert kept.startswith("keyFactoryAlgorithm:PBKDF2WithHmacSHA512,") and "hidden" not in kept
        assert scene.running.now.dynamic[PASSWORD] == "hidden"
        await scene.set("1", **{"message.max.bytes": "8"})
        assert cluster.configs["1"][PASSWORD] == kept, "what has not changed keeps its text"
        with pytest.raises(ConfigError, match="for single brokers, not for all"):
            await scene.set(CLUSTER_DEFAULT, **{PASSWORD: "hidden"})

        again = Scene(cluster, password_encoder_secret="t", password_encoder_old_secret="s")
        await again.running.renew_secrets()
        assert again.running.now.dynamic[PASSWORD] == "hidden" and cluster.configs["1"][PASSWORD] != kept
        newest = dict(cluster.configs["1"])
        await again.running.renew_secrets()
        assert cluster.configs["1"] == newest, "once is enough"
        assert Scene(cluster, password_encoder_secret="t").running.now.dynamic[PASSWORD] == "hidden"

    play(story)


@pytest.mark.parametrize("settings", [{}, {"password_encoder_secret": "other"}])
def test_a_secret_that_cannot_be_decoded_has_no_effect(
    settings: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        cluster = InMemoryCluster()
        await Scene(cluster, password_encoder_secret="s").set("1", **{PASSWORD: "hidden", "message.max.bytes": "7"})
        now = Scene(cluster, **settings).running.now
        assert PASSWORD not in now.dynamic and now.message_max_bytes == 7
        assert f"{PASSWORD} was set while a broker ran, and" in caplog.text

    play(story)


def test_without_a_secret_to_encrypt_with_no_secret_is_taken() -> None:
    async def story() -> None:
        scene = Scene()
        with pytest.raises(ConfigError, match=r"set password.encoder.secret in server.properties"):
            await scene.set("1", **{PASSWORD: "hidden"})
        with pytest.raises(ConfigError, match="must be one of 128, 192, 256"):
            Scene(password_encoder_secret="s", password_encoder_key_length="64")

    play(story)
