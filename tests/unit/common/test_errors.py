"""Error codes: unknown numbers, and the codes after which clients retry."""

from __future__ import annotations

from kafkalite.common.errors import ErrorCode

_RETRIABLE = {
    *(2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78, 80, 83, 84, 88, 89),
    *(100, 103, 106, 122, 123, 133),
}
"""Numbers in org.apache.kafka.common.protocol.Errors (4.3) whose exception is a RetriableException."""


def test_codes_are_retriable_as_the_exceptions_of_java() -> None:
    assert {code.value for code in ErrorCode if code.is_retriable} == _RETRIABLE


def test_the_codes_are_those_of_kafka_4_3() -> None:
    assert {code.value for code in ErrorCode} == set(range(-1, 134))


def test_a_number_that_is_not_known_is_an_unknown_server_error() -> None:
    assert ErrorCode.of(12_345) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert ErrorCode.of(0) is ErrorCode.NONE
    assert ErrorCode.of(16) is ErrorCode.NOT_COORDINATOR
