"""Subscriptions to metrics of clients (resource type 16): which metrics, how often, and from which clients (KIP-714).

A client matches when each of its named properties matches its expression as a whole; without expressions every client
does. Expressions are RE2's, which Kafka's are not: look-around and back-references are refused.
Source: org.apache.kafka.server.metrics.ClientMetricsConfigs (4.3).
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.linear_regex import LinearRegex
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import java_trim
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.settings import ConfigEntry, ConfigSource, ConfigSynonym, Settings, integer, words

INTERVAL_MIN_MS, INTERVAL_MAX_MS = 100, 3_600_000
INTERVAL_DEFAULT_MS = 300_000
CLIENT_PROPERTIES = frozenset(
    (
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    )
)


class MetricSubscription(NamedTuple):
    """One subscription as it counts: prefixes of metrics ("*": all), the time between pushes, the clients."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, LinearRegex]

    def matches(self, client: Mapping[str, str]) -> bool:
        """`client`: its properties by the names of `CLIENT_PROPERTIES`."""
        return all(name in client and regex.fullmatch(client[name]) for name, regex in self.match.items())


class ClientMetricsConfig(Settings):
    """Values of the lines below for one subscription."""

    # fmt: off
    interval_ms: int = integer(INTERVAL_DEFAULT_MS, "Time between the pushes of a client.")
    match: tuple[str, ...] = words((), "Which clients: property=expression, with commas between them.")
    metrics: tuple[str, ...] = words((), "Prefixes of the metrics; * stands for all.")
    # fmt: on

    @classmethod
    def check(cls, overrides: Mapping[str, str], broker: BrokerConfig) -> None:
        """Raises KafkaError unless these can be the settings of a subscription."""
        cls.subscription(overrides)

    @classmethod
    def subscription(cls, overrides: Mapping[str, str]) -> MetricSubscription:
        """The subscription with these settings. Raises KafkaError."""
        unknown = next((name for name in overrides if name not in cls.by_name), None)
        if unknown is not None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {unknown}")
        text = overrides.get("interval.ms", str(INTERVAL_DEFAULT_MS))
        try:
            interval_ms = cls.by_name["interval.ms"].parse(text)
        except ValueError:
            message = f"Invalid value {text} for configuration interval.ms: Not a number of type INT"
            raise KafkaError(ErrorCode.INVALID_CONFIG, message) from None
        if not INTERVAL_MIN_MS <= interval_ms <= INTERVAL_MAX_MS:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Invalid value {interval_ms} for interval.ms, interval must be between {INTERVAL_MIN_MS} and "
                f"{INTERVAL_MAX_MS} (1 hour)",
            )
        metrics = cls.by_name["metrics"].parse(overrides.get("metrics", ""))
        return MetricSubscription(metrics, interval_ms, _parse_match(overrides.get("match", "")))

    @classmethod
    def describe(cls, overrides: Mapping[str, str], broker: BrokerConfig) -> list[ConfigEntry]:
        """Every setting of a subscription as DescribeConfigs answers it."""
        entries = []
        for setting in cls.settings:
            value, own = setting.default_text, overrides.get(setting.name)
            synonyms: tuple[ConfigSynonym, ...] = ()
            if own is not None:
                value = setting.format(setting.parse(own))
                synonyms = (ConfigSynonym(setting.name, value, ConfigSource.CLIENT_METRICS_CONFIG),)
            entries.append(ConfigEntry.of(setting, value, synonyms, read_only=False))
        return entries


def _parse_match(text: str) -> dict[str, LinearRegex]:
    found = {}
    for pattern in ClientMetricsConfig.by_name["match"].parse(text):
        parts = [java_trim(part) for part in pattern.split("=")]
        try:
            if len(parts) != 2 or not all(parts) or parts[0] not in CLIENT_PROPERTIES:
                raise ValueError
            found[parts[0]] = LinearRegex(parts[1])
        except ValueError:
            message = f"Illegal client matching pattern: {pattern}"
            raise KafkaError(ErrorCode.INVALID_CONFIG, message) from None
    return found
