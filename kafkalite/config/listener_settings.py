"""Settings of one listener: listener.name.NAME.SETTING, with the listener's name in lower case.

Only what concerns connections and their security may be given so, and what concerns SASL for one mechanism, too:
listener.name.outside.scram-sha-256.sasl.jaas.config. The most special one wins.
Source: org.apache.kafka.common.config.AbstractConfig.valuesWithPrefixOverride, kafka.server.DynamicListenerConfig.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping

from kafkalite.common.errors import ConfigError
from kafkalite.config.settings import Setting, quoted

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
            from kafkalite.config.known_properties import KNOWN, no_effect  # 350 names that most starts never need

            if base not in KNOWN:
                raise ConfigError(f"{quoted(name)}: {no_effect(base, settings)}")
            warnings.append(f"{name}: {no_effect(base, settings)}")
            continue
        try:
            setting.parse(text)
        except ValueError as fault:
            raise ConfigError(f"{name}={setting.shown(text)} {fault}") from None
    return warnings
