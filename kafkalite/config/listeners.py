"""Listeners: addresses to accept connections at, advertised addresses for clients to dial, settings of one listener.

A listener is written NAME://HOST:PORT. An empty host binds every interface; an IPv6 host is in brackets.
listener.security.protocol.map gives the security protocol of a name. A setting of connections and their security may be
given for one listener, listener.name.NAME.SETTING with the name in lower case, and one of SASL for one mechanism, too:
listener.name.outside.scram-sha-256.sasl.jaas.config. The most special one wins.
Source: org.apache.kafka.network.SocketServerConfigs, kafka.utils.CoreUtils.listenerListToEndPoints,
org.apache.kafka.common.config.AbstractConfig.valuesWithPrefixOverride, kafka.server.DynamicListenerConfig.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

from kafkalite.common.errors import ConfigError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.config.settings import Setting, quoted

LOOPBACK_OF = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
"""The address of this machine for each host of a listener that stands for every address."""
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LISTENER = re.compile(r"([A-Za-z0-9_.-]+)://(?:\[([0-9a-zA-Z%._:-]+)\]|([0-9a-zA-Z%._:-]*)):([0-9]{1,5})\Z", re.ASCII)
_PAIR = re.compile(r"\s*([^\s:,]+)\s*:\s*([^\s:,]+)\s*\Z")
_IPV4 = re.compile(r"[0-9]+(\.[0-9]+){3}\Z", re.ASCII)


class ListenerConfig(NamedTuple):
    """One address. An empty `host` is every interface; an advertised listener always has one."""

    name: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"

    @property
    def address(self) -> str:
        """host:port, as bootstrap.servers wants it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_listeners(text: str) -> tuple[ListenerConfig, ...]:
    """The listeners of a comma-separated list, protocols not yet looked up. Raises ValueError naming a bad one."""
    listeners = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        found = _LISTENER.match(part)
        if found is None:
            raise ValueError(f"must be a list of NAME://HOST:PORT, and '{part}' is not")
        if int(found[4]) > 65535:
            raise ValueError(f"must have ports from 0 to 65535, and '{part}' has not")
        listeners.append(ListenerConfig(found[1].upper(), found[2] or found[3], int(found[4])))
    return tuple(listeners)


def parse_metrics_listener(text: str) -> str:
    """HOST:PORT as it was given, or the empty string. Raises ValueError saying what is allowed."""
    address = text.strip()
    found = _LISTENER.match(f"METRICS://{address}")
    if address and (found is None or int(found[4]) > 65535):
        raise ValueError("must be HOST:PORT, such as 127.0.0.1:9404, or empty")
    return address


def metrics_listener(address: str) -> ListenerConfig:
    """The listener for an address that `parse_metrics_listener` has accepted and that is not empty."""
    return parse_listeners(f"METRICS://{address}")[0]


def parse_protocol_map(text: str) -> dict[str, str]:
    """The protocols of NAME:PROTOCOL pairs. Raises ValueError naming a bad one."""
    protocols: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        found = _PAIR.match(part)
        if found is None or found[2].upper() not in PROTOCOLS:
            raise ValueError(f"must be a list of NAME:PROTOCOL with one of {', '.join(PROTOCOLS)}, and '{part}' is not")
        if found[1].upper() in protocols:
            raise ValueError(f"must name each listener once, and '{found[1]}' stands twice")
        protocols[found[1].upper()] = found[2].upper()
    return protocols


def parse_host_limits(text: str) -> dict[str, int]:
    """The host:count pairs of max.connections.per.ip.overrides. Raises ValueError naming a bad one."""
    limits: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, colon, count = part.rpartition(":")
        host = host.strip().removeprefix("[").removesuffix("]")
        if not colon or not host or not (count.strip().isascii() and count.strip().isdigit()) or len(count) > 10:
            raise ValueError(f"must be a list of host:count, and '{part}' is not")
        limits[host] = int(count)
    return limits


def with_protocols(listeners: tuple[ListenerConfig, ...], protocols: Mapping[str, str]) -> tuple[ListenerConfig, ...]:
    """The listeners with their security protocols. Raises ValueError for one without."""
    result = []
    for listener in listeners:
        protocol = protocols.get(listener.name)
        if protocol is None:
            raise ValueError(
                f"the listener {listener.name} has no security protocol; "
                f"add {listener.name}:PLAINTEXT to listener.security.protocol.map"
            )
        result.append(listener._replace(protocol=protocol))
    return tuple(result)


def resolve_listeners(
    given: Mapping[str, str],
    values: dict[str, Any],
    settings: Mapping[str, Setting],
    warnings: list[str],
    may_wait: Container[str] = (),
) -> None:
    """Sets protocols, leaves out KRaft's controller listeners (one warning each), checks that the rest fits together.

    `given` is the operator's text for messages; `values` the parsed settings, changed in place; those that `may_wait`
    need not have a listener yet. Raises ConfigError.
    """
    protocols = values.get("listener_security_protocol_map") or settings["listener.security.protocol.map"].default
    controllers = {name.strip().upper() for name in given.get("controller.listener.names", "").split(",")}
    for name in ("listeners", "advertised.listeners"):
        attribute = name.replace(".", "_")
        listeners = values.get(attribute, settings[name].default)
        for listener in listeners:
            if listener.name in controllers and name == "listeners":
                warnings.append(
                    f"{name}: {listener} is left out, it is for a KRaft controller and kafkalite needs none"
                )
        try:
            kept = with_protocols(tuple(each for each in listeners if each.name not in controllers), protocols)
        except ValueError as fault:
            raise ConfigError(f"{name}={given.get(name, '')}: {fault}") from None
        values[attribute] = kept
    bound = {(listener.name, listener.port) for listener in values["listeners"]}
    values["advertised_listeners"] = tuple(  # NAME://:PORT adds nothing: the client has connected to it
        each for each in values["advertised_listeners"] if each.host or (each.name, each.port) not in bound
    )
    fault_text = _listener_fault(
        values["listeners"], values["advertised_listeners"], values.get("inter_broker_listener_name")
    )
    fault_text = fault_text or _inter_broker_fault(given, values)
    if fault_text:
        raise ConfigError(fault_text)
    names = {listener.name for listener in values["listeners"]}
    warnings += check_listener_settings(given, names, controllers - {""}, settings, may_wait)


def _inter_broker_fault(given: Mapping[str, str], values: Mapping[str, Any]) -> str | None:
    """Brokers of a cluster meet at a listener that is named, or has the name of its protocol, or is PLAINTEXT."""
    name, protocol = values.get("inter_broker_listener_name"), given.get("security.inter.broker.protocol")
    listeners: tuple[ListenerConfig, ...] = values["listeners"]
    if name and protocol:
        return "inter.broker.listener.name and security.inter.broker.protocol say the same; set only one of them"
    names = [each.name for each in listeners]
    if protocol and protocol not in names:
        return (
            f"security.inter.broker.protocol={protocol} needs a listener of that name, and there are "
            f"{', '.join(names)}; set inter.broker.listener.name to one of them instead"
        )
    is_plain = any(each.protocol == "PLAINTEXT" for each in listeners)
    if values.get("zookeeper_connect") is not None and not (name or protocol or is_plain):
        return (
            "the brokers of a cluster speak PLAINTEXT with each other, and no listener is PLAINTEXT; set "
            f"inter.broker.listener.name={names[0]}"
        )
    return None


def _listener_fault(
    listeners: tuple[ListenerConfig, ...], advertised: tuple[ListenerConfig, ...], inter_broker: str | None
) -> str | None:
    names = {listener.name for listener in listeners}
    if not listeners:
        return "listeners leaves nothing to listen on; give at least one, such as PLAINTEXT://127.0.0.1:9092"
    bind = bind_fault(listeners)
    if bind:
        return f"listeners={','.join(map(str, listeners))}: {bind}"
    names_advertised = [listener.name for listener in advertised]
    for listener in advertised:
        if listener.host in ("0.0.0.0", "::", "0:0:0:0:0:0:0:0"):
            return (
                f"advertised.listeners={listener}: no client can dial {listener.host}; "
                "give a host name or address that clients reach"
            )
        if not listener.host:
            return f"advertised.listeners={listener} needs a host name or address that clients reach"
        if listener.port == 0:
            return f"advertised.listeners={listener}: no client can dial port 0; give the port that clients reach"
        if listener.name not in names:
            return (
                f"advertised.listeners={listener}: there is no such listener; listeners has {', '.join(sorted(names))}"
            )
        if names_advertised.count(listener.name) > 1:
            return f"advertised.listeners={listener}: each listener may be advertised once"
    if inter_broker and inter_broker.upper() not in names:
        return (
            f"inter.broker.listener.name={inter_broker} is none of the listeners; they are {', '.join(sorted(names))}"
        )
    return None


def bind_fault(listeners: tuple[ListenerConfig, ...]) -> str | None:
    """The reason why these cannot all be bound: a name or an address twice. One port may serve one IPv4 and one IPv6
    host."""
    names = [listener.name for listener in listeners]
    for name in names:
        if names.count(name) > 1:
            return f"each listener must have its own name, and {name} stands twice"
    for i, one in enumerate(listeners):
        for other in listeners[i + 1 :]:
            if one.port and one.port == other.port and _family(one.host) + _family(other.host) != 10:
                return f"each listener must have its own port, and {one.port} stands twice"
    return None


def _family(host: str) -> int:
    """4, 6, or 0 for a name or every interface. Only 4 and 6 add up to 10."""
    return 6 if ":" in host else 4 if _IPV4.match(host) else 0


PREFIX = "listener.name."
_PREFIXABLE = frozenset(
    (
        "principal.builder.class",
        "connections.max.reauth.ms",
        "max.connections",
        "max.connection.creation.rate",
        "num.network.threads",
    )
)
_BEGINNINGS = ("ssl.", "sasl.")
_OF_A_MECHANISM = re.compile(r"[a-z0-9_-]+\.((?:sasl\.|connections\.max\.reauth\.ms).*)\Z", re.ASCII)


def prefixes(listener_name: str, mechanism: str | None = None) -> Iterator[str]:
    """The beginnings of the properties for this listener, the most special one first."""
    listener = f"{PREFIX}{listener_name.lower()}."
    if mechanism is not None:
        yield f"{listener}{mechanism.lower()}."
    yield listener


def base_name(prefixed: str, listeners: Iterable[str]) -> str | None:
    """The setting that `prefixed` gives for one of `listeners`, perhaps for one mechanism; None if for none of them."""
    fitting = [start for name in listeners if prefixed.startswith(start := next(prefixes(name)))]
    if not fitting:
        return None
    rest = prefixed[len(max(fitting, key=len)) :]
    of_mechanism = _OF_A_MECHANISM.match(rest)
    return of_mechanism[1] if of_mechanism else rest


def base_name_for_any(prefixed: str) -> str | None:
    """The setting that `prefixed` gives for a listener that may come later; None if no listener could have it."""
    parts = prefixed.removeprefix(PREFIX).split(".")
    rests = (".".join(parts[i:]) for i in range(1, len(parts)))
    return next((rest for rest in rests if rest.startswith(_BEGINNINGS) or rest in _PREFIXABLE), None)


def check_listener_settings(
    given: Mapping[str, str],
    listeners: Iterable[str],
    ignored: Iterable[str],
    settings: Mapping[str, Setting],
    may_wait: Container[str] = (),
) -> list[str]:
    """Warnings for those that have no effect here. Raises ConfigError for one without a listener or with a value that
    is not allowed. `ignored` are the listeners of a KRaft controller; the listener of a setting that `may_wait` can be
    added, or was removed, while the broker runs."""
    warnings = []
    names, ignored = sorted(listeners), set(ignored)
    for name, text in given.items():
        if not name.startswith(PREFIX) or (ignored and base_name(name, ignored) is not None):
            continue
        base = base_name(name, names)
        if base is None and name in may_wait and base_name_for_any(name) is not None:
            warnings.append(f"{name} has no effect while there is no such listener; there are {', '.join(names)}")
            continue
        if base is None:
            raise ConfigError(
                f"{quoted(name)} belongs to no listener: `listeners` has {', '.join(names)}, and the name stands in "
                f"lower case, such as {next(prefixes(names[0]))}ssl.keystore.location"
            )
        setting = settings.get(base)
        if not base.startswith(_BEGINNINGS) and base not in _PREFIXABLE:
            raise ConfigError(
                f"{quoted(name)}: {quoted(base)} cannot be set for one listener; settings of ssl and sasl can, and "
                f"{', '.join(sorted(_PREFIXABLE))}"
            )
        if setting is None:
            from kafkalite.config.idle_settings import KNOWN, no_effect  # 180 names that most starts never need

            if base not in KNOWN:
                raise ConfigError(f"{quoted(name)}: {no_effect(base, settings)}")
            warnings.append(f"{name}: {no_effect(base, settings)}")
            continue
        try:
            setting.parse(text)
        except ValueError as fault:
            raise ConfigError(f"{name}={setting.shown(text)} {fault}") from None
    return warnings
