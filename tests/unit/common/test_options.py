"""Settings with units, as people write them, become the numbers that Kafka has."""

from __future__ import annotations

import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.common.options import in_own_unit, settings_of_flag


@pytest.mark.parametrize(
    ("setting", "text", "value"),
    [
        ("retention.ms", "1d", "86400000"),
        ("retention.ms", "1 h 30 min", "5400000"),
        ("retention.ms", "1h30m", "5400000"),
        ("retention.ms", "2w", "1209600000"),
        ("retention.ms", "-1", "-1"),
        ("retention.ms", "3600000", "3600000"),
        ("segment.bytes", "64MiB", "67108864"),
        ("segment.bytes", "1.5gb", "1500000000"),
        ("socket.request.max.bytes", "100 MiB", "104857600"),
        ("log.cleaner.dedupe.buffer.size", "128MiB", "134217728"),
        ("producer_byte_rate", "1MiB", "1048576"),
        ("producer_byte_rate", "1e6", "1e6"),
        ("min.insync.replicas", "2", "2"),
        ("min.cleanable.dirty.ratio", "0.5", "0.5"),
        ("cleanup.policy", "compact", "compact"),
        ("log.retention.hours", "1d", "1d"),
        ("retention.ms", "", ""),
    ],
)
def test_values_come_in_the_unit_of_their_name(setting: str, text: str, value: str) -> None:
    assert in_own_unit(setting, text) == value


@pytest.mark.parametrize(
    ("setting", "text"),
    [("retention.ms", "soon"), ("retention.ms", "1MiB"), ("segment.bytes", "1d"), ("retention.ms", "1d x")],
)
def test_other_values_are_refused_with_an_example(setting: str, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"{setting}={text} must be a number, perhaps with a unit: .* or "):
        in_own_unit(setting, text)


def test_a_flag_has_settings_with_units() -> None:
    given = ["retention.ms=1d", "cleanup.policy=compact"]
    assert settings_of_flag("--config", given, "") == {"retention.ms": "86400000", "cleanup.policy": "compact"}
