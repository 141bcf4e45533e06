"""Kafka's rules for names, and its printable ids."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.common.names import (
    collides,
    format_uuid,
    java_hash,
    java_hash_order,
    java_trim,
    parse_uuid,
    partition_for_id,
    random_uuid,
    topic_name_fault,
)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "__consumer_offsets"])
def test_topic_names(name: str) -> None:
    assert topic_name_fault(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "a\n", "\N{LATIN SMALL LETTER E WITH ACUTE}"])
def test_no_topic_names(name: str) -> None:
    assert topic_name_fault(name)


def test_a_dot_and_an_underscore_collide() -> None:
    assert collides("a.b", "a_b") and not collides("a.b", "a-b")


# Values of String.hashCode(); the last one is Integer.MIN_VALUE, whose absolute value Java cannot tell.
@pytest.mark.parametrize(
    ("text", "value"), [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", -(1 << 31))]
)
def test_hashes_are_javas(text: str, value: int) -> None:
    assert java_hash(text) == value
    assert 0 <= partition_for_id(text, 50) < 50


def test_names_have_the_order_of_a_hash_map() -> None:
    assert java_hash_order(["10", "9", "1", "0"]) == ["0", "1", "9", "10"]
    assert java_hash_order(["p", "a", "o"]) == ["p", "a", "o"]  # "p" is in bucket 0 of 16
    assert java_hash_order(["p", "a", "o"], 32) == ["a", "o", "p"]
    assert java_hash_order(["c", "b", "a"], 1) == ["a", "b", "c"]


def test_the_smallest_hash_is_in_partition_0() -> None:
    assert partition_for_id("polygenelubricants", 50) == 0


@given(st.uuids())
def test_ids_are_22_characters(value: uuid.UUID) -> None:
    text = format_uuid(value)
    assert len(text) == 22 and parse_uuid(text) == value


def test_new_ids_are_safe_on_command_lines() -> None:
    assert not any(format_uuid(random_uuid()).startswith("-") for _ in range(300))


def test_other_texts_are_no_ids() -> None:
    with pytest.raises(ValueError, match="id"):
        parse_uuid("AAAA")


def test_a_text_is_trimmed_as_by_java() -> None:
    assert java_trim(" \t\x1f\0a b\n ") == "a b"
    assert java_trim("\u00a0a\u2003\x85") == "\u00a0a\u2003\x85"
