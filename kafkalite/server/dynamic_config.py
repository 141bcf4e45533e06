"""The broker's current settings: the settings of its start, overridden by dynamic changes.

Every change, whether made here, by another broker or by a tool, is written to the metadata and applied from there by a
listener. A client of this broker gets an error before anything is written. Changes by other writers are checked setting
by setting; an invalid one is ignored with a warning, since it may be meant for a broker of another kind.
Source: kafka.server.DynamicBrokerConfig, KIP-226.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.dynamic_settings import conflict_between, may_change
from kafkalite.metadata.cluster_metadata import CLUSTER_DEFAULT, Change, ClusterMetadata

if TYPE_CHECKING:
    from kafkalite.server.broker_secrets import BrokerSecrets

logger = logging.getLogger(__name__)


class DynamicBrokerConfig:
    """`now` are the settings; `apply` is called with them whenever they have changed."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: ClusterMetadata,
        broker_id: int,
        apply: Callable[[BrokerConfig], object],
        check: Callable[[BrokerConfig], Awaitable[object]] | None = None,
    ) -> None:
        """`check` raises ConfigError for settings with which this broker could not go on."""
        self.now = config
        self._metadata = metadata
        self._broker = str(broker_id)
        self._apply = apply
        self._check = check
        self._secrets: BrokerSecrets | None = None
        if metadata.is_shared:
            from kafkalite.server.broker_secrets import BrokerSecrets  # a broker by itself needs no encryption

            self._secrets = BrokerSecrets(config, self._is_secret)
        self._one_by_one = asyncio.Lock()
        self._first = dict(metadata.broker_configs)
        self.now = self._build_leniently(self._first)

    def follow(self) -> Callable[[], None]:
        """Apply changes from now on, and those that others have made since the settings were read: loading the logs
        may take minutes. Returns a function that ends this."""
        unlisten = self._metadata.listen(self._on_change)
        if self._metadata.broker_configs != self._first:
            self._on_change(Change.BROKER_CONFIG, self._broker)
        return unlisten

    async def change(
        self, broker: str, change: Callable[[Mapping[str, str]], dict[str, str]], validate_only: bool
    ) -> None:
        """Replace the dynamic settings of `broker` by the result of `change`. Raises ConfigError if they are invalid;
        then nothing has changed."""
        async with self._one_by_one:
            configs = self._metadata.broker_configs
            kept = configs.get(broker, {})
            settings = change(self._opened(kept))
            new = self._build(settings, configs.get(CLUSTER_DEFAULT, {}))
            if broker == CLUSTER_DEFAULT:
                new = self._build(self._opened(configs.get(self._broker, {})), settings)
            if broker in (CLUSTER_DEFAULT, self._broker) and (conflict := conflict_between(new, self.now)):
                raise ConfigError(conflict)
            if broker in (CLUSTER_DEFAULT, self._broker) and self._check is not None:
                await self._check(new)
            if self._secrets is not None:
                settings = self._secrets.sealed(settings, kept, of_all=broker == CLUSTER_DEFAULT)
            if not validate_only:
                await self._metadata.writes.set_broker_config(broker, settings)

    async def renew_secrets(self) -> None:
        """Encrypt anew what password.encoder.old.secret has encrypted."""
        kept = self._metadata.broker_configs.get(self._broker, {})
        if self._secrets is not None and (renewed := self._secrets.renewed(kept)) is not None:
            await self._metadata.writes.set_broker_config(self._broker, renewed)
            self.now = self._build_leniently(self._metadata.broker_configs)
            self._first = dict(self._metadata.broker_configs)

    def _opened(self, kept: Mapping[str, str]) -> Mapping[str, str]:
        return kept if self._secrets is None else self._secrets.opened(kept)

    def _is_secret(self, name: str) -> bool:
        setting = self.now.setting_of(name)
        return setting is not None and setting.sensitive

    def _on_change(self, change: Change, broker: str) -> None:
        if change is Change.BROKER_CONFIG and broker in (CLUSTER_DEFAULT, self._broker):
            before, self.now = self.now, self._build_leniently(self._metadata.broker_configs)
            for warning in dict.fromkeys(self.now.warnings):
                if warning not in before.warnings:
                    logger.warning("%s", warning)
            self._apply(self.now)

    def _build_leniently(self, changed: Mapping[str, Mapping[str, str]]) -> BrokerConfig:
        """The settings with the changes for all brokers, and then for this one, on top."""
        own, of_all = self._opened(changed.get(self._broker, {})), changed.get(CLUSTER_DEFAULT, {})
        if not (own or of_all or self.now.dynamic or self.now.dynamic_default):
            return self.now
        try:
            return self._build(own, of_all)
        except ConfigError as fault:
            logger.warning("a setting that was changed while running has no effect on this broker: %s", fault)
        return self._build(self._understood(own), self._understood(of_all))

    def _build(self, own: Mapping[str, str], of_all: Mapping[str, str]) -> BrokerConfig:
        return BrokerConfig.load(self.now.explicit, self._dynamic(own), self._dynamic(of_all))

    def _understood(self, settings: Mapping[str, str]) -> dict[str, str]:
        """The settings that this broker can have, tried one after another."""
        understood: dict[str, str] = {}
        for name, text in settings.items():
            try:
                self._build({**understood, name: text}, {})
            except ConfigError:
                continue
            understood[name] = text
        return understood

    def _dynamic(self, settings: Mapping[str, str]) -> dict[str, str]:
        """The settings that may be changed while running; others were written by mistake."""
        return {name: text for name, text in settings.items() if may_change(self.now, name)}
