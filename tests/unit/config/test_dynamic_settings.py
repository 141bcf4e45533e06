"""Which settings a running broker may be given, and which only for one broker or one listener."""

from __future__ import annotations

import pytest

from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.dynamic_settings import conflict_between, may_change, refusal

CONFIG = BrokerConfig.load({"listeners": "PLAINTEXT://127.0.0.1:9092"})


@pytest.mark.parametrize(
    ("name", "words", "words_for_all"),
    [
        ("log.retention.ms", None, None),
        ("num.io.threads", None, None),
        ("my.plugin", None, None),
        ("retention.ms", None, None),
        ("broker.rack", "Cannot update these configs dynamically: broker.rack", "dynamically"),
        ("process.roles", "Cannot update these configs dynamically", "dynamically"),
        ("ssl.keystore.location", "only per-listener", "only per-listener"),
        ("ssl.client.auth", None, "broker id must be specified: ssl.client.auth"),
        ("sasl.enabled.mechanisms", None, "broker id must be specified"),
        ("sasl.kerberos.kinit.cmd", None, "broker id must be specified"),
        ("listener.name.plaintext.ssl.client.auth", None, "broker id must be specified"),
        ("listener.name.plaintext.max.connections", None, None),
        ("listener.name.nope.max.connections", None, None),
        ("listener.name.nope.no.such", "dynamically", "dynamically"),
        ("listener.name.plaintext.no.such", "dynamically", "dynamically"),
        ("metric.reporters", "kafkalite runs no Java classes", "kafkalite runs no Java classes"),
    ],
)
def test_where_a_setting_may_be_changed(name: str, words: str | None, words_for_all: str | None) -> None:
    for for_all, expected in ((False, words), (True, words_for_all)):
        found = refusal(CONFIG, {name: "x", "log.retention.bytes": "1"}, for_all=for_all)
        assert found is None if expected is None else expected in (found or ""), (found, expected)


def test_names_that_nobody_knows_are_kept_for_plugins_but_not_for_listeners() -> None:
    assert may_change(CONFIG, "my.plugin") and not may_change(CONFIG, "listener.name.x.my.plugin")


@pytest.mark.parametrize("name", ["log.cleaner.threads", "num.io.threads", "num.replica.fetchers"])
def test_a_broker_may_have_twice_or_half_as_many_threads_while_running(name: str) -> None:
    four = BrokerConfig.load({name: "4"})
    for threads, fits in (("1", False), ("2", True), ("8", True), ("9", False)):
        assert (conflict_between(BrokerConfig.load({name: threads}), four) is None) == fits
