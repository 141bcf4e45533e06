"""The options of a read, checked when the DataFrame is made.

    path              the broker's data directory
    subscribe         topics, separated by commas      } exactly one
    subscribePattern  a regular expression for topics  } of
    assign            {"orders": [0, 1]}               } these
    startingOffsets   earliest (default), latest, or {"orders": {"0": 23, "1": -2}} with -2 earliest and -1 latest
    endingOffsets     latest (default), or {"orders": {"0": 50, "1": -1}}
    includeHeaders    false (default), true
    minPartitions     at least so many Spark partitions
    failOnDataLoss    true (default): offsets that are gone are an error; false: go on with what is there
    kafka.isolation.level   read_uncommitted (default), or read_committed: without the records of transactions that were
                      aborted, and up to the first record of the oldest one that is open

Names and meanings are those of Spark's own Kafka source, whose other `kafka.*` options are let pass unread: there is no
broker to connect to. Any other name is an error, so that a slip of the pen does not read the wrong thing.
Source: org.apache.spark.sql.kafka010.KafkaSourceProvider.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping

from kafkalite.common.errors import ConfigError
from kafkalite.reader.planning.read_options import EARLIEST, LATEST, Offsets, ReadOptions

_CHOICES = ("subscribe", "subscribePattern", "assign")
_ISOLATION = "kafka.isolation.level"
_NAMES = (
    "path", *_CHOICES, "startingOffsets", "endingOffsets", "includeHeaders", "minPartitions", "failOnDataLoss",
    _ISOLATION,
)  # fmt: skip

_STARTS = {"earliest": EARLIEST, "latest": LATEST}
_ENDS = {"latest": LATEST}


def parse_options(options: Mapping[str, str]) -> ReadOptions:
    """From Spark's options, whose names may have any case. Raises ConfigError that names the option and the fix."""
    values = {name.lower(): value for name, value in options.items()}
    for name in values:
        _check_name(name)
    path = values.get("path")
    if not path:
        raise ConfigError("set the option 'path' to the broker's data directory")
    chosen = [name for name in _CHOICES if name.lower() in values]
    if len(chosen) != 1:
        what = " and ".join(repr(name) for name in chosen) or "none"
        raise ConfigError(f"set exactly one of the options 'subscribe', 'subscribePattern' and 'assign'; found {what}")
    return ReadOptions(
        path,
        _topics(values.get("subscribe")),
        _pattern(values.get("subscribepattern")),
        _assigned(values.get("assign")),
        _offsets("startingOffsets", values.get("startingoffsets", "earliest"), _STARTS),
        _offsets("endingOffsets", values.get("endingoffsets", "latest"), _ENDS),
        _flag("includeHeaders", values.get("includeheaders", "false")),
        _count("minPartitions", values.get("minpartitions", "1")),
        _flag("failOnDataLoss", values.get("failondataloss", "true")),
        _read_committed(values.get(_ISOLATION, "read_uncommitted")),
    )


def _check_name(name: str) -> None:
    known = {known.lower(): known for known in _NAMES}
    if name in known or name.startswith("kafka."):
        return
    close = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {known[close[0]]!r}?" if close else f"known are {', '.join(_NAMES)}"
    raise ConfigError(f"the format 'kafkalite' has no option {name!r}; {hint}")


def _topics(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
    if not topics:
        raise ConfigError("the option 'subscribe' names no topic")
    return topics


def _pattern(text: str | None) -> str | None:
    if text is not None:
        try:
            re.compile(text)
        except re.error as error:
            raise ConfigError(f"the option 'subscribePattern' is no regular expression: {error}") from None
    return text


def _assigned(text: str | None) -> Mapping[str, tuple[int, ...]] | None:
    if text is None:
        return None
    wanted = _json("assign", text, '{"orders": [0, 1]}')
    assigned = {}
    for topic, partitions in wanted.items():
        if not isinstance(partitions, list) or not all(type(index) is int and index >= 0 for index in partitions):
            raise ConfigError(f"the option 'assign' must give a list of partitions for {topic!r}")
        assigned[topic] = tuple(dict.fromkeys(partitions))
    return assigned


def _offsets(name: str, text: str, words: Mapping[str, int]) -> Offsets:
    word = text.strip().lower()
    if word in words:
        return words[word]
    if not word.startswith("{"):
        raise ConfigError(f"the option {name!r} is {text!r}; it may be {', '.join(words)}, or offsets as JSON")
    least = min(words.values())
    offsets: dict[str, dict[int, int]] = {}
    for topic, partitions in _json(name, text, '{"orders": {"0": 23}}').items():
        if not isinstance(partitions, dict):
            raise ConfigError(f"the option {name!r} must give offsets by partition for {topic!r}")
        for partition, offset in partitions.items():
            if not partition.isdecimal() or type(offset) is not int or offset < least:
                raise ConfigError(f"the option {name!r} has {offset!r} for partition {partition!r} of {topic!r}")
            offsets.setdefault(topic, {})[int(partition)] = offset
    return offsets


def _json(name: str, text: str, example: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"the option {name!r} is no JSON ({error}); write it as {example}") from None
    if not isinstance(value, dict) or not value:
        raise ConfigError(f"the option {name!r} must be written as {example}")
    return value


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"the option {name!r} is {text!r}; it may be true or false")
    return text.lower() == "true"


def _read_committed(text: str) -> bool:
    if text.lower() not in ("read_committed", "read_uncommitted"):
        raise ConfigError(f"the option {_ISOLATION!r} is {text!r}; it may be read_committed or read_uncommitted")
    return text.lower() == "read_committed"


def _count(name: str, text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise ConfigError(f"the option {name!r} is {text!r}; it may be a number from 1 on")
    return int(text)
