"""Settings of one listener: the most special one wins, mistakes are named, secrets are shown to nobody."""

from __future__ import annotations

import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.listeners import base_name, prefixes
from kafkalite.config.settings import ConfigSource

TWO = {
    "listeners": "IN://127.0.0.1:1,IN.SIDE://127.0.0.1:2",
    "listener.security.protocol.map": "IN:PLAINTEXT,IN.SIDE:PLAINTEXT",
}


def load(**given: str) -> BrokerConfig:
    return BrokerConfig.load({**TWO, **{name.replace("__", "."): text for name, text in given.items()}})


def test_a_name_is_taken_apart() -> None:
    assert list(prefixes("IN", "SCRAM-SHA-256")) == ["listener.name.in.scram-sha-256.", "listener.name.in."]
    for name, base in (
        ("listener.name.in.ssl.client.auth", "ssl.client.auth"),
        ("listener.name.in.scram-sha-256.sasl.jaas.config", "sasl.jaas.config"),
        ("listener.name.in.plain.connections.max.reauth.ms", "connections.max.reauth.ms"),
        ("listener.name.in.side.ssl.client.auth", "ssl.client.auth"),
        ("listener.name.IN.ssl.client.auth", None),
        ("listener.name.out.ssl.client.auth", None),
    ):
        assert base_name(name, ["IN", "IN.SIDE"]) == base


def test_the_most_special_setting_wins() -> None:
    config = load(ssl__client__auth="none", listener__name__in__ssl__client__auth="required")
    assert config.listener_setting("IN", "ssl.client.auth") == "required"
    assert config.listener_setting("IN.SIDE", "ssl.client.auth") == "none"
    assert config.listener_setting("IN", "ssl.enabled.protocols") == ("TLSv1.2", "TLSv1.3")
    changed = BrokerConfig.load(config.explicit, {"listener.name.in.ssl.client.auth": "requested"})
    assert changed.listener_setting("IN", "ssl.client.auth") == "requested"
    moved = config.replace(listeners=config.listeners[:1])
    assert moved.listener_setting("IN", "ssl.client.auth") == "required"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("listener.name.out.ssl.client.auth", "none", "belongs to no listener: `listeners` has IN, IN.SIDE"),
        ("listener.name.IN.ssl.client.auth", "none", "in lower case, such as listener.name.in.ssl.keystore"),
        ("listener.name.in.log.dirs", "/x", "cannot be set for one listener"),
        ("listener.name.in.ssl.client.aut", "none", "did you mean ssl.client.auth"),
        ("listener.name.in.ssl.client.auth", "maybe", "'maybe' must be one of: required, requested, none"),
        ("listener.name.in.ssl.keystore.type", "ZIP", "'ZIP' must be PEM, PKCS12 or JKS"),
    ],
)
def test_a_mistake_is_named(name: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        BrokerConfig.load({**TWO, name: value})
    assert words in str(refusal.value)


def test_one_that_has_no_effect_is_a_warning() -> None:
    (warning,) = load(listener__name__in__ssl__provider="SunJSSE").warnings
    assert warning.startswith("listener.name.in.ssl.provider: ssl.provider has no effect: it selects a part of Java's")
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:1,CONTROLLER://:2",
        "controller.listener.names": "CONTROLLER",
        "listener.name.controller.ssl.client.auth": "whatever KRaft wants",
    }
    left_out = BrokerConfig.load(properties).warnings[-1]
    assert left_out.startswith("listeners: CONTROLLER"), "and nothing is said about its settings"


def test_they_are_described_without_their_secrets() -> None:
    static = {
        **TWO,
        "listener.name.in.ssl.keystore.password": "sesame",
        "listener.name.in.ssl.keystore.location": "/old.pem",
    }
    config = BrokerConfig.load(static, {"listener.name.in.ssl.keystore.location": "/new.pem"})
    entries = {entry.name: entry for entry in config.describe()}
    location = entries["listener.name.in.ssl.keystore.location"]
    assert (location.value, location.source) == ("/new.pem", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert [one.value for one in location.synonyms] == ["/new.pem", "/old.pem"]
    secret = entries["listener.name.in.ssl.keystore.password"]
    assert secret.sensitive and secret.value is None
    assert "sesame" not in repr(entries) and "sesame" not in repr(config)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"inter.broker.listener.name": "IN", "security.inter.broker.protocol": "PLAINTEXT"},
            "say the same; set only one of them",
        ),
        ({"security.inter.broker.protocol": "SSL"}, "needs a listener of that name, and there are IN, IN.SIDE"),
    ],
)
def test_brokers_meet_at_one_listener(given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        BrokerConfig.load({**TWO, **given})
    assert words in str(refusal.value)
    chosen = BrokerConfig.load({**TWO, "inter.broker.listener.name": "in"}).inter_broker_listener
    assert chosen is not None and chosen.name == "IN"
    by_protocol = BrokerConfig.load({"security.inter.broker.protocol": "PLAINTEXT"}).inter_broker_listener
    assert by_protocol is not None and by_protocol.name == "PLAINTEXT"
    assert BrokerConfig.load(TWO).inter_broker_listener is None
