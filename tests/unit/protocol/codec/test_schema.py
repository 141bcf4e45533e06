"""A class body of declarations becomes a class with slots, keywords and defaults."""

from __future__ import annotations

import copy
from uuid import UUID

import pytest

from kafkalite.protocol.codec.codec import decode, encoder
from kafkalite.protocol.codec.schema import (
    INT16,
    STRING,
    UUID16,
    Message,
    array,
    float64,
    int16,
    int32,
    nullable_struct,
    parse_versions,
    read_uvarint,
    string,
    struct,
    uint16,
    uuid,
    write_uvarint,
)


class Item(Message):
    name: str = string("0+")
    weight: float = float64("1+", default=1.5)


class Parcel(Message, flexible="2+"):
    port: int = uint16("0+", default=9)
    items: list[Item] | None = array(Item, "0+", nullable="1+")
    labels: list[str] = array(STRING, "0+")
    ids: list[UUID] = array(UUID16, "2+")
    numbers: list[int] = array(INT16, "0-1")
    note: str | None = string("2+", nullable="2+", tag=1)
    extra: Item | None = struct(Item, "2+", tag=0)
    owner: UUID = uuid("2+", tag=2)


class Session(Message):
    timeout_ms: int = int32("0+")
    names: list[str] = array(STRING, "0+")


class Member(Message, flexible="0+"):
    epoch: int = int16("0+", default=-1)
    session: Session | None = nullable_struct(Session, "1+")
    item: Session = struct(Session, "1+")
    classic: Session | None = nullable_struct(Session, "0+", tag=0)


def test_versions_are_written_as_in_a_kip() -> None:
    assert parse_versions("3+") == range(3, 32768)
    assert parse_versions("4-10") == range(4, 11)
    assert parse_versions("0") == range(1)
    assert 0 not in parse_versions("none")


def test_what_is_not_given_has_the_schemas_default() -> None:
    parcel = Parcel(numbers=[1])
    assert (parcel.port, parcel.items, parcel.numbers, parcel.note, parcel.extra) == (9, [], [1], None, None)
    assert Parcel(items=None).items is None
    assert Parcel().labels is not Parcel().labels


def test_there_is_no_other_field() -> None:
    with pytest.raises(TypeError):
        Parcel(prot=1)
    with pytest.raises(AttributeError):
        Parcel().prot = 1


def test_messages_are_equal_by_value_and_show_what_they_hold() -> None:
    assert Parcel(items=[Item(name="a")]) == Parcel(items=[Item(name="a")])
    assert Parcel(items=[Item(name="a")]) != Parcel(items=[Item(name="b")])
    assert Item() != Parcel()
    assert copy.deepcopy(Parcel(items=[Item(name="a")])) == Parcel(items=[Item(name="a")])
    assert repr(Item(name="a")) == "Item(name='a', weight=1.5)"


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("count", [0, 1, 8, 9, 200])
def test_every_kind_of_field_survives(version: int, count: int) -> None:
    parcel = Parcel(port=65535, labels=["label"] * count)
    parcel.items = [Item(name=str(i)) for i in range(count)]
    if version < 2:
        parcel.numbers = list(range(-1, count - 1))
    else:
        parcel.ids = [UUID(int=i) for i in range(count)]
        parcel.note = "n" * count
        parcel.owner = UUID(int=count)
        parcel.extra = Item(name="extra", weight=-0.25)
    parts: list[object] = []
    encoder(Parcel, version)(parcel, parts)
    data = bytearray(b"".join(parts))
    assert decode(Parcel, version, memoryview(data)) == (parcel, len(data))


@pytest.mark.parametrize("bits", range(33))
def test_varints_of_every_length(bits: int) -> None:
    for value in {max((1 << bits) - 1, 0), min(1 << bits, 0xFFFFFFFF)}:
        data = write_uvarint(value)
        assert read_uvarint(memoryview(data), 0) == (value, len(data))
        with pytest.raises(IndexError):
            read_uvarint(memoryview(data[:-1]), 0)


def test_a_nullable_struct_has_a_byte_before_it() -> None:
    full = Member(epoch=2, session=Session(timeout_ms=5), item=Session(names=["a"]), classic=Session(timeout_ms=6))
    for member, frame in (
        (Member(), "ffff ff 000000000100 01 00 01 00"),
        (full, "0002 01 000000050100 00000000 02 0261 00 01 00 07 01 000000060100"),
    ):
        parts: list[bytes] = []
        encoder(Member, 1)(member, parts)  # type: ignore[arg-type]
        assert b"".join(parts) == bytes.fromhex(frame)
        decoded, _ = decode(Member, 1, memoryview(b"".join(parts)))
        assert decoded == member
    assert decode(Member, 0, memoryview(bytes.fromhex("000200")))[0] == Member(epoch=2)
    assert decode(Member, 0, memoryview(bytes.fromhex("000201000100")))[0] == Member(epoch=2)
    assert Member().item is not Member().item
