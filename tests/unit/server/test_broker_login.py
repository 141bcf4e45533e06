"""The login of a broker at others: where it comes from, and what of it a start refuses."""

from __future__ import annotations

import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.server.broker_login import broker_login

NAME = "listener.name.inside.scram-sha-256.sasl.jaas.config"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"
SETTINGS = {
    "listeners": "INSIDE://:9093,PLAINTEXT://:9092",
    "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "inter.broker.listener.name": "INSIDE",
    "zookeeper.connect": "localhost",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
    NAME: f'{MODULE} username="broker" password="secret";',
}


def test_the_module_of_the_listener_and_mechanism() -> None:
    login = broker_login(BrokerConfig.load(SETTINGS))
    assert login is not None and (login.mechanism, login.name) == ("SCRAM-SHA-256", "broker")


@pytest.mark.parametrize("change", [{"zookeeper.connect": ""}, {"inter.broker.listener.name": "PLAINTEXT"}])
def test_no_login_is_needed(change: dict[str, str]) -> None:
    assert broker_login(BrokerConfig.load({**SETTINGS, **change})) is None


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"sasl.mechanism.inter.broker.protocol": "PLAIN"}, r"=PLAIN: the brokers meet at listener INSIDE, where"),
        ({NAME: ""}, r"scram-sha-256\.sasl\.jaas\.config is missing: it has the username"),
        ({NAME: f"{MODULE};"}, "has no username="),
        ({NAME: "nonsense"}, "must be MODULE FLAG"),
    ],
)
def test_faults(change: dict[str, str], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        broker_login(BrokerConfig.load({**SETTINGS, **change}))
