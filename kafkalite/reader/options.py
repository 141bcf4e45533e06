"""Options of a read, checked when the DataFrame is made. `kafkalite.reader.option_table` lists them.

Names, values, precedence and errors are those of Spark's own Kafka source, so that a user changes the format and adds a
path; options that say how to talk to a broker pass unread. Any other name is an error, so that a slip of the pen does
not read the wrong thing. Three things are said differently or besides:

* -1 and -2 are Spark's latest and earliest, so "the last n offsets" is written latest-n: a word for all partitions,
  or a string in JSON. Other negative numbers are errors.
* "*" in JSON stands for the partitions or topics that are not named. Without it all must be named, as for Spark.
* a partition in assign that is not there is an error; Spark passes over it.

Source: org.apache.spark.sql.kafka010.{KafkaSourceProvider, JsonUtils}.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from kafkalite.common.errors import ConfigError
from kafkalite.common.options import read, unknown
from kafkalite.common.text import read_json
from kafkalite.reader.option_table import OPTIONS, PASSED, REFUSED, STREAM
from kafkalite.reader.planning.read_options import (
    ANY_PARTITION,
    ANY_TOPIC,
    EARLIEST,
    LATEST,
    At,
    Limit,
    Position,
    ReadOptions,
    everywhere,
)

logger = logging.getLogger(__name__)

COLUMN_NAMES = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")

_CHOICES = ("subscribe", "subscribePattern", "assign")
_PATHS = "paths"  # Spark's name for several paths given to load()
_KNOWN = {*(option.name.lower() for option in OPTIONS), *(name.lower() for name in PASSED), _PATHS}
_BEFORE_LATEST = re.compile(r"latest\s*-\s*([0-9]{1,18})")
_OFFSET_MAX = (1 << 63) - 1

_T = TypeVar("_T", dict[str, Any], list[Any])


def parse_options(options: Mapping[str, str], *, streaming: bool = False) -> ReadOptions:
    """From Spark's options, whose names may have any case; those of a batch read, or of a stream.

    Raises ConfigError that names the option and the fix.
    """
    values = _by_lower_name(options)
    chosen = [name for name in _CHOICES if name.lower() in values]
    if len(chosen) != 1:
        what = " and ".join(repr(name) for name in chosen) or "none"
        raise ConfigError(f"set exactly one of the options 'subscribe', 'subscribePattern' and 'assign'; found {what}")
    if streaming:
        _refuse_ends(values)
    elif ignored := [option.name for option in STREAM if option.name.lower() in values]:
        logger.warning("a batch read ignores %s", ", ".join(ignored))
    start = _limit(values, "starting", LATEST if streaming else EARLIEST)
    end = _limit(values, "ending", LATEST)
    _check_direction(start, end, streaming=streaming)
    found = read(OPTIONS, values)
    least, most = found["min_offsets_per_trigger"], found["max_offsets_per_trigger"]
    if least is not None and most is not None and least > most:
        raise ConfigError(f"the option 'minOffsetsPerTrigger' is {least}, more than 'maxOffsetsPerTrigger', {most}")
    return ReadOptions(
        paths=_paths(values),
        topics=_topics(values.get("subscribe")),
        topic_pattern=_pattern(values.get("subscribepattern")),
        assigned=_assigned(values.get("assign")),
        start=start,
        end=end,
        columns=_columns(values.get("columns")),
        **found,
    )


def column_names(options: Mapping[str, str]) -> tuple[str, ...]:
    """The columns that the options ask for, whether batch read or stream. Raises ConfigError as `parse_options`."""
    values = _by_lower_name(options)
    found = read(OPTIONS, values)
    return _columns(values.get("columns")) or tuple(
        name for name in COLUMN_NAMES if name != "headers" or found["include_headers"]
    )


def _by_lower_name(options: Mapping[str, str]) -> dict[str, str]:
    values = {name.lower(): value for name, value in options.items()}
    for name in values:
        if name in REFUSED:
            raise ConfigError(f"the option {name!r} is not supported: {REFUSED[name]}")
        if name not in _KNOWN and not name.startswith("kafka."):
            raise unknown(name, (option.name for option in OPTIONS))
    return values


# -- paths and topics


def _paths(values: Mapping[str, str]) -> tuple[str, ...]:
    several = values.get(_PATHS)
    text = values.get("path", "").strip() if several is None else several
    if text.startswith("["):
        found = _json("path", text, '["/data/1", "/data/2"]', list)
        if not all(isinstance(one, str) for one in found):
            raise ConfigError("the option 'path' must be a list of directories")
    else:
        found = text.split(",")
    paths = tuple(dict.fromkeys(_local(one.strip()) for one in found if one.strip()))
    if not paths:
        raise ConfigError("set the option 'path' to the broker's data directory, or several separated by commas")
    return paths


def _local(path: str) -> str:
    scheme, colon, rest = path.partition(":")
    if not colon or "/" in scheme or len(scheme) < 2:
        return os.path.abspath(path)  # executors have another working directory
    if scheme != "file":
        raise ConfigError(f"the option 'path' is {path!r}; mount the storage and give a local directory")
    return "/" + rest.lstrip("/")


def _topics(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
    if not topics:
        raise ConfigError("the option 'subscribe' names no topic")
    return topics


def _pattern(text: str | None) -> str | None:
    if text is None:
        return None
    if not text.strip():
        raise ConfigError("the option 'subscribePattern' is empty; .* stands for all topics")
    try:
        re.compile(text.strip())
    except re.error as error:
        raise ConfigError(f"the option 'subscribePattern' is no regular expression: {error}") from None
    return text.strip()


def _assigned(text: str | None) -> Mapping[str, tuple[int, ...]] | None:
    if text is None:
        return None
    assigned = {}
    for topic, partitions in _json("assign", text, '{"orders": [0, 1]}', dict).items():
        if not isinstance(partitions, list) or not all(type(index) is int and index >= 0 for index in partitions):
            raise ConfigError(f"the option 'assign' must give a list of partitions for {topic!r}")
        assigned[topic] = tuple(dict.fromkeys(partitions))
    return assigned


def _columns(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    chosen = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in chosen or ("",):
        if name not in COLUMN_NAMES:
            raise ConfigError(f"the option 'columns' names {name!r}; choose among {', '.join(COLUMN_NAMES)}")
    return chosen


# -- positions


def _limit(values: Mapping[str, str], side: str, default: Position) -> Limit:
    """The limit of the option that goes before the others: a timestamp, timestamps by partition, offsets."""
    timestamp, by_timestamp, offsets = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    if (text := values.get(timestamp.lower())) is not None:
        return everywhere(timestamp, _time(timestamp, _integer(text.strip()), text))
    if (text := values.get(by_timestamp.lower())) is not None:
        return _by_partition(by_timestamp, text, '{"orders": {"0": 1700000000000}}', _time)
    if (text := values.get(offsets.lower())) is None:
        return everywhere(offsets, default)
    if not text.strip().startswith("{"):
        return everywhere(offsets, _offset_word(offsets, text))
    return _by_partition(offsets, text, '{"orders": {"0": 23}}', _offset)


def _by_partition(name: str, text: str, example: str, read: Callable[[str, object, str], Position]) -> Limit:
    positions: dict[str, dict[int, Position]] = {}
    for topic, partitions in _json(name, text, example, dict).items():
        if not isinstance(partitions, dict):
            raise ConfigError(f"the option {name!r} must give values by partition for {topic!r}, as in {example}")
        for partition, value in partitions.items():
            if partition != "*" and not (partition.isascii() and partition.isdecimal()):
                raise ConfigError(f"the option {name!r} has {partition!r}, which is no partition, for topic {topic!r}")
            index = ANY_PARTITION if partition == "*" else int(partition)
            where = f"{value!r} for partition {partition!r} of {topic!r}"
            positions.setdefault(ANY_TOPIC if topic == "*" else topic, {})[index] = read(name, value, where)
    return Limit(name, positions)


def _time(name: str, value: object, where: str) -> Position:
    if type(value) is not int or not 0 <= value <= _OFFSET_MAX:
        raise ConfigError(f"the option {name!r} has {where}; it may be milliseconds since 1970")
    return Position(At.TIMESTAMP, value)


def _offset(name: str, value: object, where: str) -> Position:
    if isinstance(value, str):
        return _offset_word(name, value)
    if value == -1 and type(value) is int:
        return LATEST
    if value == -2 and type(value) is int:
        return EARLIEST
    if type(value) is not int or not 0 <= value <= _OFFSET_MAX:
        last = f'; for the last {-value} offsets write "latest-{-value}"' if type(value) is int and value < 0 else ""
        raise ConfigError(f"the option {name!r} has {where}; it may be an offset, -1 (latest) or -2 (earliest){last}")
    return Position(At.OFFSET, value)


def _offset_word(name: str, text: str) -> Position:
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return EARLIEST if word == "earliest" else LATEST
    if found := _BEFORE_LATEST.fullmatch(word):
        return Position(At.BEFORE_LATEST, int(found[1]))
    raise ConfigError(
        f"the option {name!r} is {text!r}; it may be earliest, latest, latest-n for the last n offsets, or JSON"
    )


def _check_direction(start: Limit, end: Limit, *, streaming: bool) -> None:
    starts = [position for partitions in start.positions.values() for position in partitions.values()]
    ends = [position for partitions in end.positions.values() for position in partitions.values()]
    if LATEST in starts and not streaming:
        raise ConfigError(f"the option {start.option!r} is latest, which is for streams only: a batch read has no rows")
    if EARLIEST in ends:
        raise ConfigError(f"the option {end.option!r} is earliest: there is nothing to read before")


def _refuse_ends(values: Mapping[str, str]) -> None:
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        if name.lower() in values:
            raise ConfigError(f"the option {name!r} is not for streams; leave it out, or use spark.read")


# -- values


def _json(name: str, text: str, example: str, kind: type[_T]) -> _T:
    try:
        value = read_json(text)
    except ValueError as error:
        raise ConfigError(f"the option {name!r} is no JSON ({error}); write it as {example}") from None
    if not isinstance(value, kind) or not value:
        raise ConfigError(f"the option {name!r} must be written as {example}")
    return value


def _integer(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None
