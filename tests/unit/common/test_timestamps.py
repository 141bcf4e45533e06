"""Times as text: what is shown leads back to the same time, and nothing is guessed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.common.errors import ConfigError
from kafkalite.common.timestamps import DATE_MS_MAX, DATE_MS_MIN, format_timestamp, parse_timestamp, timestamp_of
from tests.support.local_zone import local_zone

_DAY_MS = 86_400_000
_TIMESTAMPS = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(DATE_MS_MIN, DATE_MS_MAX),
    st.integers(1_700_000_000_000, 1_800_000_000_000),
    *(st.integers(edge - 3, edge + 3) for edge in (0, DATE_MS_MIN, DATE_MS_MAX)),
)


@pytest.fixture(autouse=True, scope="module")
def zone() -> Iterator[None]:
    with local_zone():
        yield


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [
        (1_792_888_200_000, "2026-10-25 02:30:00.000+02:00"),
        (1_792_891_800_000, "2026-10-25 02:30:00.000+01:00"),  # an hour later
        (0, "1970-01-01 01:00:00.000+01:00"),
        (-1, "-"),
        (-2, "1970-01-01 00:59:59.998+01:00"),
        (-315_622_800_000, "1960-01-01 00:00:00.000+01:00"),
        (1_770_000_000_000_000, "1770000000000000 ms"),  # microseconds
        (1_770_000_000_123_456_789, "1770000000123456789 ms"),  # nanoseconds
        (-(1 << 63), "-9223372036854775808 ms"),
        (DATE_MS_MAX, "9999-12-31 23:59:59.999Z"),  # locally a year that there is not
        (DATE_MS_MAX + 1, "253402300800000 ms"),
    ],
)
def test_a_timestamp_is_shown_with_its_zone_or_its_unit(timestamp_ms: int, text: str) -> None:
    assert format_timestamp(timestamp_ms) == text


def test_utc_is_z_and_parts_can_be_left_out() -> None:
    assert format_timestamp(1_770_000_000_123, UTC) == "2026-02-02 02:40:00.123Z"
    assert format_timestamp(1_770_000_000_123, UTC, separator="T", unit="seconds") == "2026-02-02T02:40:00Z"
    assert format_timestamp(-1, absent="never") == "never"


@given(_TIMESTAMPS, st.sampled_from([None, UTC, timezone(timedelta(hours=-9, minutes=-30))]))
def test_what_is_shown_is_that_time_again(timestamp_ms: int, zone: timezone | None) -> None:
    text = format_timestamp(timestamp_ms, zone)
    if text == "-":
        assert timestamp_ms == -1
    elif text.endswith(" ms"):
        assert int(text[:-3]) == timestamp_ms and not DATE_MS_MIN <= timestamp_ms <= DATE_MS_MAX
    else:
        assert parse_timestamp("--from", text) == timestamp_ms


_CHANGES = [datetime(2026, 3, 29, 2), datetime(2026, 10, 25, 2), datetime(2027, 3, 28, 2), datetime(2027, 10, 31, 2)]
_NEAR_CHANGES = st.builds(
    lambda change, minutes: change + timedelta(minutes=minutes), st.sampled_from(_CHANGES), st.integers(-120, 180)
)


@given(st.one_of(_NEAR_CHANGES, st.datetimes(datetime(1990, 1, 1), datetime(2030, 1, 1))))
def test_a_local_time_is_taken_only_if_it_comes_once(local: datetime) -> None:
    moments = [one for one in (0, 1) if _shown(local, one) == local]
    is_once = len({local.replace(fold=one).timestamp() for one in moments}) == 1
    try:
        found = parse_timestamp("--from", local.isoformat())
    except ConfigError as error:
        assert not is_once and "offset from UTC" in str(error)
    else:
        assert is_once and found == timestamp_of(local.replace(fold=moments[0]).astimezone())


def _shown(local: datetime, fold: int) -> datetime:
    """As the clock shows the moment that is meant by it."""
    return local.replace(fold=fold).astimezone(UTC).astimezone().replace(tzinfo=None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "2026-10-25T02:30",
            "--from 2026-10-25T02:30 comes twice here, because clocks are set back; give the offset from UTC, as in "
            "2026-10-25T02:30:00+02:00 or 2026-10-25T02:30:00+01:00",
        ),
        (
            "2026-03-29 02:30",
            "--from 2026-03-29 02:30 never comes here, because clocks are set forward; give the offset from UTC, as in "
            "2026-03-29T01:30:00+01:00 or 2026-03-29T03:30:00+02:00",
        ),
        ("soon", "--from soon: must be a date and a time, such as 2026-01-31T09:30"),
        ("0001-01-01T00:00", "--from 0001-01-01T00:00: must be a date and a time, such as 2026-01-31T09:30"),
    ],
)
def test_what_is_no_time_is_refused_with_the_fix(text: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_timestamp("--from", text)
    assert str(caught.value) == why


def test_times_before_1970_are_negative_and_parts_of_a_millisecond_are_cut() -> None:
    assert parse_timestamp("t", "1960-01-01T00:00Z") == -315_619_200_000
    assert parse_timestamp("t", "2026-03-29T03:00") == 1_774_746_000_000, "the first minute of summer"
    assert parse_timestamp("t", "1970-01-01T00:00:00.0019Z") == 1
    assert parse_timestamp("t", "2026-10-25T02:30+02:00") == 1_792_888_200_000
