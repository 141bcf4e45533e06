"""The broker's settings as they hold now: those that it was started with, and over them what was changed while running.

What is changed, here or by another broker or a tool, is written to the registry, and taken from there by its listener:
one way for all. Who asks here hears what is wrong before anything is written; what others write is looked at line by
line, and what cannot be is left out with a warning, since it may be meant for a broker of another kind.
Source: kafka.server.DynamicBrokerConfig, KIP-226.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.metadata.cluster_metadata import CLUSTER_DEFAULT, Change, ClusterMetadata

logger = logging.getLogger(__name__)


class DynamicBrokerConfig:
    """`now` is what holds. `apply` is called with it whenever it has changed."""

    def __init__(
        self, config: BrokerConfig, registry: ClusterMetadata, broker_id: int, apply: Callable[[BrokerConfig], object]
    ) -> None:
        self.now = config
        self._registry = registry
        self._broker = str(broker_id)
        self._apply = apply
        self._turn = asyncio.Lock()
        self.now = self._with(registry.broker_configs)

    def follow(self) -> Callable[[], None]:
        """Take what is changed from now on. Returns what ends that."""
        return self._registry.listen(self._heard)

    async def change(
        self, broker: str, change: Callable[[Mapping[str, str]], dict[str, str]], validate_only: bool
    ) -> None:
        """Make what was changed for `broker` while running what `change` makes of it. Raises ConfigError for what
        cannot be, and then nothing has changed."""
        async with self._turn:
            configs = self._registry.broker_configs
            settings = change(configs.get(broker, {}))
            new = self._strictly(settings, configs.get(CLUSTER_DEFAULT, {}))
            if broker == CLUSTER_DEFAULT:
                new = self._strictly(configs.get(self._broker, {}), settings)
            if broker in (CLUSTER_DEFAULT, self._broker) and (conflict := new.conflict_with(self.now)):
                raise ConfigError(conflict)
            if not validate_only:
                await self._registry.set_broker_config(broker, settings)

    def _heard(self, change: Change, broker: str) -> None:
        if change is Change.BROKER_CONFIG and broker in (CLUSTER_DEFAULT, self._broker):
            self.now = self._with(self._registry.broker_configs)
            self._apply(self.now)

    def _with(self, changed: Mapping[str, Mapping[str, str]]) -> BrokerConfig:
        """The settings with what was changed for all brokers, and then for this one, on top."""
        own, of_all = changed.get(self._broker, {}), changed.get(CLUSTER_DEFAULT, {})
        if not (own or of_all or self.now.dynamic or self.now.dynamic_default):
            return self.now
        try:
            return self._strictly(own, of_all)
        except ConfigError as fault:
            if not self._registry.is_shared:
                raise
            logger.warning("a setting that was changed while running has no effect on this broker: %s", fault)
        return self._strictly(self._understood(own), self._understood(of_all))

    def _strictly(self, own: Mapping[str, str], of_all: Mapping[str, str]) -> BrokerConfig:
        if self._registry.is_shared:
            own, of_all = _dynamic(own), _dynamic(of_all)
        return BrokerConfig.load(self.now.explicit, own, of_all)

    def _understood(self, settings: Mapping[str, str]) -> dict[str, str]:
        """As much of them as goes well, one after another."""
        understood: dict[str, str] = {}
        for name, text in settings.items():
            try:
                self._strictly({**understood, name: text}, {})
            except ConfigError:
                continue
            understood[name] = text
        return understood


def _dynamic(settings: Mapping[str, str]) -> dict[str, str]:
    """Those that may be changed while running, whatever else somebody wrote."""
    known = BrokerConfig.by_name
    return {name: text for name, text in settings.items() if name in known and known[name].dynamic}
