"""A log read as columns gives the same as the log read record by record."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkalite.coordinator.group import record_codec
from kafkalite.coordinator.group.consumer.group_tables import SetGroupEpoch, SetTargetEpoch
from kafkalite.coordinator.group.consumer.member_records import records_of
from kafkalite.coordinator.group.group import CONSUMER, SHARE
from kafkalite.coordinator.group.offset_store import OffsetAndMetadata
from kafkalite.coordinator.group.record_columns import read_offset_values
from kafkalite.coordinator.group_store import GroupLoader
from kafkalite.coordinator.runtime.column_loading import load_piece
from kafkalite.coordinator.runtime.partitioned_store import PartitionLoader
from kafkalite.coordinator.transaction_store import TransactionLoader
from kafkalite.protocol.records import GroupMetadataValue
from kafkalite.record.batch import build_batch
from kafkalite.record.message_set import build_message
from kafkalite.record.record import Record

Row = tuple[bytes | None, bytes | None]

GROUPS = ("g", "group-with-a-long-name", "group-with-a-long-nome")
PRODUCERS = (-1, 0, 9)


def offset(group: str, topic: str, index: int, value: int | None, metadata: str = "") -> Row:
    key = record_codec.offset_key(group, topic, index)
    return key, None if value is None else record_codec.offset_value(OffsetAndMetadata(value, 1, metadata, 5))


def a_group(name: str, generation: int | None) -> Row:
    value = GroupMetadataValue(protocol_type="consumer", generation=generation or 0, protocol=None, leader=None)
    return record_codec.group_key(name), None if generation is None else record_codec.group_value(value)


def an_epoch(name: str, epoch: int) -> Row:
    return records_of(name, [SetGroupEpoch(epoch, 7)])[0]


def a_target_epoch(name: str, epoch: int) -> Row:
    return records_of(name, [SetTargetEpoch(epoch, 7)])[0]


def old(row: Row) -> Row:
    """With version 0 of the key."""
    key, value = row
    return b"\0\0" + (key or b"")[2:], value


SHARED = b"\0\x0b of a share group", b"\0\0"
names = st.sampled_from(GROUPS)
numbers = st.integers(0, 99)
commits = st.builds(
    offset, names, st.sampled_from(["t", "topic"]), st.integers(-1, 3), st.none() | numbers, st.sampled_from(["", "é"])
)
usual = st.one_of(
    commits, commits, st.builds(a_group, names, st.none() | numbers), st.builds(an_epoch, names, numbers),
    st.builds(a_target_epoch, names, numbers), st.just(SHARED),
)  # fmt: skip
odd = st.sampled_from(
    [
        (None, b"no key"), (b"", b""), (b"\0", b"x"), (b"\0\1", b"\0\3"), (b"\0\1short", b"\0\3"), (b"\0\2", None),
        (record_codec.offset_key("g", "t", 0), b"\0\7 from the future"), (record_codec.offset_key("g", "t", 1), b""),
        (record_codec.offset_key("g", "t", 2) + b"more", offset("g", "t", 2, 1)[1]),
        (record_codec.offset_key("g", "t", 0), b"\0\3" + bytes(12) + b"\0\1\xff" + bytes(8)),
    ]
)  # fmt: skip
rows = st.lists(st.one_of(usual, usual, usual, usual, usual, commits.map(old), odd), min_size=1, max_size=6)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.lists(usual, min_size=1, max_size=30), st.sampled_from([None, *PRODUCERS])),
        st.tuples(st.just("write"), rows, st.sampled_from([None, *PRODUCERS])),
        st.tuples(st.just("end"), st.sampled_from(PRODUCERS), st.booleans()),
        st.tuples(st.just("compress"), rows, st.none()),
        st.tuples(st.just("damage"), rows, st.integers(61, 90)),
        st.tuples(st.just("old"), commits, st.none()),
    ),
    max_size=12,
)


def batch(step: tuple[Any, ...], base_offset: int) -> bytes:
    kind, what, how = step
    if kind == "old":
        return bytes(build_message(base_offset, *what, 5, magic=1))
    if kind == "end":
        marker = Record(0, 5, struct.pack(">hh", 0, how), struct.pack(">hi", 0, 0), ())
        return bytes(build_batch([marker], base_offset=base_offset, transactional=True, control=True, producer_id=what))
    attributes: dict[str, Any] = {"codec": 3} if kind == "compress" else {}
    if kind == "write" and how is not None:
        attributes = {"transactional": True, "producer_id": how, "producer_epoch": 0}
    written = build_batch([Record(0, 5, *row, ()) for row in what], base_offset=base_offset, **attributes)
    if kind == "damage":
        written[min(how, len(written) - 1)] ^= 0xFF
    return bytes(written)


def seen(loader: GroupLoader) -> dict[str, Any]:
    offsets = {}
    for group_id, store in loader.offsets.items():
        visible = {each: store.get(*each)._replace(order=0) for each in store}  # type: ignore[union-attr]
        pending = {
            producer_id: {each: committed._replace(order=0) for each, committed in transaction.offsets.items()}
            for producer_id, transaction in store.transactions.items()
        }
        offsets[group_id] = visible, pending
    return {
        "offsets": offsets,
        "groups": {group_id: value for group_id, (_, value) in loader.groups.items()},
        "steps": {
            group_id: (loader.kind_of(group_id), [loader.steps_of(group_id, kind) for kind in (CONSUMER, SHARE)])
            for group_id in loader.steps
        },
        "ids": sorted(loader.group_ids),
    }


def finished(loader: PartitionLoader, read: Callable[[], object]) -> PartitionLoader:
    read()
    list(loader.finish())
    return loader


def in_columns(loader: GroupLoader, pieces: list[bytes]) -> GroupLoader:
    finished(loader, lambda: [list(load_piece(loader, memoryview(each))) for each in pieces])
    return loader


def one_by_one(loader: GroupLoader, batches: list[bytes]) -> GroupLoader:
    finished(loader, lambda: loader.read(map(memoryview, batches)))
    return loader


@given(steps, st.integers(1, 12))
@example([("damage", [SHARED, an_epoch("g", 1)], 85)], 1)  # a length of a value that hides the count of headers
@example([("damage", [SHARED, an_epoch("g", 1)], 88)], 1)  # a count of headers
def test_columns_and_records_give_the_same(steps: list[tuple[Any, ...]], in_a_piece: int) -> None:
    batches = [batch(step, 100 * number) for number, step in enumerate(steps)]
    pieces = [b"".join(batches[start : start + in_a_piece]) for start in range(0, len(batches), in_a_piece)]
    assert seen(in_columns(GroupLoader(), pieces)) == seen(one_by_one(GroupLoader(), batches))


def test_usual_records_are_not_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupLoader, "known_key", lambda *_: pytest.fail("one by one"))
    batches = [
        batch(("write", [offset("g", "t", index, number) for index in range(5)], None), 5 * number)
        for number in range(20)
    ]
    batches.append(batch(("compress", [offset("g", "t", 0, 99), an_epoch("g", 3), a_group("h", 1)], None), 1_000))
    batches.append(batch(("write", [offset("g", "t", 1, None), offset("g", "t", 2, 98)], 9), 2_000))
    batches.append(batch(("end", 9, True), 2_002))
    loader = in_columns(GroupLoader(), [b"".join(batches)])
    store = loader.offsets["g"]
    assert {each[1]: store.get(*each).offset for each in store} == {0: 99, 1: 19, 2: 98, 3: 19, 4: 19}  # type: ignore[union-attr]
    assert list(loader.groups) == ["h"]
    assert (loader.kind_of("g"), loader.steps_of("g", CONSUMER)) == (CONSUMER, [SetGroupEpoch(3, 7)])


def test_commits_after_a_load_are_later() -> None:
    loader = in_columns(
        GroupLoader(), [batch(("write", [offset("g", "t", 0, number)], None), number) for number in (5, 6)]
    )
    store = loader.offsets["g"]
    found = store.get("t", 0)
    assert found is not None
    assert store.next_order() > found.order


def test_transactional_ids_are_read_as_columns_too() -> None:
    rows = [Record(0, 5, f"\0\0\0\x02t{number % 3}".encode(), b"%d" % number, ()) for number in range(9)]
    loader = TransactionLoader()
    found: dict[bytes, bytes] = {}
    loader.decode = lambda key, value, order, producer_id: found.__setitem__(key, value)  # type: ignore[method-assign]
    finished(loader, lambda: list(load_piece(loader, memoryview(bytes(build_batch(rows))))))
    assert found == {b"\0\0\0\2t0": b"6", b"\0\0\0\2t1": b"7", b"\0\0\0\2t2": b"8"}


values = st.one_of(
    st.builds(
        lambda metadata, value: record_codec.offset_value(OffsetAndMetadata(value, 3, metadata, value + 1)),
        st.sampled_from(["", "", "", "note", "é"]), st.integers(-1, 2**63 - 2),
    ),
    st.just(record_codec.offset_value(OffsetAndMetadata(5, 1, "", 6, expire_timestamp_ms=9))),
    st.binary(max_size=40),
    st.just(b"\0\3" + bytes(12) + b"\0\1\xff" + bytes(8)),
)  # fmt: skip


@given(st.lists(values, max_size=20), st.booleans())
def test_values_are_read_as_columns_or_left_to_the_codec(values: list[bytes], as_written: bool) -> None:
    usual = [each for each in values if len(each) >= 24 and each[:2] == b"\0\3"]
    entries = [(each, order) for order, each in enumerate(usual if as_written else values)]
    for (value, order), found in zip(entries, read_offset_values(entries), strict=True):
        if found is not None:
            assert found == record_codec.read_offset_value(value, order)
            assert type(found) is OffsetAndMetadata
        else:
            assert not as_written or b"\xff" in b"".join(usual) or len(value) != 24 + int.from_bytes(value[14:16])
