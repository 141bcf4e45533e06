"""Random messages, derived from the declarations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st

from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.codec.schema import Field, Kind, Message
from kafkalite.protocol.messages.log_dirs import CLEANING_TAG, OWN_TAG

VALUES = {
    "bool": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "uuid": st.uuids(),
    "string": st.text(max_size=12) | st.just("x" * 130),  # the latter needs a compact length of two bytes
    "bytes": st.binary(max_size=12) | st.just(bytes(200)),
    "records": st.binary(max_size=40).map(bytearray).map(memoryview),
}
BY_NAME = {
    # What the oracles can hold: known codes only, a timedelta, a date.
    "error_code": st.sampled_from([int(code) for code in ErrorCode]),
    "partition_error_code": st.sampled_from([int(code) for code in ErrorCode]),
    "log_append_time_ms": st.integers(-1, 2**40),
    "retention_time_ms": st.integers(-1, 2**40),
    "transaction_start_time_ms": st.integers(-1, 2**40),
    "issue_timestamp_ms": st.integers(-1, 2**40),
    "expiry_timestamp_ms": st.integers(-1, 2**40),
    "max_timestamp_ms": st.integers(-1, 2**40),
    "max_lifetime_ms": st.integers(-1, 2**40),
    "renew_period_ms": st.integers(-1, 2**40),
    "expiry_time_period_ms": st.integers(-1, 2**40),
}


def _values(name: str, field: Field, version: int) -> st.SearchStrategy[Any]:
    if isinstance(field.kind, Kind):
        values = BY_NAME.get(name, VALUES[field.kind.name])
    else:
        values = messages(field.kind, version)
    if field.is_array:
        values = st.lists(values, max_size=3)
    if version in field.nullable and not field.null_sent_as_empty:
        values = st.none() | values
    return values


def messages(message_type: type[Message], version: int) -> st.SearchStrategy[Message]:
    """Messages of this type; fields that the version does not have keep their defaults, and so do those that are our
    own: nobody else knows them."""
    fields = {
        name: _values(name, field, version)
        for name, field in message_type.__fields__.items()
        if version in field.versions and field.tag not in (OWN_TAG, CLEANING_TAG)
    }
    return st.builds(message_type, **fields)


@pytest.fixture(scope="session", name="messages")
def messages_fixture() -> Callable[[type[Message], int], st.SearchStrategy[Message]]:
    return messages
