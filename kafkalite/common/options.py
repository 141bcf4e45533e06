"""Options that are given as text under names of any case, each declared once: name, values, default, meaning.

Reading, errors and the tables of the documents come from the declarations. An error names the option, its value and the
values that are allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafkalite.common.errors import ConfigError
from kafkalite.common.named_tuple import NamedTuple

_NUMBER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_SIZE = re.compile(r"([0-9]{1,15})\s*([kmg]?)b?")
_SIZES = {"": 0, "k": 10, "m": 20, "g": 30}
_TIME = re.compile(r"([0-9]{1,12})\s*(us|ms|s|m|min|h|d|)")
_TIMES_MS = {"us": 0.001, "ms": 1, "": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class Values(NamedTuple):
    """The values of an option in words, and a function from a text (lower case, without blanks around it) to the value,
    None if it is not allowed."""

    allowed: str
    parse: Callable[[str], Any]


class Option(NamedTuple):
    """One option. `values` are words alone for one that is read together with others. `default` is text, "" if there is
    none; `attribute` is the name among the values of `read`."""

    name: str
    values: Values | str
    default: str
    meaning: str
    attribute: str = ""

    @property
    def allowed(self) -> str:
        return self.values if isinstance(self.values, str) else self.values.allowed

    def read(self, text: str | None) -> Any:
        """The value of a text, of the default for None; None without either. Raises ConfigError."""
        text = self.default or None if text is None else text
        if text is None or isinstance(self.values, str):
            return text
        if (value := self.values.parse(text.strip().lower())) is None:
            raise ConfigError(f"the option {self.name!r} is {text!r}; it may be {self.allowed}")
        return value


def one_of(values: Mapping[str, Any]) -> Values:
    """Words and their values."""
    words = list(values)
    return Values(" or ".join(words) if len(words) == 2 else ", ".join(words), values.get)


def number(at_least: int | None = 1, at_most: int | None = None) -> Values:
    def parse(text: str) -> int | None:
        value = int(text) if _NUMBER.fullmatch(text) else None
        if value is None or (at_least is not None and value < at_least) or (at_most is not None and value > at_most):
            return None
        return value

    if at_least is None:
        return Values("a whole number", parse)
    return Values(f"a number from {at_least} {'on' if at_most is None else f'to {at_most}'}", parse)


def _bytes(text: str) -> int | None:
    found = _SIZE.fullmatch(text)
    return int(found[1]) << _SIZES[found[2]] or None if found is not None else None


def _milliseconds(text: str) -> int | None:
    found = _TIME.fullmatch(text)
    return int(int(found[1]) * _TIMES_MS[found[2]]) if found is not None else None


FLAG = one_of({"true": True, "false": False})
SIZE = Values("a number of bytes such as 1048576, 512k or 64m", _bytes)
TIME = Values("a time such as 30s, 15m or 1h", _milliseconds)


def read(options: Iterable[Option], given: Mapping[str, str]) -> dict[str, Any]:
    """The values of those that have an attribute, by it; `given` are texts by lower-case names. Raises ConfigError."""
    return {one.attribute: one.read(given.get(one.name.lower())) for one in options if one.attribute}


def assignments(flag: str, texts: Iterable[str], example: str) -> dict[str, str]:
    """The values of KEY=VALUE, given by a flag of a command. Raises ConfigError."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{flag} {text} must be KEY=VALUE, such as {flag} {example}")
        found[key.strip()] = value
    return found


_BYTE_FACTORS = {
    "b": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "tb": 1000**4,
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}  # fmt: skip
_MS_FACTORS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PLAIN = r"[+-]?[0-9.]+(?:e[+-]?[0-9]+)?"  # not compiled by every start of a broker
_PART = r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([a-z]+)\s*"
_OF_BYTES, _OF_MS = r"(^|[._])bytes?([._]|$)|\.size$", r"(^|[._])ms$"


def in_own_unit(setting: str, text: str) -> str:
    """The value of a setting of Kafka in the unit of its name: `1d` of retention.ms is 86400000, `64MiB` of
    segment.bytes 67108864, and `1h 30min` a sum. Plain numbers, and settings in no such unit, stay. Raises ConfigError.

    The console has the same rule (`static/parts/units.js`)."""
    if re.search(_OF_MS, setting):
        factors, example = _MS_FACTORS, "86400000, 1d or 1h30min"
    elif re.search(_OF_BYTES, setting):
        factors, example = _BYTE_FACTORS, "1048576 or 64MiB"
    else:
        return text
    value = text.strip().lower()
    if not value or re.fullmatch(_PLAIN, value):
        return text
    parts = list(re.finditer(_PART, value))
    if "".join(each[0] for each in parts) != value or any(each[2] not in factors for each in parts):
        raise ConfigError(f"{setting}={text} must be a number, perhaps with a unit: {example}")
    return str(round(sum(float(each[1]) * factors[each[2]] for each in parts)))


def settings_of_flag(flag: str, texts: Iterable[str], example: str) -> dict[str, str]:
    """As `assignments`, for settings of Kafka, whose values may have units. Raises ConfigError."""
    return {name: in_own_unit(name, text) for name, text in assignments(flag, texts, example).items()}


def unknown(name: str, known: Iterable[str], purpose: str = "") -> ConfigError:
    """The error for a name that is none of `known`; it names the nearest."""
    import difflib  # 3 ms, which no start of a broker pays

    by_lower = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), by_lower, 1)
    hint = f"did you mean {by_lower[close[0]]!r}?" if close else f"known are {', '.join(by_lower.values())}"
    return ConfigError(f"the format 'kafkalite' has no option {name!r}{purpose}; {hint}")


def as_table(options: Iterable[Option]) -> str:
    """The options as a table in Markdown."""
    lines = ["| option | values | default | meaning |", "|---|---|---|---|"]
    for one in options:
        cells = (one.allowed, one.default or "-", one.meaning)
        lines.append(" | ".join((f"| `{one.name}`", *(cell.replace("*", r"\*") for cell in cells))) + " |")
    return "\n".join(lines)
