from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.common.names import parse_uuid
from kafkalite.log.storage.checkpoint_file import (
    LaterVersion,
    decode_offsets,
    encode_offsets,
    encode_topic_id,
    read_offsets,
    read_topic_id,
)
from kafkalite.log.storage.files import Files


def test_offsets_are_written_as_kafka_writes_them() -> None:
    assert encode_offsets({("orders", 0): 42, ("a.b_c-d", 17): 0}) == b"0\n2\norders 0 42\na.b_c-d 17 0\n"
    assert encode_offsets({}) == b"0\n0\n"


def test_offsets_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_bytes(b"0\n2\norders 0 42\nlogs 3 7\n")
    assert read_offsets(Files(), str(path)) == {("orders", 0): 42, ("logs", 3): 7}
    path.write_bytes(b"")
    assert read_offsets(Files(), str(path)) == {}
    assert read_offsets(Files(), str(tmp_path / "none")) == {}


@pytest.mark.parametrize(
    "content",
    [b"1\n1\norders 0 42\n", b"0\n2\norders 0 42\n", b"0\n1\norders 0\n", b"0\nx\n", b"0\n1\norders 0 x\n", b"\xff\n"],
)
def test_a_corrupt_checkpoint_is_named_and_counts_as_empty(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_bytes(content)
    assert read_offsets(Files(), str(path)) == {}
    assert str(path) in caplog.text


def test_the_topic_id_stands_in_partition_metadata(tmp_path: Path) -> None:
    topic_id = parse_uuid("AAAAAAAAAAAAAAAAAAAAAQ")
    path = tmp_path / "partition.metadata"
    path.write_bytes(encode_topic_id(topic_id))
    assert path.read_bytes() == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    assert read_topic_id(Files(), str(path)) == topic_id == uuid.UUID(int=1)
    assert read_topic_id(Files(), str(tmp_path / "nowhere")) is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"version: 9\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", "unknown version 9"),
        (b"", "it has no version"),
        (b"garbage\n", "it has no version"),
        (b"version: x\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", "it has no version"),
        (b"version: 0\n", "it has no line 'topic_id: ...'"),
        (b"version: 0\ntopic_id: 12", "not a 22-character Kafka id: '12'"),
        (b"version: 0\ntopic_id: AAAAAAAAAAAA!!AAAAAAAAAAAQ", "not a 22-character Kafka id"),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "an id of zeros"),
        (b"version: 0\ntopic_id: \xff", "byte 21 is no text in UTF-8"),
    ],
)
def test_a_topic_id_that_cannot_be_read_is_explained(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "partition.metadata"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=words) as refusal:
        read_topic_id(Files(), str(path))
    assert isinstance(refusal.value, LaterVersion) == ("9" in words)


@given(st.binary() | st.lists(st.sampled_from(["0", "1", "a b", "x 0 1", "a 1 2", "", "0x1", "\u00b2"])).map("\n".join))
def test_a_checkpoint_is_read_or_refused_in_our_words(content: bytes | str) -> None:
    try:
        decode_offsets(content if isinstance(content, bytes) else content.encode())
    except ValueError as fault:
        assert not any(word in str(fault) for word in ("int()", "codec", "unpack", "sequence", "invalid literal"))
