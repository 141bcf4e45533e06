"""Settings of quotas and of limits of connections, a base of `BrokerConfig`.

Names, types and defaults are Kafka 3.9's. The quotas themselves are given to users, clients and addresses while the
broker runs. `max.connections` and `max.connection.creation.rate` may be given for one listener as well, and limit it in
addition to all of them together.
Source: org.apache.kafka.server.config.QuotaConfigs, org.apache.kafka.network.SocketServerConfigs.
"""

# ruff: noqa: E501
# The table is wide, so that one setting stays one line.

from __future__ import annotations

from collections.abc import Mapping

from kafkalite.config.listeners import parse_host_limits
from kafkalite.config.security_settings import SecuritySettings
from kafkalite.config.settings import INT_MAX, integer, section, string


class QuotaSettings(SecuritySettings):
    """Values of the lines below."""

    # fmt: off
    _limits = section("Quotas and limits of connections")
    max_connections: int = integer(INT_MAX, "Connections at a time; others wait to be accepted. The inter-broker listener beside others may exceed it.", at_least=0, dynamic=True)
    max_connections_per_ip: int = integer(INT_MAX, "Connections at a time from one address; others are closed at once.", at_least=0, dynamic=True)
    max_connections_per_ip_overrides: Mapping[str, int] = string("", "Other limits for some addresses: host:count,...", convert=parse_host_limits, dynamic=True)
    max_connection_creation_rate: int = integer(INT_MAX, "New connections in a second; others wait to be accepted.", at_least=0, dynamic=True)
    quota_window_num: int = integer(11, "Windows over which the rates of clients and connections are measured.", at_least=1)
    quota_window_size_seconds: int = integer(1, "Length of such a window.", at_least=1)
    controller_quota_window_num: int = integer(11, "Windows whose partitions a client may create or delete at once.", at_least=1)
    controller_quota_window_size_seconds: int = integer(1, "Length of such a window.", at_least=1)
    # fmt: on
