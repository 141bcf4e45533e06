"""Declarations of settings: one line in a class body, from which everything else is derived.

    class TopicConfig(Settings):
        segment_ms: int = long(604_800_000, "how long ...", at_least=1, broker="log.roll.ms log.roll.hours*3600000")

The left side is for Python (name, type), the right side for the operator: Kafka's type, default, bounds, meaning. The
property's name is the attribute's with dots. The metaclass takes the lines out of the class body, keeps them in
`settings` in the order of the file, and gives the class slots; instances are immutable.
Source: org.apache.kafka.common.config.ConfigDef (types, ranges), DescribeConfigsResponse (the numbers of types and
sources).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Any, Self

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import java_trim
from kafkalite.common.text import java_double

LONG_MAX = (1 << 63) - 1
INT_MAX = (1 << 31) - 1


class ConfigType(IntEnum):
    """A setting's type, as a number of DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """The source of a value, as a number of DescribeConfigs."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class ConfigSynonym(NamedTuple):
    """One source of a value; the first of an entry's synonyms decides."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One setting as DescribeConfigs answers it. `value` is None when unset or secret."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    type: ConfigType
    doc: str
    synonyms: tuple[ConfigSynonym, ...]

    @classmethod
    def of(
        cls, setting: Setting, value: str | None, synonyms: tuple[ConfigSynonym, ...], *, read_only: bool
    ) -> ConfigEntry:
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
        if setting.sensitive:
            value, synonyms = None, tuple(one._replace(value=None) for one in synonyms)
        return cls(setting.name, value, source, read_only, setting.sensitive, setting.type, setting.doc, synonyms)

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG


_INTEGER = re.compile(r"[+-]?[0-9]+\Z", re.ASCII)
_COMMA = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")
_DOUBLE = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\Z", re.ASCII)
_INTEGER_BITS = {ConfigType.INT: 32, ConfigType.SHORT: 16, ConfigType.LONG: 64}


class Setting:
    """One declared line. `parse` turns an operator's text into the value, `format` the value into text.

    `broker`: for a topic's setting, the broker's settings that give its default, with factors to this unit; the first
    that is set wins. `dynamic`: Kafka lets it be changed while the broker runs. `sample`: its value in the generated
    server.properties; None leaves the line commented out. `convert`: parses the text (and the default) instead.
    `dynamic_only`: not in Kafka's table of a broker's settings, so it is described only when it was set.
    `idle`: accepted and described, but without effect yet; a start that finds it set warns in one line. `unset`: the
    default is empty, and described to clients as null.
    """

    def __init__(
        self,
        type: ConfigType,
        default: Any,
        doc: str,
        *,
        at_least: float | None = None,
        at_most: float | None = None,
        one_of: tuple[str, ...] = (),
        broker: str = "",
        dynamic: bool = False,
        dynamic_only: bool = False,
        sample: str | None = None,
        convert: Callable[[str], Any] | None = None,
        idle: bool = False,
        unset: bool = False,
    ) -> None:
        self.attribute = self.name = self.section = ""  # given by the class that holds the line
        self.type = type
        self.default = convert(default) if convert is not None and default is not None else default
        self.default_text = None if unset else default if convert is not None else self.format(default)
        self.doc = doc
        self.at_least = at_least
        self.at_most = at_most
        self.one_of = one_of
        self.broker = tuple(_synonym(word) for word in broker.split())
        self.dynamic = dynamic
        self.dynamic_only = dynamic_only
        self.sample = sample
        self.convert = convert
        self.idle = idle
        self.sensitive = type is ConfigType.PASSWORD

    def parse(self, text: str) -> Any:
        """The value. Raises ValueError saying what is allowed, without repeating the name."""
        if self.convert is not None:
            return self.convert(text)
        value = self._read(java_trim(text))
        if value is None:
            raise ValueError(f"must be {self.allowed()}")
        return value

    def shown(self, text: str) -> str:
        """The text for a message; that of a secret is not repeated."""
        return "(hidden)" if self.sensitive else quoted(text)

    def _read(self, word: str) -> Any:
        """The value; None for a word that is not allowed."""
        kind = self.type
        if kind in _INTEGER_BITS:
            limit = 1 << (_INTEGER_BITS[kind] - 1)
            # the length is checked first: int() of millions of digits takes time, and no long has more than 20
            is_number = len(word) <= 40 and _INTEGER.match(word) and -limit <= int(word) < limit
            return int(word) if is_number and self._is_within_bounds(int(word)) else None
        if kind is ConfigType.DOUBLE:
            is_number = len(word) <= 400 and _DOUBLE.match(word) and abs(float(word)) != float("inf")
            return float(word) if is_number and self._is_within_bounds(float(word)) else None
        if kind is ConfigType.BOOLEAN:
            return {"true": True, "false": False}.get(word.lower())
        if kind is ConfigType.LIST:
            words = tuple(_COMMA.split(word)) if word else ()
            return words if not self.one_of or set(words) <= set(self.one_of) else None
        return word if not self.one_of or word in self.one_of else None

    def _is_within_bounds(self, value: float) -> bool:
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)

    def format(self, value: Any) -> str | None:
        """The value as Kafka's tools print it; None stays None (unset)."""
        if value is None:
            return None
        if value is True or value is False:
            return "true" if value else "false"
        if isinstance(value, float):
            return java_double(value)
        if isinstance(value, tuple):
            return ",".join(map(str, value))
        if isinstance(value, dict):
            return ",".join(f"[{key}]:{item}" if ":" in key else f"{key}:{item}" for key, item in value.items())
        return str(value)

    def allowed(self) -> str:
        """The valid values in words: "an integer from 0 to 9", "one of: a, b"."""
        if self.one_of:
            kind = "a comma-separated list of" if self.type is ConfigType.LIST else "one of"
            return f"{kind}: {', '.join(self.one_of)}"
        if self.type is ConfigType.BOOLEAN:
            return "true or false"
        bits = _INTEGER_BITS.get(self.type)
        if bits is None and self.type is not ConfigType.DOUBLE:
            return ""
        noun = "an integer" if bits else "a number"
        low, high = self.at_least, self.at_most
        if bits and high is None:
            high = (1 << (bits - 1)) - 1
        if high is None or high == LONG_MAX:
            return noun if low is None else f"{noun} of at least {low}"
        return f"{noun} of at most {high}" if low is None else f"{noun} from {low} to {high}"


def _synonym(word: str) -> tuple[str, int]:
    name, _, factor = word.partition("*")
    return name, int(factor or 1)


class Section(str):
    """A heading in a class body, for the lines that follow."""


class SettingsType(type):
    """Takes the declared lines out of a class body and gives the class slots of their names instead. Inherited lines
    come after the class's own."""

    settings: tuple[Setting, ...]
    by_name: dict[str, Setting]

    def __new__(mcs, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> SettingsType:
        title = ""
        settings = []
        for attribute, value in list(body.items()):
            if isinstance(value, Section):
                title = value
                del body[attribute]
            elif isinstance(value, Setting):
                value.attribute = attribute
                value.name = attribute.replace("_", ".")
                value.section = title
                settings.append(value)
                del body[attribute]
        body["__slots__"] = (*body.get("__slots__", ()), *(setting.attribute for setting in settings))
        cls = super().__new__(mcs, name, bases, body)
        inherited = [setting for base in bases for setting in getattr(base, "settings", ())]
        cls.settings = (*settings, *inherited)
        cls.by_name = {setting.name: setting for setting in cls.settings}
        return cls


class Settings(metaclass=SettingsType):
    """Values of declared lines: `Config(retention_ms=5)` is every default but one. Immutable, compared by value."""

    def __init__(self, **values: Any) -> None:
        for setting in type(self).settings:
            object.__setattr__(self, setting.attribute, values.pop(setting.attribute, setting.default))
        if values:
            raise TypeError(f"{type(self).__name__} has no setting {', '.join(sorted(values))}")

    def replace(self, **values: Any) -> Self:
        """A copy with some values changed."""
        return type(self)(**{**self.values(), **values})

    def values(self) -> dict[str, Any]:
        """Every setting by attribute."""
        return {setting.attribute: getattr(self, setting.attribute) for setting in type(self).settings}

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} does not change; make another with replace({name}=...)")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.values() == self.values()

    def __repr__(self) -> str:
        changed = (
            f"{s.attribute}={'(hidden)' if s.sensitive else repr(getattr(self, s.attribute))}"
            for s in type(self).settings
            if getattr(self, s.attribute) != s.default
        )
        return f"{type(self).__name__}({', '.join(changed)})"


# The functions of declarations return Any, so that `retention_ms: int = long(...)` reads and checks as an int. Their
# arguments are those of Setting without the type.
_Declaration = Callable[..., Any]
section: _Declaration = Section
boolean: _Declaration = partial(Setting, ConfigType.BOOLEAN)
string: _Declaration = partial(Setting, ConfigType.STRING)
integer: _Declaration = partial(Setting, ConfigType.INT)
short: _Declaration = partial(Setting, ConfigType.SHORT)
long: _Declaration = partial(Setting, ConfigType.LONG)
double: _Declaration = partial(Setting, ConfigType.DOUBLE)
words: _Declaration = partial(Setting, ConfigType.LIST)
password: _Declaration = partial(Setting, ConfigType.PASSWORD)  # a string that is never shown
java_class: _Declaration = partial(Setting, ConfigType.CLASS)  # a name that stands for something of ours


def quoted(text: str) -> str:
    """A value for a message: on one line of limited length."""
    line = text.encode("unicode_escape").decode("ascii")
    return f"'{line}'" if len(line) <= 80 else f"'{line[:77]}...'"
