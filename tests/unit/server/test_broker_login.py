"""The login of a broker at others: where it comes from, and what of it a start refuses."""

from __future__ import annotations

import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.server.listener_security import broker_login, login_settings

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


TOKENS = "org.apache.kafka.common.security.oauthbearer."
BEARER = "listener.name.inside.oauthbearer."
BY_TOKEN = {
    **{name: text for name, text in SETTINGS.items() if name != NAME},
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    f"{BEARER}sasl.login.callback.handler.class": f"{TOKENS}OAuthBearerLoginCallbackHandler",
    f"{BEARER}sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
    f"{BEARER}sasl.jaas.config": f'{TOKENS}OAuthBearerLoginModule required clientId="broker" clientSecret="s3cret";',
}
BY_TICKET = {
    **{name: text for name, text in SETTINGS.items() if name != NAME},
    "sasl.enabled.mechanisms": "GSSAPI",
    "sasl.mechanism.inter.broker.protocol": "GSSAPI",
    "sasl.kerberos.service.name": "kafka",
    "listener.name.inside.gssapi.sasl.jaas.config": (
        'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/nowhere" principal="kafka/h@R";'
    ),
}


def test_by_a_token_of_an_authority() -> None:
    login = broker_login(BrokerConfig.load(BY_TOKEN))
    assert login is not None and (login.mechanism, login.name, login.may_wait) == ("OAUTHBEARER", "broker", True)
    assert "s3cret" not in repr(login)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({f"{BEARER}sasl.jaas.config": ""}, 'is missing: it has the clientId="..." and clientSecret="..."'),
        ({f"{BEARER}sasl.jaas.config": f"{TOKENS}OAuthBearerLoginModule required;"}, 'has no clientId="..." and'),
        ({f"{BEARER}sasl.login.callback.handler.class": ""}, "INSIDE.*sasl.login.callback.handler.class is not set"),
        ({f"{BEARER}sasl.login.callback.handler.class": "com.example.Own"}, "=com.example.Own: kafkalite runs no Java"),
        ({f"{BEARER}sasl.oauthbearer.token.endpoint.url": ""}, "sasl.oauthbearer.token.endpoint.url is not set"),
        ({f"{BEARER}sasl.oauthbearer.token.endpoint.url": "ftp://x"}, "token.endpoint.url must begin with https://"),
    ],
)
def test_what_a_token_needs(change: dict[str, str], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault) as refusal:
        broker_login(BrokerConfig.load({**BY_TOKEN, **change}))
    assert "s3cret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"sasl.kerberos.service.name": ""}, "INSIDE.*sasl.kerberos.service.name is not set"),
        ({}, "has keyTab /nowhere, which cannot be read"),
    ],
)
def test_what_a_ticket_needs(change: dict[str, str], fault: str) -> None:
    pytest.importorskip("gssapi")
    with pytest.raises(ConfigError, match=fault):
        broker_login(BrokerConfig.load({**BY_TICKET, **change}))


def test_the_token_is_kept_while_its_settings_are() -> None:
    now = login_settings(BrokerConfig.load(BY_TOKEN))
    assert now == login_settings(BrokerConfig.load(BY_TOKEN, {"log.cleaner.threads": "2"}))
    assert now != login_settings(BrokerConfig.load(BY_TOKEN, {f"{BEARER}sasl.login.refresh.window.factor": "0.5"}))
    changed = BY_TOKEN[f"{BEARER}sasl.jaas.config"].replace("s3cret", "other")
    assert now != login_settings(BrokerConfig.load(BY_TOKEN, {f"{BEARER}sasl.jaas.config": changed}))
    assert login_settings(BrokerConfig.load({})) is None
