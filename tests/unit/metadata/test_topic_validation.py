"""Checks of new topics and of growing ones: each refusal has Kafka's code."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.metadata.topic_validation import PARTITION_COUNT_MAX, check_more_partitions, check_new_topic

names = st.text("ab._-", min_size=1, max_size=6).filter(lambda name: name not in (".", ".."))


def code_of(name: str, partition_count: int = 1, others: tuple[str, ...] = ()) -> ErrorCode:
    try:
        check_new_topic(name, partition_count, others)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


@pytest.mark.parametrize(
    ("name", "partition_count", "others", "code"),
    [
        ("orders", 1, ("clicks",), ErrorCode.NONE),
        ("orders", PARTITION_COUNT_MAX, (), ErrorCode.NONE),
        ("or/ders", 1, (), ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("orders", 1, ("orders",), ErrorCode.TOPIC_ALREADY_EXISTS),
        ("orders", 0, (), ErrorCode.INVALID_PARTITIONS),
        ("orders", PARTITION_COUNT_MAX + 1, (), ErrorCode.INVALID_PARTITIONS),
        ("a.b", 1, ("a_b",), ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a.b", 0, ("a_b",), ErrorCode.INVALID_PARTITIONS),
        ("orders", 0, ("orders",), ErrorCode.TOPIC_ALREADY_EXISTS),
    ],
)
def test_the_first_fault_decides(name: str, partition_count: int, others: tuple[str, ...], code: ErrorCode) -> None:
    assert code_of(name, partition_count, others) == code


@given(names, st.lists(names, max_size=5))
def test_two_topics_never_share_a_metric_name(name: str, others: list[str]) -> None:
    """A dot and an underscore are one character in the name of a metric."""
    taken = {other.replace(".", "_") for other in others}
    assert (code_of(name, others=tuple(others)) == ErrorCode.NONE) == (name.replace(".", "_") not in taken)


@given(st.integers(1, PARTITION_COUNT_MAX + 5), st.integers(-5, PARTITION_COUNT_MAX + 5))
def test_a_topic_only_grows(current: int, total_count: int) -> None:
    if current < total_count <= PARTITION_COUNT_MAX:
        check_more_partitions("orders", current, total_count)
        return
    with pytest.raises(KafkaError) as refusal:
        check_more_partitions("orders", current, total_count)
    assert refusal.value.code == ErrorCode.INVALID_PARTITIONS
