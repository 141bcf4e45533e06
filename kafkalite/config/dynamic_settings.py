"""Changes of settings of a running broker: which are allowed, and whether for one broker or for all.

Keys and certificates change for one listener at a time; listeners, connections and logins for one broker at a time.
Listeners are added and removed; one that stays keeps its protocol, and its address until the next start.
A name that no broker knows is kept, as Kafka keeps it for plugins, and so is a setting of topics.
Source: kafka.server.DynamicBrokerConfig (DynamicSecurityConfigs, PerBrokerConfigs, DynamicListenerConfig), KIP-226.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.idle_settings import java_refusal
from kafkalite.config.listeners import PREFIX

_WITH_LISTENER = re.compile(
    r"ssl\.(keystore\.(type|location|password|key|certificate\.chain)|key\.password"
    r"|truststore\.(type|location|password|certificates))\Z",
    re.ASCII,
)
_THREADS = (
    "log.cleaner.threads", "num.replica.fetchers", "num.network.threads", "num.recovery.threads.per.data.dir",
    "num.io.threads", "background.threads",
)  # fmt: skip
_OF_ONE_BROKER = ("advertised.listeners", "listeners", "listener.security.protocol.map", "principal.builder.class")
_OF_ONE_BROKER_BEGIN = ("ssl.", "sasl.", PREFIX)
_OF_ALL_TOO = ("max.connections", "max.connection.creation.rate")  # of a listener


def refusal(config: BrokerConfig, changed: Mapping[str, str], *, for_all: bool) -> str | None:
    """Why these settings cannot be changed while running, for one broker or `for_all`; None if they can."""
    fixed = [name for name in changed if not may_change(config, name)]
    if fixed:
        return f"Cannot update these configs dynamically: {', '.join(fixed)}"
    bare = [name for name in changed if _WITH_LISTENER.match(name)]
    if bare:
        return (
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"{', '.join(bare)}"
        )
    of_one = [name for name in changed if for_all and _is_of_one_broker(name)]
    if of_one:
        return f"Cannot update these configs at default cluster level, broker id must be specified: {', '.join(of_one)}"
    return next((why for name, text in changed.items() if (why := java_refusal(name, text))), None)


def conflict_between(new: BrokerConfig, now: BrokerConfig) -> str | None:
    """Why a running broker cannot change to these settings from those that it has now; None if it can."""
    for name in _THREADS:
        threads, before = int(new.text_of(name)), int(now.text_of(name))
        if not before // 2 <= threads <= before * 2:
            return f"{name}={threads} must not be less than half or more than double what it is now, {before}"
    protocols = {listener.name: listener.protocol for listener in now.listeners}
    for listener in new.listeners:
        before_it = protocols.get(listener.name, listener.protocol)
        if listener.protocol != before_it:
            return (
                f"the security protocol of listener {listener.name} stays {before_it} while the broker runs; add "
                f"another listener for {listener.protocol}, and remove this one"
            )
    return None


def may_change(config: BrokerConfig, name: str) -> bool:
    setting = config.setting_of(name)
    return setting.dynamic if setting is not None else not name.startswith(PREFIX)


def _is_of_one_broker(name: str) -> bool:
    if name.startswith(PREFIX) and name.endswith(_OF_ALL_TOO):
        return False
    return name in _OF_ONE_BROKER or name.startswith(_OF_ONE_BROKER_BEGIN)
