"""Settings of Kafka's without effect here: described and checked as Kafka does it."""

from __future__ import annotations

import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.idle_settings import IDLE
from kafkalite.config.settings import ConfigEntry, ConfigSource, ConfigType


def described(config: BrokerConfig) -> dict[str, ConfigEntry]:
    return {entry.name: entry for entry in config.describe()}


def test_none_of_them_is_one_that_has_an_effect() -> None:
    assert not IDLE.keys() & BrokerConfig.by_name.keys()
    assert all(each.default_text is None or each.parse(each.default_text) is not None for each in IDLE.values())


def test_a_broker_tells_them_with_kafkas_defaults_and_what_was_set() -> None:
    config = BrokerConfig.load({"num.io.threads": "9"}, {"num.io.threads": "10"})
    told = described(config)
    assert told.keys() >= IDLE.keys()
    threads = told["num.io.threads"]
    assert (threads.value, threads.source, threads.type) == ("10", ConfigSource.DYNAMIC_BROKER_CONFIG, ConfigType.INT)
    assert [one.value for one in threads.synonyms] == ["10", "9", "8"]
    assert not threads.read_only and told["process.roles"].read_only
    assert told["create.topic.policy.class.name"].value is None and not told["create.topic.policy.class.name"].synonyms


def test_a_secret_among_them_is_not_told() -> None:
    entry = described(BrokerConfig.load({"delegation.token.secret.key": "hush"}))["delegation.token.secret.key"]
    assert entry.sensitive and "hush" not in repr(entry)


def test_the_value_of_a_name_that_no_broker_knows_is_not_told() -> None:
    entry = described(BrokerConfig.load({"my.plugin.password": "hush"}))["my.plugin.password"]
    assert (entry.sensitive, entry.read_only, entry.type) == (True, True, ConfigType.UNKNOWN)
    assert entry.source is ConfigSource.STATIC_BROKER_CONFIG and "hush" not in repr(entry)


@pytest.mark.parametrize(("name", "text"), [("num.io.threads", "0"), ("queued.max.requests", "many")])
def test_a_value_that_kafka_would_not_take_is_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}='{text}' must be an integer"):
        BrokerConfig.load({name: text})


def test_one_that_is_set_is_warned_of() -> None:
    [warning] = BrokerConfig.load({"num.io.threads": "9"}).warnings
    assert warning == "num.io.threads has no effect: kafkalite answers requests on its network loops"
