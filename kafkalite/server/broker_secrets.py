"""Secrets among the settings of brokers that are changed while running, as they are kept.

In ZooKeeper they are encrypted with password.encoder.secret, as Apache Kafka's brokers and kafka-configs --zookeeper do
it, and only for single brokers: others may have another secret. The journal of a broker by itself, which only its owner
can read, has them as they are.
Source: kafka.server.DynamicBrokerConfig (toPersistentProps, fromPersistentProps, maybeReEncodePasswords).
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Mapping

from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.security.password_encoder import DEFAULT_KEY_FACTORY, KEY_BITS, PasswordEncoder

logger = logging.getLogger(__name__)


class BrokerSecrets:
    """`is_secret` tells by its name whether a setting is one. Raises ConfigError if none can be encrypted here."""

    def __init__(self, config: BrokerConfig, is_secret: Callable[[str], bool]) -> None:
        self._is_secret = is_secret
        self._encoder = _encoder(config, config.password_encoder_secret)
        self._old_encoder = _encoder(config, config.password_encoder_old_secret)
        self._known: dict[str, str | None] = {}  # what was decoded last, by its text; None is not understood

    def opened(self, kept: Mapping[str, str]) -> dict[str, str]:
        """The settings as they count; a secret that cannot be decoded is left out, with an error in the log."""
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
        """The settings as they are to be kept in place of `kept`. What is as before keeps its text, and
        what could not be decoded is gone. Raises ConfigError."""
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
        """The settings with the secrets of password.encoder.old.secret encoded anew; None if there are none."""
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
