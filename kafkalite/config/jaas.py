"""JAAS configuration, as sasl.jaas.config and the file of java.security.auth.login.config have it.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b" user_a="b";

Words are quoted by " or ', with the escapes of C; comments are those of Java. A bare word has letters, digits and ._$-
and begins with no digit.
The login module of a listener and mechanism stands in sasl.jaas.config or in a JAAS file. Apache Kafka gets the file by
-Djava.security.auth.login.config, which its scripts read from KAFKA_OPTS; here that variable counts, too, and a setting
of that name. A section LISTENER.KafkaServer comes before KafkaServer; of its modules the one for the mechanism counts.
Source: org.apache.kafka.common.security.{JaasConfig, JaasContext}, java.io.StreamTokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kafkalite.common.errors import ConfigError
from kafkalite.common.named_tuple import NamedTuple

if TYPE_CHECKING:
    from kafkalite.config.broker_config import BrokerConfig

_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<quoted>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<word>[A-Za-z_$][A-Za-z0-9._$-]*)
    |(?P<sign>[={};])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}
_ESCAPE = re.compile(r"\\([0-7]{1,3}|.)", re.DOTALL)


class LoginModule(NamedTuple):
    """One line. `options` hold secrets, and are not shown."""

    name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name})"


def parse_jaas(text: str) -> LoginModule:
    """The one module of sasl.jaas.config. Raises ValueError, which repeats no value."""
    tokens = list(_tokens(text))
    module, rest = _module(tokens)
    if rest:
        raise ValueError("must have exactly one login module, ended by ;")
    return module


def parse_jaas_file(text: str) -> dict[str, tuple[LoginModule, ...]]:
    """The modules of each section: NAME { MODULE ...; MODULE ...; };. Raises ValueError, which repeats no value."""
    tokens = list(_tokens(text))
    sections: dict[str, tuple[LoginModule, ...]] = {}
    while tokens:
        if len(tokens) < 2 or tokens[0][0] == "sign" or tokens[1] != ("sign", "{"):
            raise ValueError("must have sections: NAME { MODULE FLAG KEY=VALUE ...; };")
        name, tokens = tokens[0][1], tokens[2:]
        modules = []
        while tokens and tokens[0] != ("sign", "}"):
            module, tokens = _module(tokens)
            modules.append(module)
        if tokens[:2] != [("sign", "}"), ("sign", ";")]:
            raise ValueError(f"must end the section {name[:60]} with }};")
        if name in sections:
            raise ValueError(f"must have the section {name[:60]} once")
        sections[name], tokens = tuple(modules), tokens[2:]
    return sections


def plain_users(module: LoginModule) -> dict[str, str]:
    """The passwords of the users that a PlainLoginModule has: user_NAME="PASSWORD"."""
    return {key.removeprefix("user_"): value for key, value in module.options.items() if key.startswith("user_")}


def _module(tokens: list[tuple[str, str]]) -> tuple[LoginModule, list[tuple[str, str]]]:
    if len(tokens) < 3 or tokens[0][0] != "word" or tokens[1][1].lower() not in _FLAGS:
        raise ValueError(f"must be MODULE FLAG KEY=VALUE ...; with one of the flags {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    at = 2
    while at < len(tokens) and tokens[at] != ("sign", ";"):
        part = tokens[at : at + 3]
        if len(part) < 3 or part[0][0] == "sign" or part[1] != ("sign", "=") or part[2][0] == "sign":
            raise ValueError("must have KEY=VALUE after the flag, and a ; at its end")
        options[part[0][1]] = part[2][1]
        at += 3
    if at == len(tokens):
        raise ValueError("must end with ;")
    return LoginModule(tokens[0][1], options), tokens[at + 1 :]


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError(f"has something that must be quoted at position {at}")
        at = found.end()
        kind = found.lastgroup or ""
        if kind == "quoted":
            yield kind, _ESCAPE.sub(_unescaped, found[0][1:-1])
        elif kind != "space":
            yield kind, found[0]


def _unescaped(escape: re.Match[str]) -> str:
    text = escape[1]
    return chr(int(text, 8) & 0xFF) if text[0] in "01234567" else _ESCAPES.get(text, text)


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
