"""Regular expressions of others: beside RE2J, and within limits of time and memory whatever the expression."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.common.linear_regex import CHARS_MAX, KNOWN_MAX, NODES_MAX, LinearRegex
from tests.support.drawn_patterns import DrawnPattern
from tests.support.places import ROOT

CASES: list[dict[str, Any]] = json.loads((ROOT / "tests" / "golden" / "groups" / "patterns.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_accepts_and_matches_as_re2j(case: dict[str, Any]) -> None:
    if "refusal" in case:
        with pytest.raises(ValueError, match=f"^{re.escape(case['refusal'])}$"):
            LinearRegex(case["pattern"])
        return
    regex = LinearRegex(case["pattern"])
    assert [text for text in case["matching"] if not regex.fullmatch(text)] == []
    assert [text for text in case["others"] if regex.fullmatch(text)] == []


@given(st.text(alphabet="abc|()*+?[]{}1,2^$.\\dQEpLi:P<>-\n"), st.lists(st.text(alphabet="abc12\n-")))
def test_any_text_is_an_expression_or_a_value_error(pattern: str, texts: list[str]) -> None:
    try:
        regex = LinearRegex(pattern)
    except ValueError:
        return
    assert asyncio.run(regex.select(texts)) == [text for text in texts if regex.fullmatch(text)]


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("logs", ["logs"], ["logs-a", "my-logs"]),
        ("^logs", ["logs"], ["logs-a"]),
        ("(^a.*)|(^b.*)", ["a", "bcd"], ["cb"]),
        (r"orders-\d{1,3}", ["orders-1", "orders-123"], ["orders-", "orders-1234", "orders-\u0661"]),
        ("(?i)ORDERS", ["orders", "oRders", "order\u017f"], ["order"]),
        (r"(?m)^a$\n^b$", ["a\nb"], ["a\n\nb"]),
        (r"\ba\b-\Bb?", ["a-"], ["a-b"]),
        ("", [""], ["a"]),
    ],
)
def test_matches_the_whole_text(pattern: str, matching: list[str], others: list[str]) -> None:
    regex = LinearRegex(pattern)
    assert [text for text in (*matching, *others) if regex.fullmatch(text)] == matching


HOSTILE = [
    "(a+)+b",
    "(a|aa)*b",
    "(a|b)*a(a|b){900}c",
    "(a?){1000}a{1000}",
    "(.*)(.*)(.*)(.*)(.*)x",
    "((((((a?){6}){6}){6}){6}){6})b",
    "|".join(f"(.*{number}.*)" for number in range(1000)),
    r"(\b|\B|^|a)*b",
    "(" * 200 + "a" + ")*" * 200,
    "[" + "".join(f"{chr(0x100 + 2 * n)}" for n in range(5000)) + "]*",
]


@pytest.mark.parametrize("pattern", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_expression_takes_bounded_steps_and_memory(pattern: str) -> None:
    regex = LinearRegex(pattern)
    texts = ["ab" * 100 + text for text in ("", "x", "12", "b", "-")]
    longest = 0.0
    for text in texts:
        walk = regex._automaton.walk(text)
        started = time.thread_time()
        for _ in walk:
            longest = max(longest, time.thread_time() - started)
            started = time.thread_time()
    assert regex._automaton._known_nodes <= KNOWN_MAX + 2 * NODES_MAX
    assert longest < 0.2


def test_other_work_goes_on_while_many_texts_are_matched() -> None:
    turns = 0

    async def work() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def both() -> list[str]:
        worker = asyncio.create_task(work())
        try:
            return await LinearRegex("(a|b)*a(a|b){499}c?").select(["ab" * 300, "b" * 600, "x"] * 3)
        finally:
            worker.cancel()

    assert asyncio.run(both()) == ["ab" * 300] * 3
    assert turns > 3


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("a" * (CHARS_MAX + 1), "longer than"),
        ("(abcdefghijklmnopqrstuvwxyz){1000}", "more than 20000 parts"),
        ("((((a{1000}){1000}){1000}){1000}){1000}", "more than 20000 parts"),
        ("((((|){1000}){1000}){1000}){1000}", "more than 20000 parts"),
        ("(" * 300 + ")" * 300, "nests too deeply"),
        (r"\p{Greek}", "invalid character class range"),
    ],
)
def test_what_re2j_takes_and_is_too_much_here(pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LinearRegex(pattern)


def test_repetitions_of_nothing_take_no_time() -> None:
    assert LinearRegex("((((){1000}){1000}){1000}){1000}").fullmatch("")
    assert LinearRegex("(((){1000}){0,1000}){1}").fullmatch("")


def test_forgets_states_and_matches_on() -> None:
    regex = LinearRegex("(a|b)*a(a|b){200}")
    text = "".join(DrawnPattern(1).texts)
    words = ["a" + "ab"[number % 2] * number + "b" * (200 - number) for number in range(100)]
    for word in words:
        assert regex.fullmatch(word)
        assert not regex.fullmatch(word + text + "-")


def test_ten_thousand_topics_take_less_than_half_a_second() -> None:
    """0.05 s."""
    regex = LinearRegex(r"(team-[a-z]+|orders)\.events-\d+")
    topics = [f"team-abc.events-{number}" for number in range(5000)] + [f"other.topic-{n}" for n in range(5000)]
    started = time.thread_time()
    assert len(asyncio.run(regex.select(topics))) == 5000
    assert time.thread_time() - started < 0.5
