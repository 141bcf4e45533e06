from __future__ import annotations

from kafkalite.log.storage import file_names


def test_names() -> None:
    assert file_names.parse_segment_file("00000000000000000042.log.deleted") == (42, ".log", ".deleted")
    assert file_names.parse_segment_file("00000000000000000042.timeindex") == (42, ".timeindex", "")
    assert file_names.parse_segment_file("42.log") is None
    assert file_names.parse_partition_directory("a-b-12") == ("a-b", 12)
    assert file_names.parse_partition_directory("a-01") is None
    for no_topic in ("with space-1", "bad\udcff-1", "a-2147483648", "x" * 250 + "-0"):
        assert file_names.parse_partition_directory(no_topic) is None, "its checkpoint could not be read again"
    assert file_names.parse_partition_directory("orders-0.0123456789abcdef0123456789abcdef-delete") is None
    future = "orders-3.0123456789abcdef0123456789abcdef-future"
    assert file_names.parse_future_directory(future) == ("orders", 3)
    assert file_names.parse_stray_partition(future.replace("future", "stray")) == 3
    for suffix in (file_names.DELETE_DIRECTORY, file_names.STRAY_DIRECTORY):
        gone = file_names.renamed_directory("x" * 249, 12, suffix)
        assert len(gone) == 255
        assert gone.endswith(suffix)
        assert file_names.parse_partition_directory(gone) is None
