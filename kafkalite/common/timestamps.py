"""Times of records as text, and text as times: one rule for commands, the reader, jobs and the console.

A timestamp is milliseconds since 1970, and -1 is none. Text is ISO 8601 with the offset from UTC at that time, "Z" for
UTC itself: `2026-10-25 02:30:00.000+01:00` and `...+02:00` are an hour apart. A timestamp outside the years 1 to 9999
is no real date (a producer sent microseconds); it is formatted as a number with its unit: `1700000000000000 ms`.
Text without an offset is local time, and refused where the clock shows it twice or never.
The console's `static/parts/format.js` does the same.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo

from kafkalite.common.errors import ConfigError

NO_TIMESTAMP = -1
ABSENT = "-"
TIME = "a date and a time, such as 2026-01-31T09:30"
DATE_MS_MIN, DATE_MS_MAX = -62_135_596_800_000, 253_402_300_799_999  # 0001-01-01T00:00Z, the end of 9999
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def format_timestamp(
    timestamp_ms: int,
    zone: tzinfo | None = None,
    *,
    absent: str = ABSENT,
    separator: str = " ",
    unit: str = "milliseconds",
) -> str:
    """In `zone`, by default the local one, down to the `unit`, "milliseconds" or "seconds"."""
    if timestamp_ms == NO_TIMESTAMP:
        return absent
    if not DATE_MS_MIN <= timestamp_ms <= DATE_MS_MAX:
        return f"{timestamp_ms} ms"
    moment = _EPOCH + timestamp_ms * _MS
    with suppress(OverflowError, ValueError, OSError):  # within a day of the ends there may be no local date
        moment = moment.astimezone(zone)
    text = moment.isoformat(separator, unit)
    return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text


def parse_timestamp(name: str, text: str, *, zone: tzinfo | None = None, what: str = TIME) -> int:
    """Of ISO 8601; without an offset it is a time in `zone`, by default the local one. Negative before 1970. Raises
    ConfigError that begins with `name`, for a text that is not `what` it must be, and for a local time that comes twice
    or never."""
    try:
        moment = datetime.fromisoformat(text.strip())
        return timestamp_of(moment if moment.tzinfo is not None else _in_zone(f"{name} {text}", moment, zone))
    except (ValueError, OverflowError, OSError):
        raise ConfigError(f"{name} {text}: must be {what}") from None


def parse_moment(name: str, text: str) -> int:
    """As `parse_timestamp` in the local zone, also of milliseconds since 1970."""
    if text.isascii() and text.isdecimal():
        return int(text)
    return parse_timestamp(name, text, what="milliseconds since 1970, or a time such as 2026-01-31T09:30:00+01:00")


def timestamp_of(moment: datetime) -> int:
    """Of a datetime with its time zone."""
    return (moment - _EPOCH) // _MS


def _in_zone(named: str, local: datetime, zone: tzinfo | None) -> datetime:
    """The one moment at which clocks in the zone show `local`."""
    first, second = sorted(local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if first == second:
        return first
    is_twice = first.astimezone(zone).replace(tzinfo=None) == local
    why = (
        "comes twice here, because clocks are set back"
        if is_twice
        else "never comes here, because clocks are set forward"
    )
    one, other = (format_timestamp(timestamp_of(each), zone, separator="T", unit="seconds") for each in (first, second))
    raise ConfigError(f"{named} {why}; give the offset from UTC, as in {one} or {other}")
