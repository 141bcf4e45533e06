"""A refused change is reported to the owner of the disk, an unreadable log is not."""

from __future__ import annotations

import errno

import pytest

from kafkalite.common.errors import ErrorCode, Malformed
from kafkalite.log.partition.log_context import LogLocation
from kafkalite.log.storage.files import Files


class Reports(Files):
    def __init__(self) -> None:
        super().__init__()
        self.errors: list[tuple[str, OSError]] = []
        self.on_io_error = lambda directory, error: self.errors.append((directory, error))


@pytest.fixture
def location() -> LogLocation:
    return LogLocation("orders", 7, "/data/orders-7", Reports())


def test_a_refused_change_names_the_log_and_is_reported(location: LogLocation) -> None:
    fault = OSError(errno.EIO, "Input/output error")
    error = location.refusal(f"cannot flush {location.name}", fault)
    assert str(error) == "cannot flush orders-7 in /data/orders-7: Input/output error"
    assert location.files.errors == [("/data/orders-7", fault)]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (OSError(errno.EIO, "Input/output error"), "cannot read orders-7 in /data/orders-7: Input/output error"),
        (Malformed("a batch of -1 bytes"), "orders-7 is damaged in /data/orders-7: a batch of -1 bytes"),
    ],
)
def test_a_reader_is_given_a_storage_error_that_nobody_reports(
    location: LogLocation, fault: OSError | Malformed, words: str
) -> None:
    error = location.unreadable(fault)
    assert error.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert words in str(error)
    assert location.files.errors == []  # type: ignore[attr-defined]
