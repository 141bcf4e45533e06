"""Golden bytes of `__consumer_offsets`, and the hand-written paths against the declared schemas."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.common.errors import Malformed
from kafkalite.coordinator.group import record_codec
from kafkalite.coordinator.group.offset_store import OffsetAndMetadata
from kafkalite.coordinator.group.record_codec import GroupKey, OffsetKey
from kafkalite.protocol.codec.codec import versioned
from kafkalite.protocol.records import (
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)

NAMES = st.text(max_size=40).filter(lambda text: len(text.encode("utf-8", "replace")) <= 120 and text.isprintable())
INT64 = st.integers(-(2**63), 2**63 - 1)


def hexed(text):
    return bytes.fromhex(text.replace("|", " "))


OFFSET_KEY = hexed("0001 | 0005 67726f7570 | 0006 6f7264657273 | 00000007")
GROUP_KEY = hexed("0002 | 0005 67726f7570")
OFFSET_VALUES = {
    0: hexed("0000 | 000000000000002a | 0004 6e6f7465 | 0000018bcfe56800"),
    1: hexed("0001 | 000000000000002a | 0004 6e6f7465 | 0000018bcfe56800 | 0000018bcfe56c00"),
    2: hexed("0002 | 000000000000002a | 0004 6e6f7465 | 0000018bcfe56800"),
    3: hexed("0003 | 000000000000002a | 00000005 | 0004 6e6f7465 | 0000018bcfe56800"),
    4: hexed("0004 | 000000000000002a | 00000005 | 05 6e6f7465 | 0000018bcfe56800 | 00"),
}
WITH_ID = hexed(f"{OFFSET_VALUES[4][:-1].hex()} | 01 00 10 0102030405060708090a0b0c0d0e0f10")  # as Kafka 4.3 writes it
COMMIT_MS = 0x018BCFE56800
_HEAD = "0008 636f6e73756d6572 | 00000003 | 0005 72616e6765 | 0003 612d31"  # consumer, generation 3, range, a-1
_MEMBER_REST = "00002710 | 00000002 0102 | 00000001 09"
GROUP_VALUES = {
    0: hexed(f"0000 | {_HEAD} | 00000001 | 0003 612d31 | 0001 61 | 0002 2f68 | {_MEMBER_REST}"),
    1: hexed(f"0001 | {_HEAD} | 00000001 | 0003 612d31 | 0001 61 | 0002 2f68 | 0000ea60 | {_MEMBER_REST}"),
    2: hexed(
        f"0002 | {_HEAD} | 0000018bcfe56800 | 00000001 | 0003 612d31 | 0001 61 | 0002 2f68 | 0000ea60 | {_MEMBER_REST}"
    ),
    3: hexed(
        f"0003 | {_HEAD} | 0000018bcfe56800 | 00000001"
        f"| 0003 612d31 | 0002 6931 | 0001 61 | 0002 2f68 | 0000ea60 | {_MEMBER_REST}"
    ),
    4: hexed(
        "0004 | 09 636f6e73756d6572 | 00000003 | 06 72616e6765 | 04 612d31 | 0000018bcfe56800 | 02"
        "| 04 612d31 | 03 6931 | 02 61 | 03 2f68 | 0000ea60 | 00002710 | 03 0102 | 02 09 | 00 | 00"
    ),
}


def a_group(version):
    return GroupMetadataValue(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader="a-1",
        current_state_timestamp=COMMIT_MS if version >= 2 else -1,
        members=[
            MemberMetadata(
                member_id="a-1",
                group_instance_id="i1" if version >= 3 else None,
                client_id="a",
                client_host="/h",
                rebalance_timeout=60_000 if version else 10_000,
                session_timeout=10_000,
                subscription=b"\1\2",
                assignment=b"\t",
            )
        ],
    )


def test_keys():
    assert record_codec.offset_key("group", "orders", 7) == OFFSET_KEY
    assert record_codec.group_key("group") == GROUP_KEY
    assert record_codec.read_key(OFFSET_KEY) == OffsetKey("group", "orders", 7)
    assert record_codec.read_key(b"\0\0" + OFFSET_KEY[2:]) == OffsetKey("group", "orders", 7)
    assert record_codec.read_key(GROUP_KEY) == GroupKey("group")
    assert record_codec.read_key(b"\0\3whatever a newer broker wrote") is None


@pytest.mark.parametrize("version", OFFSET_VALUES)
def test_offset_values_of_all_versions(version):
    epoch = 5 if version >= 3 else -1
    expire_ms = COMMIT_MS + 1024 if version == 1 else -1
    committed = OffsetAndMetadata(42, epoch, "note", COMMIT_MS, expire_ms)
    assert record_codec.read_offset_value(OFFSET_VALUES[version]) == committed
    if version in (1, 3):
        assert record_codec.offset_value(committed) == OFFSET_VALUES[version]


def test_an_offset_that_was_committed_by_id_has_the_id():
    committed = OffsetAndMetadata(42, 5, "note", COMMIT_MS, topic_id=uuid.UUID("01020304-0506-0708-090a-0b0c0d0e0f10"))
    assert record_codec.offset_value(committed) == WITH_ID
    assert record_codec.read_offset_value(WITH_ID) == committed


@pytest.mark.parametrize("version", GROUP_VALUES)
def test_group_values_of_all_versions(version):
    assert record_codec.read_group_value(GROUP_VALUES[version]) == a_group(version)
    if version:
        assert versioned(a_group(version), version) == GROUP_VALUES[version]
    assert record_codec.group_value(a_group(3)) == GROUP_VALUES[3]


def test_an_empty_group_has_null_where_there_is_no_protocol_and_no_leader():
    value = GroupMetadataValue(protocol_type="consumer", generation=4, current_state_timestamp=COMMIT_MS)
    value.protocol = value.leader = None
    expected = hexed("0003 | 0008 636f6e73756d6572 | 00000004 | ffff | ffff | 0000018bcfe56800 | 00000000")
    assert record_codec.group_value(value) == expected
    assert record_codec.read_group_value(expected) == value


def test_no_prefix_of_a_record_is_taken_for_a_record():
    for data, read in (
        (OFFSET_KEY, record_codec.read_key),
        (GROUP_KEY, record_codec.read_key),
        *((value, record_codec.read_offset_value) for value in OFFSET_VALUES.values()),
        *((value, record_codec.read_group_value) for value in GROUP_VALUES.values()),
    ):
        for size in range(len(data)):
            with pytest.raises(Malformed):
                read(data[:size])


@pytest.mark.parametrize("version", [b"\0\5", b"\xff\xff", b"\x7f\xff"])
def test_values_from_the_future_are_refused_by_name(version):
    for read in (record_codec.read_offset_value, record_codec.read_group_value):
        with pytest.raises(Malformed, match="is not known"):
            read(version + bytes(100))


@given(NAMES, NAMES, st.integers(-(2**31), 2**31 - 1), INT64, st.integers(-1, 2**31 - 1), NAMES, INT64)
def test_what_is_written_by_hand_is_what_the_schema_says(group, topic, index, offset, epoch, metadata, now_ms):
    key = OffsetCommitKey(group=group, topic=topic, partition=index)
    assert record_codec.offset_key(group, topic, index) == versioned(key, 1)
    value = OffsetCommitValue(offset=offset, leader_epoch=epoch, metadata=metadata, commit_timestamp=now_ms)
    assert record_codec.offset_value(OffsetAndMetadata(offset, epoch, metadata, now_ms)) == versioned(value, 3)


@given(st.integers(0, 4), INT64, st.integers(-1, 9), NAMES, INT64, INT64)
def test_values_are_read_as_the_codec_reads_them(version, offset, epoch, metadata, committed_ms, expires_ms):
    value = OffsetCommitValue(
        offset=offset, leader_epoch=epoch, metadata=metadata, commit_timestamp=committed_ms, expire_timestamp=expires_ms
    )
    found = record_codec.read_offset_value(versioned(value, version), 7)
    expected = OffsetAndMetadata(
        offset, epoch if version >= 3 else -1, metadata, committed_ms, expires_ms if version == 1 else -1, 7
    )
    assert found == expected
    assert type(found) is OffsetAndMetadata


@pytest.mark.parametrize("cut", range(1, 24))
def test_a_value_that_is_cut_off_is_malformed(cut):
    with pytest.raises(Malformed):
        record_codec.read_offset_value(OFFSET_VALUES[3][:-cut])


def test_the_beginning_of_an_offsets_key_names_the_group_and_the_topic():
    assert record_codec.read_offset_key_prefix(OFFSET_KEY[:-4]) == ("group", "orders")
    for other in (OFFSET_KEY[:-5], OFFSET_KEY, b"\0\0" + OFFSET_KEY[2:-4], GROUP_KEY[:-4], b"", b"\0"):
        assert record_codec.read_offset_key_prefix(other) is None


@given(st.binary(max_size=12), st.sampled_from([b"", b"\0\1", b"\0\0", b"\0\2"]))
def test_the_beginning_of_an_offsets_key_is_read_as_the_codec_reads_it(tail, head):
    prefix = head + tail
    try:
        key = record_codec.read_key(prefix + bytes(4))
    except Malformed:
        key = None
    expected = None
    if isinstance(key, record_codec.OffsetKey) and record_codec.offset_key(*key)[:-4] == prefix:
        expected = key.group_id, key.topic
    assert record_codec.read_offset_key_prefix(prefix) == expected
