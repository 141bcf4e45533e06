"""The broker's current settings: the settings of its start, overridden by dynamic changes.

Every change, whether made here, by another broker or by a tool, is written to the metadata and applied from there by a
listener. A client of this broker gets an error before anything is written. Changes by other writers are checked setting
by setting; an invalid one is ignored with a warning, since it may be for brokers of another kind.

Secrets are encrypted in ZooKeeper with password.encoder.secret, as Apache Kafka's brokers and kafka-configs --zookeeper
do it, and only for single brokers: others may have another secret. The journal of a single broker, which only its owner
can read, has them as they are.
Source: kafka.server.DynamicBrokerConfig (toPersistentProps, fromPersistentProps, maybeReEncodePasswords), KIP-226.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.dynamic_settings import conflict_between, may_change
from kafkalite.metadata.cluster_metadata import CLUSTER_DEFAULT, Change, ClusterMetadata

if TYPE_CHECKING:
    from kafkalite.config.password_encoder import PasswordEncoder

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
        """`check` raises ConfigError for settings with which this broker could not continue."""
        self.now = config
        self._metadata = metadata
        self._broker = str(broker_id)
        self._apply = apply
        self._check = check
        self._secrets = BrokerSecrets(config, self._is_secret) if metadata.is_shared else None
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
        """Encrypt secrets of password.encoder.old.secret with the present one."""
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
        """The settings that are valid for this broker, each tried by itself."""
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


class BrokerSecrets:
    """`is_secret` recognizes a secret by its name. Raises ConfigError if none can be encrypted here."""

    def __init__(self, config: BrokerConfig, is_secret: Callable[[str], bool]) -> None:
        self._is_secret = is_secret
        self._encoder = _encoder(config, config.password_encoder_secret)
        self._old_encoder = _encoder(config, config.password_encoder_old_secret)
        self._known: dict[str, str | None] = {}  # the secrets decoded last, by their encoded text; None: not decodable

    def opened(self, kept: Mapping[str, str]) -> dict[str, str]:
        """The settings with decoded secrets; one that cannot be decoded is left out, with an error in the log."""
        known: dict[str, str | None] = {}
        result: dict[str, str] = {}
        for name, text in kept.items():
            if not self._is_secret(name):
                result[name] = text
                continue
            known[text] = self._known[text] if text in self._known else self._decoded(name, text)
            if (secret := known[text]) is not None:
                result[name] = secret
        self._known = known or self._known
        return result

    def sealed(self, settings: Mapping[str, str], kept: Mapping[str, str], *, of_all: bool) -> dict[str, str]:
        """The settings as they are to be kept in place of `kept`. An unchanged secret keeps its text; one that could
        not be decoded is removed. Raises ConfigError.
        """
        before = self.opened(kept)
        result = dict(settings)
        for name, text in settings.items():
            if not self._is_secret(name):
                continue
            if before.get(name) == text:
                result[name] = kept[name]
                continue
            if of_all:
                raise ConfigError(f"{name} is a secret: it can be set for single brokers, not for all together")
            if self._encoder is None:
                raise ConfigError(
                    f"{name} is a secret, which ZooKeeper keeps encrypted: set password.encoder.secret in "
                    "server.properties and start again; or give a PEM file, whose key needs no password"
                )
            result[name] = self._encoder.encode(text)
        return result

    def renewed(self, kept: Mapping[str, str]) -> dict[str, str] | None:
        """The settings with the secrets of password.encoder.old.secret encoded by the present one; None if there are
        none.
        """
        if self._old_encoder is None or self._encoder is None:
            return None
        result = dict(kept)
        for name, text in kept.items():
            if self._is_secret(name):
                try:
                    result[name] = self._encoder.encode(self._old_encoder.decode(text))
                except ValueError:
                    continue  # it has the new one already
        return result if result != kept else None

    def _decoded(self, name: str, text: str) -> str | None:
        if self._encoder is None:
            logger.error("%s was set while a broker ran, and password.encoder.secret is not: it has no effect", name)
            return None
        try:
            return self._encoder.decode(text)
        except ValueError as fault:
            logger.error("%s was set while a broker ran, and has no effect: %s", name, fault)
            return None


def _encoder(config: BrokerConfig, secret: str | None) -> PasswordEncoder | None:
    if not secret:
        return None
    from kafkalite.config.password_encoder import DEFAULT_KEY_FACTORY, KEY_BITS, PasswordEncoder

    if importlib.util.find_spec("cryptography") is None:
        raise ConfigError("password.encoder.secret needs the package cryptography; pip install 'kafkalite[security]'")
    if config.password_encoder_key_length not in KEY_BITS:
        raise ConfigError(
            f"password.encoder.key.length={config.password_encoder_key_length} must be one of "
            f"{', '.join(map(str, KEY_BITS))}, which are the keys of AES"
        )
    return PasswordEncoder(
        secret,
        config.password_encoder_cipher_algorithm,
        config.password_encoder_key_length,
        config.password_encoder_iterations,
        config.password_encoder_keyfactory_algorithm or DEFAULT_KEY_FACTORY,
    )
