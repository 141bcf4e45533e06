"""Searches as events: records, how far they came, why they ended, where the next one goes on."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.client import partition_scan
from kafkalite.client.scan import BEGINNING, END, OFFSET, TAIL, Limits, Start
from kafkalite.console.messages.filters import ANY_CASE, CONTAINS, EQUALS, JSON_PATH, Filter, filters_of
from kafkalite.console.messages.payload import Format, View
from kafkalite.console.messages.search import Search, Wanted
from kafkalite.record.batch import NewRecord
from kafkalite.record.compression import CODECS
from kafkalite.record.record import read_body
from tests.support.scanned_logs import TOPIC, ScannedLogs


def logs(count: int = 6) -> ScannedLogs:
    """Values 0, 1, ... in the order of time, by turns in two partitions."""
    made = ScannedLogs(2)
    for number in range(count):
        made.write(number % 2, NewRecord(b"k%d" % number, b"%d" % number, timestamp=number))
    return made


def search(made: ScannedLogs, start: Start, **wanted: Any) -> Search:
    return Search(cast("Any", made), Wanted(TOPIC, [0, 1], start, **wanted), View(), monotonic_s=lambda: made.now_s)


def told(found: Search) -> tuple[list[str], dict[str, Any]]:
    """The values, and the last event."""
    *events, done = [one for one in found.events() if one.name != "progress"]
    assert done.name == "done"
    return [one.data["value"]["text"] for one in events], done.data


@pytest.mark.parametrize(
    ("place", "values", "following"),
    [(BEGINNING, ["0", "1", "2"], {"0": 2, "1": 1}), (END, ["5", "4", "3"], {"0": 2, "1": 1})],
)
def test_a_search_ends_at_its_limit_and_the_next_one_goes_on_behind_it(
    place: str, values: list[str], following: dict[str, int]
) -> None:
    made = logs()
    found, done = told(search(made, Start(place), limit=3))
    assert (found, done["reason"], done["next"]) == (values, "limit", following)
    rest = Start(OFFSET if place == BEGINNING else END, offsets={(TOPIC, int(at)): to for at, to in following.items()})
    found, done = told(search(made, rest, limit=10))
    assert (sorted({*values, *found}), done["reason"], done["next"]) == (list("012345"), "end", None)
    assert len(found) == 3


def test_filters_leave_out_records_and_count_them() -> None:
    found, done = told(search(logs(), Start(BEGINNING), filters=[Filter(lambda one: one.value in (b"1", b"4"))]))
    assert found == ["1", "4"]
    assert (done["matched"], done["scanned"], done["deleted"]) == (2, 6, 0)


def test_backwards_with_filters_the_whole_log_is_searched() -> None:
    found, done = told(search(logs(), Start(END), filters=[Filter(lambda one: one.key == b"k0")]))
    assert (found, done["reason"]) == (["0"], "end")


def test_backwards_with_a_filter_each_batch_is_read_once() -> None:
    made = ScannedLogs(2)
    for number in range(3_000):  # batches of three, which no window of a hundred offsets fits
        made.write(number % 2, *[NewRecord(None, b"%d" % number)] * 3)
    read: list[int] = []
    made.on_fetch = lambda: read.append(1)
    found, done = told(search(made, Start(END), filters=[Filter(lambda one: False)]))
    assert (found, done["reason"], done["scanned"], done["total"]) == ([], "end", 9_000, 9_000)
    assert len(made.fetches) == len(set(made.fetches)) == 3_000


_BEFORE_3000 = Filter(lambda one: int(one.value or b"0") < 3_000)


def test_backwards_with_a_filter_only_the_records_of_the_answer_are_kept() -> None:
    found, done = told(
        search(logs(4_000), Start(END), filters=[Filter(lambda one: int(one.value or b"0") < 3_000)], limit=3)
    )
    assert (found, done["reason"]) == (["2999", "2998", "2997"], "limit")


@pytest.mark.parametrize(
    ("limits", "reason"), [(Limits(max_records=2), "max_records"), (Limits(max_bytes=1), "max_bytes")]
)
def test_a_bound_ends_a_search_and_says_which(limits: Limits, reason: str) -> None:
    found, done = told(search(logs(), Start(BEGINNING), limits=limits))
    assert (found, done["reason"], done["next"]) == (["0", "1"], reason, {"0": 1, "1": 1})


def test_progress_is_reported_each_quarter_of_a_second() -> None:
    made = logs()
    made.on_fetch = lambda: made.pause(0.2)
    events = list(search(made, Start(BEGINNING)).events())
    assert [one.name for one in events if one.name != "record"].count("progress") == 3
    last = [one.data for one in events if one.name == "progress"][-1]
    assert (last["total"], last["partitions"], last["partitions_done"]) == (6, 2, 2)


def test_records_that_retention_takes_during_a_search_are_reported() -> None:
    made = logs()
    found = search(made, Start(BEGINNING))
    made.delete_before(0, 2)
    values, done = told(found)
    assert (sorted(values), done["deleted"]) == (["1", "3", "4", "5"], 2)


def test_a_tail_begins_with_progress_and_gives_records_as_they_come() -> None:
    made = logs()
    events = search(made, Start(TAIL), limit=None).events()
    assert next(events).name == "progress"
    made.write(1, NewRecord(None, b"new"))
    assert next(one for one in events if one.name == "record").data["value"]["text"] == "new"


def test_a_tail_says_where_it_is_and_resumes_there() -> None:
    made = logs()
    progress = next(search(made, Start(TAIL), limit=None).events())
    assert progress.data["next"] == {"0": 3, "1": 3}
    made.write(0, NewRecord(None, b"missed"))
    again = search(made, Start(TAIL, offsets={(TOPIC, 0): 3, (TOPIC, 1): 3}), limit=None).events()
    assert next(one for one in again if one.name == "record").data["value"]["text"] == "missed"


def test_an_export_has_what_a_search_finds() -> None:
    assert [one.value for one in search(logs(), Start(BEGINNING), limit=4).records()] == [b"0", b"1", b"2", b"3"]
    assert [one.value for one in search(logs(), Start(END), limit=2).records()] == [b"5", b"4"]


_CODECS = sorted(CODECS.values())
_WORDS = ("", "a", "ab", "b", "K", "\u212a", '{"a": "b"}', '{"a": "\\u0062"}', "1")
_NAMES = {name: CONTAINS if name.endswith("match") else None for side in ("key", "value", "header")
          for name in (side, f"{side}_match")}  # fmt: skip
_TEXT = st.sampled_from(_WORDS)
_DATA = st.none() | _TEXT.map(str.encode)
_HEADERS = st.lists(st.tuples(_TEXT, _DATA), max_size=2).map(tuple)
_RECORD = st.builds(NewRecord, _DATA, _DATA, _HEADERS, st.integers(0, 1 << 40))
_FILTER = st.tuples(
    st.sampled_from(("key", "value", "header")),
    st.sampled_from((CONTAINS, ANY_CASE, EQUALS)).flatmap(lambda match: st.tuples(st.just(match), _TEXT))
    | st.tuples(st.just(JSON_PATH), st.sampled_from(("$.a=b", "$.a~b", "$=1", "$.a!=b"))),
)


@given(
    st.lists(
        st.tuples(st.lists(_RECORD, min_size=1, max_size=4), st.sampled_from(sorted(CODECS.values()))), max_size=6
    ),
    st.lists(_FILTER, min_size=1, max_size=2),
    st.sampled_from((BEGINNING, END)),
    st.integers(1, 4),
)
def test_a_batch_is_passed_over_only_if_none_of_its_records_matches(
    batches: list[tuple[list[NewRecord], int]], chosen: list[Any], place: str, limit: int
) -> None:
    query = dict(_NAMES)
    for side, (match, text) in chosen:
        query |= {side: text, f"{side}_match": match}
    filters = filters_of(query, Format(), Format())
    made = ScannedLogs(2)
    for number, (records, codec) in enumerate(batches):
        made.write(number % 2, *records, codec=codec)
    plain = [one._replace(may_match=None) for one in filters]
    found, expected = (
        list(search(made, Start(place), limit=limit, filters=each).events()) for each in (filters, plain)
    )
    assert found == expected


def test_batches_without_the_text_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    made = logs(40)
    monkeypatch.setattr(partition_scan, "read_body", lambda header, body: decoded.append(1) or read_body(header, body))
    found, done = told(
        search(made, Start(BEGINNING), filters=filters_of({**_NAMES, "value": "39"}, Format(), Format()))
    )
    assert (found, done["scanned"], done["matched"], len(decoded)) == (["39"], 40, 1, 1)
