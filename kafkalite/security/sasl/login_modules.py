"""The login module of a listener and mechanism, wherever it stands: in sasl.jaas.config, or in a JAAS file.

Apache Kafka gets the file by -Djava.security.auth.login.config, which its scripts take from KAFKA_OPTS; here that
variable counts, too, and a setting of that name. A section LISTENER.KafkaServer comes before KafkaServer; of its
modules the one for the mechanism counts.
Source: org.apache.kafka.common.security.JaasContext.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.security.sasl.jaas import LoginModule, parse_jaas, parse_jaas_file

FILE_SETTING = "java.security.auth.login.config"
_FILE_BYTES_MAX = 1 << 20
_SERVER = "KafkaServer"
_CLASSES = {"PLAIN": "PlainLoginModule", "OAUTHBEARER": "OAuthBearerLoginModule", "GSSAPI": "Krb5LoginModule"}
_SCRAM_CLASS = "ScramLoginModule"


class FoundModule(NamedTuple):
    """`where` names its place in messages."""

    module: LoginModule
    where: str


def property_of(listener: str, mechanism: str) -> str:
    """The name of the property where the module would stand."""
    return f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"


def login_module(config: BrokerConfig, listener: str, mechanism: str) -> FoundModule | None:
    """None if there is none. Raises ConfigError for one that makes no sense."""
    text = config.listener_setting(listener, "sasl.jaas.config", mechanism)
    if text:
        name = property_of(listener, mechanism)
        try:
            return FoundModule(parse_jaas(text), name)
        except ValueError as fault:
            raise ConfigError(f"{name} {fault}") from None
    sections = jaas_sections(config)
    for name in (f"{listener.lower()}.{_SERVER}", _SERVER):
        if name in sections:
            ending = _CLASSES.get(mechanism, _SCRAM_CLASS)
            module = next((each for each in sections[name] if each.name.endswith(ending)), None)
            where = f"section {name} of {FILE_SETTING}={config.java_security_auth_login_config}"
            return None if module is None else FoundModule(module, where)
    return None


def jaas_sections(config: BrokerConfig) -> Mapping[str, tuple[LoginModule, ...]]:
    """The sections of the file; none without a file. Raises ConfigError."""
    path = config.java_security_auth_login_config
    if path is None:
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_FILE_BYTES_MAX + 1)
        if len(text) > _FILE_BYTES_MAX:
            raise ValueError(f"is larger than {_FILE_BYTES_MAX} bytes")
        return parse_jaas_file(text)
    except OSError as fault:
        raise ConfigError(f"{FILE_SETTING}={path} cannot be read: {fault.strerror or fault}") from None
    except ValueError as fault:  # a UnicodeDecodeError is one
        raise ConfigError(f"{FILE_SETTING}={path} {fault}") from None
