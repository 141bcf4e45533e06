"""The targets of the fuzzer: functions of bytes that return quietly whatever the bytes are, or have found something.

Only the errors that are documented may come out of the code below (`Malformed`, `KafkaError`), and each target also
compares two ways to the same thing: the framer with a plain split of the stream, a message with itself after a trip
over the wire, the record loop with the columns, a message set with the batch that it becomes and with what comes of
that. A finding is any other exception; `shrink` makes it small, and as a file in `findings/` it is replayed with every
run of the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from struct import pack_into, unpack_from
from unittest.mock import patch
from zlib import crc32

from kafkalite.common.errors import KafkaError, Malformed
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.topic_config import TopicConfig
from kafkalite.network import framing
from kafkalite.protocol.apis import SERVED
from kafkalite.protocol.codec.codec import decode, encoder
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.header import decode_request_header
from kafkalite.protocol.messages.fetch import FetchResponse
from kafkalite.record.batch import HEADER_BYTES, BatchHeader, compute_crc, iter_batches, parse_header
from kafkalite.record.columns import record_columns
from kafkalite.record.columns.batch_columns import scan
from kafkalite.record.compression import CODEC_NAMES, NONE, ZSTD, compress, decompress
from kafkalite.record.message_set import (
    V0,
    V1,
    build_message,
    build_set,
    entry_header,
    read_inner,
    read_message,
    read_messages,
    read_set,
)
from kafkalite.record.record import Record, read_records, record_times
from kafkalite.record.validation import record_validation
from kafkalite.record.validation.batch_validation import Rules, rewrite, validate
from kafkalite.record.validation.format_conversion import NotConvertible, to_batch, to_old_format
from kafkalite.record.validation.record_validation import find_faults, repack
from tests.system.hostile.fuzz_bombs import giant_value, many_records
from tests.system.hostile.fuzz_golden import SETTINGS, batch, golden_frames, mend_checksums

FRAME_BYTES_MAX = 2000
UNPACKED_BYTES_MAX = 1 << 20
NOW_MS = 1_700_000_000_000
_KEYS = tuple(SERVED)
_RULES = tuple(Rules(TopicConfig.build(settings, BrokerConfig())) for settings in SETTINGS.values())


# Framing


def frames(data: bytes) -> None:
    """The first byte says how the rest arrives: in pieces of what size, and which frames are answered late."""
    if not data:
        return
    step, late, stream = 1 + data[0] % 61, data[0] // 61, data[1:]
    with _small_memory():
        framer = framing.Framer(framing.FrameMemory(), FRAME_BYTES_MAX)
        found: list[bytes] = []
        fault = False
        for at in range(0, len(stream), step):
            piece = memoryview(stream)[at : at + step]
            while piece:
                room = framer.room()
                assert len(room) > 0, "there is always room"
                count = min(len(room), len(piece))
                room[:count] = piece[:count]
                framer.received(count)
                piece = piece[count:]
                try:
                    _hand_out(framer, found, late)
                except Malformed:
                    fault = True
            if fault:
                break
    assert (found, fault) == _split(stream), "the frames of a stream do not depend on how it arrives"


def _hand_out(framer: framing.Framer, found: list[bytes], late: int) -> None:
    """A turn: frames are handed out until one is answered late, which must stay as it is until then."""
    while True:
        parked: memoryview | None = None
        while (frame := framer.next_frame()) is not None:
            found.append(bytes(frame))
            if late and len(found) % (late + 1) == 0:
                parked = frame
                break
        framer.end_turn(parked is not None)
        if parked is None:
            return
        other = framing.Framer(framer._memory, FRAME_BYTES_MAX)  # another connection of the same processor
        room = other.room()
        room[:] = b"\xee" * len(room)
        other.end_turn(False)
        assert found[-1] == bytes(parked), "a frame stays as it is until it is answered"


@contextmanager
def _small_memory() -> Iterator[None]:
    """Slabs and large frames of a size that small inputs reach."""
    sizes = {"LARGE_FRAME_BYTES": 64, "SLAB_BYTES": 1024, "SLAB_ROOM_BYTES_MIN": 256, "SPARE_BYTES_MAX": 512}
    with patch.multiple(framing, **sizes):
        yield


def _split(stream: bytes) -> tuple[list[bytes], bool]:
    found = []
    while len(stream) >= 4:
        (size,) = unpack_from(">i", stream)
        if not 0 < size <= FRAME_BYTES_MAX:
            return found, True
        if len(stream) < 4 + size:
            break
        found.append(stream[4 : 4 + size])
        stream = stream[4 + size :]
    return found, False


# Messages


def messages(data: bytes) -> None:
    """A request frame without its size; or, if the first bit is set, a byte for the API, one for the version, and an
    answer."""
    frame = memoryview(bytearray(data))
    if len(data) > 2 and data[0] & 0x80:
        api = SERVED[_KEYS[(data[0] & 0x7F) % len(_KEYS)]]
        versions = api.max_version + 1 - api.min_version
        _check_message(api.response, api.min_version + data[1] % versions, frame, 2)
        return
    try:
        header, position = decode_request_header(frame)
    except Malformed:
        return
    api_or_none = SERVED.get(header.api_key)
    if api_or_none is not None and api_or_none.min_version <= header.api_version <= api_or_none.max_version:
        _check_message(api_or_none.request, header.api_version, frame, position)


def _check_message(kind: type[Message], version: int, frame: memoryview, position: int) -> None:
    try:
        message, end = decode(kind, version, frame, position)
    except Malformed:
        return
    assert position <= end <= len(frame)
    said = _encoded(message, version)
    again, size = decode(kind, version, memoryview(bytearray(said)))
    if isinstance(message, FetchResponse):  # whose null records are sent as none
        for data in (data for topic in message.responses for data in topic.partitions):
            data.records = memoryview(b"") if data.records is None else data.records
    # NaN is equal to nothing, but reads the same
    assert size == len(said) and (again == message or str(again) == str(message)), f"{message} became {again}"
    assert _encoded(again, version) == said


def _encoded(message: Message, version: int) -> bytes:
    parts: list[bytes] = []
    encoder(type(message), version)(message, parts)  # type: ignore[arg-type]
    return b"".join(parts)


# Batches


def batches(data: bytes) -> None:
    """A first byte of choices, then record batches. The choices may have the first one's header made right."""
    if not data:
        return
    choices, buffer = data[0], bytearray(data[1:])
    if choices & 1 and len(buffer) >= HEADER_BYTES:
        pack_into(">i", buffer, 8, len(buffer) - 12)
        buffer[16] = 2
        if choices & 2:
            (count,) = unpack_from(">i", buffer, 57)
            pack_into(">i", buffer, 23, max(-(2**31), count - 1))
            pack_into(">I", buffer, 17, compute_crc(buffer))
    view = memoryview(buffer)
    for one in _check_walks(view):
        _check_validation(one, choices % len(CODEC_NAMES))
    _check_append(view, _RULES[(choices >> 2) % len(_RULES)])
    _check_codec(1 + (choices >> 5) % 4, bytes(buffer))


def _check_walks(view: memoryview) -> list[memoryview]:
    """The batches. One by one and by columns they are the same, with the same records."""
    walked: list[memoryview] = []
    with suppress(Malformed):
        for header, one in iter_batches(view):
            assert header.size_bytes == len(one)
            walked.append(one)
    try:
        scanned = scan(view)
    except Malformed:
        pass
    else:
        assert len(scanned) >= len(walked)
        assert scanned.position.tolist()[: len(walked)] == [_offset_in(view, one) for one in walked]
    for one in walked:
        _check_records(one)
    return walked


def _check_records(one: memoryview) -> None:
    header = parse_header(one)
    by_loop = _or_none(lambda: read_records(one, UNPACKED_BYTES_MAX))
    by_columns = _or_none(lambda: _rows(record_columns.decode(one, headers=True, max_bytes=UNPACKED_BYTES_MAX)))
    if header.is_control or header.codec > len(CODEC_NAMES) - 1:
        return  # columns leave control batches out
    assert by_loop == by_columns, f"the loop reads {by_loop}, the columns {by_columns}"
    if by_loop is not None:
        assert list(record_times(one, UNPACKED_BYTES_MAX)) == [(record.offset, record.timestamp) for record in by_loop]


def _check_validation(one: memoryview, codec: int) -> None:
    """Records are checked and compressed anew one by one, or as columns where they are many: with the same outcome."""
    header = parse_header(one)
    if header.is_control or header.record_count == 0:
        return  # `validate` refuses it before

    def outcome(columns_min: int) -> object:
        with patch.object(record_validation, "COLUMNS_MIN", columns_min):
            try:
                faults = find_faults(one, keys_required=bool(codec), earliest_ms=header.base_timestamp + 1)
                packed = repack(one, codec, None)
            except Malformed:
                return None
        return faults, parse_header(packed).max_timestamp, read_records(packed)

    assert outcome(-1) == outcome(1 << 31)


def _check_append(view: memoryview, rules: Rules) -> None:
    """As a leader does it: what passes the check can be rewritten, and holds the same records afterwards."""
    records = memoryview(bytearray(view))
    try:
        header = BatchHeader._make(validate(records, rules, NOW_MS, 9))
        before = _or_none(lambda: read_records(records))
        out, after = rewrite(records, header, rules, NOW_MS)
    except KafkaError:
        return
    assert after == parse_header(out) and after.crc == compute_crc(out) and after.size_bytes == len(out)
    assert after.record_count == header.record_count
    if before is not None and out is not records:
        assert [record[2:] for record in read_records(out)] == [record[2:] for record in before]


def _check_codec(codec: int, data: bytes) -> None:
    """Garbage is Malformed or something within the limit; what is packed comes out again."""
    with suppress(Malformed):
        assert len(decompress(codec, data[HEADER_BYTES:], UNPACKED_BYTES_MAX)) <= UNPACKED_BYTES_MAX
    assert decompress(codec, compress(codec, data), len(data)) == data


def _rows(found: record_columns.Columns) -> list[Record]:
    """The records of columns, as objects."""
    data = found.data.tobytes()
    headers = found.headers
    assert headers is not None

    def text(start: int, end: int) -> bytes | None:
        return data[start:end] if end >= start else None

    rows = []
    for i in range(len(found)):
        own = []
        for j in range(int(headers.first[i]), int(headers.first[i + 1])):
            name = text(int(headers.key_start[j]), int(headers.key_end[j]))
            assert name is not None
            own.append((name.decode(errors="replace"), text(int(headers.value_start[j]), int(headers.value_end[j]))))
        key = text(int(found.key_start[i]), int(found.key_end[i]))
        value = text(int(found.value_start[i]), int(found.value_end[i]))
        rows.append(Record(int(found.offset[i]), int(found.timestamp[i]), key, value, tuple(own)))
    return rows


def _or_none(read: Callable[[], list[Record]]) -> list[Record] | None:
    try:
        return read()
    except Malformed:
        return None


def _offset_in(whole: memoryview, part: memoryview) -> int:
    import numpy as np

    first = np.frombuffer(whole, np.uint8).__array_interface__["data"][0]
    return int(np.frombuffer(part, np.uint8).__array_interface__["data"][0] - first)


# Message sets


def sets(data: bytes) -> None:
    """A first byte of choices, then a set of v0 or v1. The choices may have its entries' checksums made right, or put
    it into a wrapper."""
    if not data:
        return
    choices, buffer = data[0], bytearray(data[1:])
    if choices & 1:
        mend_checksums(buffer)
    if choices & 2:
        codec, magic = choices >> 2 & 3, choices >> 4 & 1
        packed = compress(codec, buffer)
        buffer = bytearray(build_message(choices >> 5, None, packed, NOW_MS, magic=magic, attributes=codec))
    _check_set(bytes(buffer))
    for rules in _RULES:
        _check_conversion(bytes(buffer), rules)


def _check_set(data: bytes) -> None:
    """The entries of a set add up to it, and each reads back unchanged on the way down."""
    try:
        found = read_set(data)
    except Malformed:
        found = []
    at = 0
    for message in found:
        entry = data[at : at + 12 + message.size]
        at += len(entry)
        assert read_message(entry) == message
        with suppress(Malformed):
            header = entry_header(entry)
            assert header.size_bytes == len(entry) and header.magic == message.magic
            records = read_messages(entry, UNPACKED_BYTES_MAX)
            assert len(records) == len(read_inner(entry, UNPACKED_BYTES_MAX))
            if message.magic == V1:
                down = to_old_format(header, memoryview(entry), V0, records[0].offset)
                assert [one[2:4] for one in _read_all(bytes(down))] == [one[2:4] for one in records]


def _check_conversion(data: bytes, rules: Rules) -> None:
    """An old message set that is accepted passes the check, and reads back unchanged in the old format."""
    try:
        batch = to_batch(memoryview(bytearray(data)), rules)
    except KafkaError:
        return
    if batch is None or data[16] == 2:
        return
    records = read_records(batch)
    try:
        header = BatchHeader._make(validate(batch, rules, NOW_MS, 7))
        out, header = rewrite(batch, header, rules, NOW_MS)
    except KafkaError:
        return
    sent = [one for entry in _entries(data) for one in read_inner(entry)]
    assert [one[2:4] for one in records] == [(one.key, one.value) for one in sent]
    if header.codec == ZSTD:
        with suppress(NotConvertible):
            to_old_format(header, out, V1, 0)
            raise AssertionError("zstd has no place in an old format")
        return
    for magic in (V0, V1):
        set_ = bytes(to_old_format(header, out, magic, 0))
        again = _read_all(set_)
        assert [one[2:4] for one in again] == [one[2:4] for one in records]
        assert [one.offset for one in again] == list(range(len(records)))
        for entry in _entries(set_):
            assert entry_header(entry).crc == crc32(entry[16:])


def _entries(data: bytes) -> Iterator[bytes]:
    at = 0
    for message in read_set(data):
        yield data[at : at + 12 + message.size]
        at += 12 + message.size


def _read_all(data: bytes) -> list[Record]:
    """The records of a whole set, wrappers unpacked and their checksums looked at."""
    return [record for entry in _entries(data) for record in read_messages(entry, check_crc=True)]


# All of them


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    "frames": frames,
    "messages": messages,
    "batches": batches,
    "sets": sets,
}


def seeds(target: str) -> Iterator[bytes]:
    """Good inputs to begin with."""
    golden = [frame for _, _, frame in golden_frames()]
    if target == "messages":
        yield from (frame[4:] for frame in golden)
        for at, api in enumerate(SERVED.values()):
            for version in range(api.min_version, api.max_version + 1):
                answer = api.response(**_one_of_each(api.response, version))
                yield bytes((0x80 | at, version - api.min_version)) + _encoded(answer, version)
    elif target == "frames":
        for at in range(0, len(golden), 5):
            yield bytes((at % 256, *b"".join(golden[at : at + 5])))
    elif target == "sets":
        yield from _seeds_of_sets()
    else:
        for codec in range(len(CODEC_NAMES)):
            for choices in range(0, 256, 7):
                yield bytes((choices,)) + batch(codec, count=1 + choices % 5)
            yield bytes((3,)) + batch(codec) + batch(codec, producer_id=4)
            if codec:
                yield bytes((3,)) + many_records(codec, 300) + bytes((3,)) + giant_value(codec, 9000)


def _seeds_of_sets() -> Iterator[bytes]:
    for magic in (V0, V1):
        rows = [(i, NOW_MS + i, None if i == 1 else b"k", None if i == 2 else b"value %d" % i) for i in range(4)]
        plain = build_set(rows, magic)
        for codec in (codec for codec in range(ZSTD) if codec != NONE):
            packed = build_set(rows, magic, codec=codec)
            stamped = build_set(rows, magic, codec=codec, timestamp_type=1)
            for choices in (0, 1):
                yield bytes((choices,)) + packed
                yield bytes((choices,)) + stamped
                yield bytes((choices,)) + packed + plain
            yield bytes((3 | codec << 2 | magic << 4 | 3 << 5,)) + plain
        yield bytes((1,)) + plain + plain[:-1]
        yield bytes((3 | 1 << 2 | magic << 4,)) + build_set(rows, magic, codec=1)
        yield bytes((1,)) + build_set([(i, i, None, None) for i in range(60)], magic)
    yield b"\1" + bytes(batch())


def _one_of_each(kind: type[Message], version: int) -> dict[str, object]:
    """One element in each array of structs, so that their fields are seen."""
    return {
        name: [field.kind(**_one_of_each(field.kind, version))]
        for name, field in kind.__fields__.items()
        if version in field.versions and field.is_array and isinstance(field.kind, type)
    }


def shrink(target: Callable[[bytes], None], data: bytes) -> bytes:
    """A smaller input that fails with the same kind of exception: pieces left out, from halves to single bytes.

    One that does not fail again (it took too much time or memory) stays as it is.
    """
    kind = _failure(target, data)
    size = 0 if kind is None else len(data) // 2
    while size:
        at = 0
        while at < len(data):
            shorter = data[:at] + data[at + size :]
            if _failure(target, shorter) is kind:
                data = shorter
            else:
                at += size
        size //= 2
    return data


def _failure(target: Callable[[bytes], None], data: bytes) -> type[Exception] | None:
    try:
        target(data)
    except Exception as error:
        return type(error)
    return None
