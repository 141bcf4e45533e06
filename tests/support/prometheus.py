"""A strict reader of the Prometheus text format, for tests: whatever the format does not allow is an AssertionError.

Stricter than a scraper in what is good manners: every metric has one HELP and one TYPE line in front of its samples,
samples of a metric stand together, and none is told twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)\Z")
_PAIR = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(?:,|\Z)')
_VALUE = re.compile(r"(?:[+-]?Inf|NaN|[+-]?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)\Z")
_COUNTERS = ("_total", "_count", "_sum", "_bucket")
_ESCAPE = re.compile(r'\\([\\"n])')

Labels = frozenset[tuple[str, str]]


@dataclass
class Family:
    kind: str
    help: str
    samples: dict[Labels, float] = field(default_factory=dict)


def parse(text: str) -> dict[str, Family]:
    """Metrics by name."""
    assert text == "" or text.endswith("\n"), "the last line ends too"
    families: dict[str, Family] = {}
    about: tuple[str, str] | None = None
    current = ""
    for line in text.split("\n")[:-1]:
        if line.startswith("# HELP "):
            _, _, name, said = line.split(" ", 3)
            assert name not in families, f"{name} comes a second time"
            about = name, said
        elif line.startswith("# TYPE "):
            _, _, current, kind = line.split(" ")
            assert about is not None and about[0] == current, f"HELP stands in front of TYPE: {line}"
            assert kind in ("counter", "gauge"), line
            assert current.endswith(_COUNTERS) if kind == "counter" else current[-6:] != "_total", line
            families[current] = Family(kind, _plain(about[1]))
        else:
            found = _SAMPLE.match(line)
            assert found is not None and found[1] == current, f"not a sample of {current}: {line}"
            assert _VALUE.match(found[3]), line
            labels = _labels(found[2])
            assert labels not in families[current].samples, f"told twice: {line}"
            families[current].samples[labels] = float(found[3])
    assert all(family.samples for family in families.values())
    return families


def value(families: dict[str, Family], name: str, /, **labels: str) -> float:
    return families[name].samples[frozenset(labels.items())]


def _labels(text: str | None) -> Labels:
    if text is None:
        return frozenset()
    pairs = []
    at = 0
    while at < len(text):
        found = _PAIR.match(text, at)
        assert found is not None, f"not labels: {text[at:]}"
        pairs.append((found[1], _plain(found[2])))
        at = found.end()
    assert len(dict(pairs)) == len(pairs), f"a label twice: {text}"
    return frozenset(pairs)


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], text)
