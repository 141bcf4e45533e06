"""Listeners: their notation, their protocols, and which ones can be bound side by side."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.listeners import (
    ListenerConfig,
    bind_fault,
    metrics_listener,
    parse_host_limits,
    parse_listeners,
    parse_metrics_listener,
    parse_protocol_map,
    resolve_listeners,
    with_protocols,
)

hosts = st.sampled_from(["", "localhost", "10.0.0.1", "::1", "fe80::1%eth0", "kafka-1.example"])
listeners = st.builds(
    ListenerConfig, st.sampled_from(["A", "IN-1", "X.Y_Z"]), hosts, st.integers(0, 65_535), st.just("PLAINTEXT")
)


@given(st.lists(listeners, max_size=4))
def test_a_list_of_listeners_is_read_as_it_is_written(expected: list[ListenerConfig]) -> None:
    assert parse_listeners(" , ".join(map(str, expected))) == tuple(expected)


@pytest.mark.parametrize("text", ["h:9092", "A://h", "A://h:", "A://h:9092/x", "A://h h:1", "A B://h:1"])
def test_a_listener_has_a_name_and_a_port(text: str) -> None:
    with pytest.raises(ValueError, match="must be a list of NAME://HOST:PORT"):
        parse_listeners(text)


@given(st.integers(0, 99_999))
def test_a_port_fits_sixteen_bits(port: int) -> None:
    if port <= 65_535:
        assert parse_listeners(f"a://h:{port}") == (ListenerConfig("A", "h", port),)
        assert metrics_listener(parse_metrics_listener(f" h:{port} ")) == ListenerConfig("METRICS", "h", port)
    else:
        with pytest.raises(ValueError, match="ports from 0 to 65535"):
            parse_listeners(f"a://h:{port}")
        with pytest.raises(ValueError, match="must be HOST:PORT"):
            parse_metrics_listener(f"h:{port}")


def test_a_name_has_one_protocol_whatever_its_case() -> None:
    assert parse_protocol_map("in:plaintext, OUT:SSL,") == {"IN": "PLAINTEXT", "OUT": "SSL"}
    for text, words in (("IN", "must be a list"), ("IN:TLS", "must be a list"), ("IN:SSL,in:SSL", "stands twice")):
        with pytest.raises(ValueError, match=words):
            parse_protocol_map(text)


def test_a_limit_stands_behind_the_last_colon() -> None:
    assert parse_host_limits("h:1, [::1]:2,::2:3") == {"h": 1, "::1": 2, "::2": 3}
    for text in ("h", ":1", "h:-1", "h:x", "h:\u0662", "h:12345678901"):
        with pytest.raises(ValueError, match="must be a list of host:count"):
            parse_host_limits(text)


def test_each_listener_has_a_protocol() -> None:
    plain = ListenerConfig("A", "h", 1)
    assert with_protocols((plain,), {"A": "PLAINTEXT"}) == (plain,)
    with pytest.raises(ValueError, match=r"add A:PLAINTEXT to listener\.security\.protocol\.map"):
        with_protocols((plain,), {"B": "PLAINTEXT"})
    assert with_protocols((plain,), {"A": "SASL_SSL"})[0].protocol == "SASL_SSL"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("A://:1,B://:2", None),
        ("A://:0,B://:0", None),
        ("A://10.0.0.1:1,B://[::1]:1", None),
        ("A://10.0.0.1:1,B://10.0.0.2:1", "1 stands twice"),
        ("A://:1,B://[::1]:1", "1 stands twice"),
        ("A://h:1,B://[::1]:1", "1 stands twice"),
        ("A://:1,A://:2", "A stands twice"),
    ],
)
def test_a_port_is_shared_only_by_ipv4_and_ipv6(text: str, word: str | None) -> None:
    fault = bind_fault(parse_listeners(text))
    assert fault is None if word is None else fault is not None and word in fault


def settled(**given: str) -> tuple[dict[str, Any], list[str]]:
    """The values and the warnings of these settings, underscores being dots."""
    texts = {name.replace("_", "."): text for name, text in given.items()}
    known = BrokerConfig.by_name
    values = {name.replace(".", "_"): known[name].parse(text) for name, text in texts.items() if name in known}
    warnings: list[str] = []
    resolve_listeners(texts, values, known, warnings)
    return values, warnings


def test_a_kraft_controllers_listener_is_left_out_with_one_warning() -> None:
    values, warnings = settled(
        listeners="PLAINTEXT://:9092,CONTROLLER://:9093",
        advertised_listeners="PLAINTEXT://h:9092,CONTROLLER://h:9093",
        controller_listener_names="controller",
    )
    assert [each.name for each in values["listeners"]] == ["PLAINTEXT"]
    assert [each.name for each in values["advertised_listeners"]] == ["PLAINTEXT"]
    (warning,) = warnings
    assert warning.startswith("listeners: CONTROLLER://:9093 is left out")


def test_an_advertised_listener_that_says_nothing_new_is_dropped() -> None:
    values, _ = settled(listeners="PLAINTEXT://:9092", advertised_listeners="PLAINTEXT://:9092")
    assert values["advertised_listeners"] == ()


@pytest.mark.parametrize(
    ("advertised", "words"),
    [
        ("PLAINTEXT://0.0.0.0:9092", "no client can dial 0.0.0.0"),
        ("PLAINTEXT://[::]:9092", "no client can dial ::"),
        ("PLAINTEXT://:9093", "needs a host name"),
        ("PLAINTEXT://h:0", "no client can dial port 0"),
        ("SSL://h:1", "there is no such listener"),
        ("PLAINTEXT://h:1,PLAINTEXT://h:2", "advertised once"),
    ],
)
def test_a_client_can_dial_every_advertised_listener(advertised: str, words: str) -> None:
    with pytest.raises(ConfigError, match=r"advertised\.listeners") as refusal:
        settled(listeners="PLAINTEXT://:9092", advertised_listeners=advertised)
    assert words in str(refusal.value)


def test_brokers_meet_at_a_listener_that_exists() -> None:
    settled(listeners="PLAINTEXT://:9092", inter_broker_listener_name="plaintext")
    with pytest.raises(ConfigError, match="OTHER is none of the listeners; they are PLAINTEXT"):
        settled(listeners="PLAINTEXT://:9092", inter_broker_listener_name="OTHER")


def test_there_is_at_least_one_listener() -> None:
    with pytest.raises(ConfigError, match="listeners leaves nothing to listen on"):
        settled(listeners="CONTROLLER://:1", controller_listener_names="CONTROLLER")
