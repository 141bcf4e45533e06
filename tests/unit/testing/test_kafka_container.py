"""The stand-in for testcontainers' KafkaContainer, and the mixin for unittest."""

from __future__ import annotations

import unittest
from pathlib import Path

import confluent_kafka
import pytest

from kafkalite.testing import KafkaContainer, KafkaTestMixin
from tests.support.wait import DEADLINE_S


def test_it_is_used_as_the_container_is() -> None:
    container = (
        KafkaContainer("confluentinc/cp-kafka:7.6.0")
        .with_kraft()
        .with_env("KAFKA_NUM_PARTITIONS", 4)
        .with_env("KAFKA_LISTENERS", "PLAINTEXT://0.0.0.0:9093")
        .with_env("KAFKA_OPTS", "-Xmx1g")
        .with_exposed_ports(9093)
        .with_name("kafka")
    )
    assert container.kraft_enabled and not KafkaContainer().kraft_enabled
    with container as kafka:
        bootstrap = kafka.get_bootstrap_server()
        assert bootstrap == f"{kafka.get_container_host_ip()}:{kafka.get_exposed_port(9093)}"
        client = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
        client.produce("orders", "x")
        assert client.flush(DEADLINE_S) == 0
        assert kafka.broker.topics == {"orders": 4}
        with pytest.raises(NotImplementedError, match="no container"):
            kafka.exec(["kafka-topics"])
    with pytest.raises(RuntimeError, match="start"):
        container.get_bootstrap_server()
    with pytest.raises(NotImplementedError, match="get_docker_client"):
        container.get_docker_client()
    with pytest.raises(AttributeError, match="no 'strat'"):
        container.strat()


def test_settings_come_from_arguments_and_files_too(tmp_path: Path) -> None:
    (tmp_path / "env").write_text(
        "# a comment\n\nexport KAFKA_NUM_PARTITIONS='5'\nKAFKA_OPTS=\"-X a=b\"\nno assignment\n"
    )
    container = KafkaContainer(env={"KAFKA_MESSAGE_MAX_BYTES": 1000}).with_env_file(tmp_path / "env")
    assert container.env["KAFKA_OPTS"] == "-X a=b"
    assert container.waiting_for("a line of the log") is container and container.status == "created"
    with container as kafka:
        kafka.reload()
        assert (kafka.status, kafka.get_logs()) == ("running", (b"", b""))
        assert kafka.broker.config.message_max_bytes == 1000
        kafka.broker.produce("orders", "x")
        assert kafka.broker.topics == {"orders": 5}


def test_it_has_the_methods_of_the_container() -> None:
    """Of testcontainers 4.15.0. Others begin with `with_`, and are all there."""
    container = KafkaContainer()
    for name in (
        "copy_from_container", "copy_into_container", "create_file", "exec", "get_bootstrap_server",
        "get_container_host_ip", "get_container_id", "get_container_info", "get_docker_client", "get_exposed_port",
        "get_logs", "get_wrapped_container", "maybe_emulate_amd64", "reload", "start", "stop", "wait", "waiting_for",
        "with_cluster_id", "with_env", "with_envs", "with_env_file", "with_kraft", "with_network", "with_tmpfs_mount",
    ):  # fmt: skip
        assert callable(getattr(container, name)), name


def test_start_and_stop_may_be_called_again() -> None:
    container = KafkaContainer()
    container.stop()
    first = container.start().start().get_bootstrap_server()
    assert container.get_bootstrap_server() == first
    container.stop()
    container.stop()


def test_the_mixin_gives_each_test_a_broker_of_its_own() -> None:
    ports = []

    class Orders(KafkaTestMixin, unittest.TestCase):
        kafka_topics = ("orders",)
        kafka_settings = {"num_partitions": 3}  # noqa: RUF012

        def test_one(self) -> None:
            self.assertEqual(self.kafka.topics, {"orders": 1})
            ports.append(self.kafka.produce("orders", "x").partition)
            self.assertEqual(self.kafka.produce("more", "x").topic, "more")
            self.assertEqual(self.kafka.topics["more"], 3)

        test_two = test_one

    result = unittest.defaultTestLoader.loadTestsFromTestCase(Orders).run(unittest.TestResult())
    assert result is not None and result.wasSuccessful() and result.testsRun == 2, (result.errors, result.failures)
    assert ports == [0, 0]
