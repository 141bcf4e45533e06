"""Filters in CEL: the records for which they are true, and what a hostile one costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafkalite.client.partition_scan import ScannedRecord
from kafkalite.console.decoders.schema_decoder import DecoderPool
from kafkalite.console.messages.expressions import Expression
from kafkalite.console.messages.payload import View, format_of
from kafkalite.console.request.parameters import ApiError


@pytest.fixture(scope="module")
def pool() -> Iterator[DecoderPool]:
    made = DecoderPool()
    yield made
    made.close()


def record(value: bytes | None, offset: int = 7) -> ScannedRecord:
    batch: Any = None
    headers = (("trace", b"abc"),)
    return ScannedRecord("orders", 2, offset, 1_700_000_000_000, b"k1", value, headers, -1, batch, None)


@pytest.mark.parametrize(
    ("text", "value", "is_found"),
    [
        ("value.total > 100", b'{"total": 100.5}', True),
        ("value.total > 100", b'{"total": 99}', False),
        ("value.items.exists(i, i.sku == 'A') && key.startsWith('k')", b'{"items": [{"sku": "A"}]}', True),
        ("value.contains('word')", b"a word", True),
        ("value.matches('^a.*d$')", b"a word", True),
        ("headers.trace == 'abc' && partition == 2 && offset < 8 && topic == 'orders'", b"", True),
        ("timestamp > timestamp('2023-01-01T00:00:00Z') && timestamp < timestamp('2024-01-01T00:00:00Z')", b"", True),
        ("value == null", None, True),
        ("value == 7", b"7", True),
        ("size(value) == 3 && value[2] == 'x'", b'[1, 2, "x"]', True),
        ("has(value.a.b)", b'{"a": {}}', False),
        ("value == '007'", b"007", True),
    ],
)
def test_a_record_matches_or_not(text: str, value: bytes | None, is_found: bool, pool: DecoderPool) -> None:
    expression = Expression(text, View(), pool)
    assert bool(expression.matching([record(value)])) is is_found and expression.faults == 0


def test_an_expression_that_fails_is_counted_with_its_reason(pool: DecoderPool) -> None:
    expression = Expression("value.a + 1 == 2", View(), pool)
    found = expression.matching([record(b'{"a": 1}'), record(b'{"a": "x"}'), record(b"\xff")])
    assert [one.value for one in found] == [b'{"a": 1}'] and expression.faults == 2 and expression.fault
    expression = Expression("value.a", View(), pool)
    assert expression.matching([record(b'{"a": 1}')]) == [] and "no condition" in str(expression.fault)


@pytest.mark.parametrize("text", ["value.a ==", "(" * 3000, "a" * 5000, ")"])
def test_an_expression_that_is_none_is_refused(text: str, pool: DecoderPool) -> None:
    with pytest.raises(ApiError, match="filter") as refused:
        Expression(text, View(), pool)
    assert refused.value.status == 400


@pytest.mark.thorough
def test_one_that_takes_too_long_costs_its_record(pool: DecoderPool) -> None:
    text = "value.all(a, value.all(b, value.all(c, a + b + c >= 0)))"
    expression = Expression(text, View(), pool)
    long = record(b"[" + b",".join([b"1"] * 2_000) + b"]")
    found = expression.matching([record(b"[1]", offset=1), long, record(b"[2]", offset=2)])
    assert [one.offset for one in found] == [1, 2] and "takes more than" in str(expression.fault)


def test_values_are_those_of_the_format(pool: DecoderPool) -> None:
    view = View(value=format_of("integer", None, None, "value", pool))
    assert Expression("value == 258", view, pool).matching([record(b"\1\2"), record(b"\1\3")])[0].value == b"\1\2"
