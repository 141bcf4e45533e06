"""The decoders of the package that read bytes of others: requests, answers, files, records, tokens, certificates.

`tests/unit/test_decoders.py` gives hostile bytes to each of them. `tests/architecture/test_decoders.py` finds the
modules that take bytes apart: a new one is entered here, in `DECODERS` or, with a reason, in `NO_DECODERS`.
"""

from __future__ import annotations

import base64
import json
import os
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

from kafkalite.api.fast_path.wide_fetch import Wanted, WideFetch
from kafkalite.api.fast_path.wide_produce import Batches, WideProduce
from kafkalite.api.request.admission import AdmissionEpoch, TopicAdmission
from kafkalite.api.request.metrics_data import read_points
from kafkalite.api.request.request_context import RequestContext
from kafkalite.cleaner.compaction.segment_reader import read_pieces
from kafkalite.cleaner.job.job import CleaningFailed
from kafkalite.client.mirror.state_records import OffsetSync
from kafkalite.common.checksum import crc32c
from kafkalite.common.errors import KafkaError, Malformed, StorageError
from kafkalite.common.names import parse_uuid
from kafkalite.config.topic_config import TopicConfig
from kafkalite.console.decoders import wire
from kafkalite.console.decoders.wire import without_indexes
from kafkalite.console.messages.payload import FORMATS, SCALARS, Format, ScalarDecoder, parse_json, shown
from kafkalite.coordinator.group_store import GroupLoader
from kafkalite.coordinator.runtime.column_loading import load_piece
from kafkalite.coordinator.transaction_store import TransactionLoader
from kafkalite.inspection.files.log_file import rows_of_batch, window_bounds
from kafkalite.inspection.files.record_text import (
    FIELD_DECODERS,
    control_text,
    control_type,
)
from kafkalite.log.segment.record_count_file import decode_entries as decode_record_counts
from kafkalite.log.segment.record_counting import count
from kafkalite.log.segment.segment_file import iter_batches as iter_file_batches
from kafkalite.log.segment.segment_file import iter_headers
from kafkalite.log.state.producer_snapshots import SnapshotEntry, decode_snapshot, encode_snapshot
from kafkalite.log.storage.checkpoint_file import decode_entries, decode_offsets, decode_topic_id
from kafkalite.log.storage.files import Files
from kafkalite.metadata import metadata_journal
from kafkalite.protocol.apis import SERVED
from kafkalite.protocol.codec.codec import decode, encoder, versioned
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.header import decode_request_header, request_frame
from kafkalite.protocol.internal_records import (
    decode_group_record,
    decode_transaction_json,
    decode_transaction_record,
)
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.protocol.records import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
    assigned_partitions,
    subscribed_topics,
)
from kafkalite.reader.chunks.rows import has_right_crc, scan_entries
from kafkalite.record.batch import NewRecord, build_batch, iter_batches
from kafkalite.record.batches import whole_batches
from kafkalite.record.columns.batch_columns import scan
from kafkalite.record.columns.record_columns import decode as decode_columns
from kafkalite.record.columns.record_starts import find_unknown
from kafkalite.record.compression import CODECS, GZIP, LZ4, SNAPPY, ZSTD, compress, decompress
from kafkalite.record.json_lines import parse_json as parse_json_line
from kafkalite.record.message_set import V0, V1, build_set, read_messages, read_set
from kafkalite.record.record import read_records, record_times
from kafkalite.record.transaction_marker import read_marker
from kafkalite.record.validation.batch_validation import Rules, check_batches, validate
from kafkalite.record.validation.format_conversion import to_batch
from kafkalite.record.validation.record_validation import find_faults
from kafkalite.replication.leader_requests import fetched, pieces
from kafkalite.security.principal import alternative_names, subject_of
from kafkalite.security.sasl.client_exchange import SaltedPassword, ScramClient
from kafkalite.security.sasl.exchange import AuthenticationFailed, PlainExchange
from kafkalite.security.sasl.jwt import TokenRefused, TokenRules, verify_unsecured
from kafkalite.security.sasl.oauthbearer import OAuthBearerExchange, read_token
from kafkalite.security.sasl.scram import Decoys, ScramExchange, parse_credential
from kafkalite.testing.records.stored_record import matches
from kafkalite.zk.client.operations import Check, Create, Delete, OperationFailed, SetData
from kafkalite.zk.client.wire_requests import (
    GET_CHILDREN,
    GET_DATA,
    MULTI_END,
    MULTI_HEADER,
    Write,
    read_results,
    watch_event,
)
from kafkalite.zk.server import snapshot as znode_snapshot
from kafkalite.zk.server import transactions as znode_changes
from kafkalite.zk.server.access_lists import OPEN
from kafkalite.zk.server.refusals import Refused
from kafkalite.zk.server.sessions import Sessions
from kafkalite.zk.server.transaction_log import frame, read_log
from kafkalite.zk.server.transactions import CreateNode, DeleteNode, EndSession, OpenSession, SetAccessList, Transaction
from kafkalite.zk.server.transactions import decode as decode_transaction
from kafkalite.zk.server.transactions import encode as encode_transaction
from kafkalite.zk.server.znode_tree import ZnodeTree
from kafkalite.zk.znodes import znode_data
from tests.support import otlp
from tests.support.manual_clock import ManualClock


class Decoder(NamedTuple):
    """`decode` reads the bytes to their end. It may raise `refusals`, and nothing else. `modules` are those whose code
    it runs, `seeds` valid inputs; `attacks` were too much once, for this decoder or one of its kind."""

    name: str
    modules: tuple[str, ...]
    decode: Callable[[bytes], Any]
    seeds: tuple[bytes, ...]
    refusals: tuple[type[Exception], ...] = (Malformed,)
    attacks: tuple[bytes, ...] = ()


_RECORDS = [NewRecord(b"key", b"value", (("name", b"1"), ("null", None)), 7), NewRecord(None, None, (), 9)]
_MESSAGES = [(0, 5, b"key", b"value"), (1, 6, None, b"v"), (2, 7, b"", None)]
_BATCHES = tuple(bytes(build_batch(_RECORDS, codec=codec)) for codec in CODECS.values())
_MARKER = bytes(build_batch([NewRecord(b"\0\0\0\1", b"\0\0\0\0\0\1", (), 3)], control=True, transactional=True))
_SETS = tuple(build_set(_MESSAGES, magic, codec=codec) for magic in (V0, V1) for codec in (0, GZIP, SNAPPY, LZ4))
_LOG = (*_BATCHES, b"".join(_BATCHES), _SETS[0] + _BATCHES[0], *_SETS)
_KEYED = Rules(TopicConfig(cleanup_policy=("compact",)))
_RULES = Rules(TopicConfig())


_WIDE_VERSIONS = (7, 12, 13)
_WIDE_ID = UUID(int=5)


def _wide_frame(version: int) -> bytes:
    data = [PartitionProduceData(index=index, records=memoryview(build_batch(_RECORDS))) for index in (0, 1)]
    topics = [TopicProduceData(name="t", topic_id=_WIDE_ID, partition_data=data)] * 2
    return request_frame(ProduceRequest(acks=1, topic_data=topics), version, 7, "c")[4:]


@cache
def _wide_paths() -> list[WideProduce]:
    """Paths that know the topic "t" with two partitions."""
    topic: Any = SimpleNamespace(internal=False, partitions={0: None, 1: None})
    admitted = TopicAdmission(topic, 1, None, 3)
    slow_path: Any = SimpleNamespace(
        admission=SimpleNamespace(epoch=AdmissionEpoch(), topic=lambda *_: admitted),
        replica_manager=SimpleNamespace(by_name={}),
    )
    connection: Any = SimpleNamespace(quotas=None)
    paths = []
    for version in _WIDE_VERSIONS:
        frame = memoryview(_wide_frame(version))
        header, position = decode_request_header(frame)
        request, _ = decode(ProduceRequest, version, frame, position)
        for topic_data in request.topic_data:
            topic_data.name = "t"
        acks_at = position + (1 if version in ProduceRequest.flexible else 2)
        context = RequestContext(connection, header.api_version, "c")
        path = WideProduce(slow_path, frame, version, acks_at, context)
        path.learn(frame, request, context)
        paths.append(path)
    return paths


def _find_in_known(data: bytes) -> None:
    for path in _wide_paths():
        path.find(memoryview(data), Batches())


_FETCH_VERSIONS = (5, 11, 12, 13)


def _wide_fetch_frame(version: int) -> bytes:
    partitions = [FetchPartition(partition=index, fetch_offset=5, partition_max_bytes=9) for index in (0, 1)]
    topics = [FetchTopic(topic="t", topic_id=_WIDE_ID, partitions=partitions)]
    request = FetchRequest(max_wait_ms=1, min_bytes=1, max_bytes=9, topics=topics)
    return request_frame(request, version, 7, "c")[4:]


@cache
def _wide_fetch_paths() -> list[WideFetch]:
    """Paths that know the topic "t" with two partitions."""
    log = SimpleNamespace(start_offset=0, read=lambda *_: None)
    partition = SimpleNamespace(leader_epoch=0, last_stable_offset=5, high_watermark=5, log=log)
    config = SimpleNamespace(compression_type="producer")
    topic = SimpleNamespace(name="t", topic_id=_WIDE_ID, config=config, partitions={0: partition, 1: partition})
    topics = SimpleNamespace(by_name={"t": topic}, by_id={_WIDE_ID: topic})
    slow_path: Any = SimpleNamespace(admission_epoch=AdmissionEpoch(), replica_manager=topics)
    connection: Any = SimpleNamespace(quotas=None)
    paths = []
    for version in _FETCH_VERSIONS:
        frame = memoryview(_wide_fetch_frame(version))
        _, position = decode_request_header(frame)
        request, _ = decode(FetchRequest, version, frame, position)
        path = WideFetch(slow_path, frame, RequestContext(connection, version, "c"))
        path.learn(frame, request, 1 << 20)
        paths.append(path)
    return paths


def _read_known(data: bytes) -> None:
    for path in _wide_fetch_paths():
        for head in path.heads.values():
            path.read(memoryview(data), head, Wanted())


def _in_file(read: Callable[[int, int], Any]) -> Callable[[bytes], Any]:
    """A decoder of (descriptor of a file with these bytes, their number)."""

    def decode_file(data: bytes) -> Any:
        fd = os.memfd_create("hostile")
        try:
            os.pwrite(fd, data, 0)
            return read(fd, len(data))
        finally:
            os.close(fd)

    return decode_file


@cache
def _messages() -> list[tuple[type[Message], int]]:
    """Each message in each of its versions."""
    return [
        (kind, version)
        for api in SERVED.values()
        for kind in (api.request, api.response)
        for version in range(api.min_version, api.max_version + 1)
    ]


def _any_message(data: bytes) -> Any:
    """The first two bytes choose the message."""
    messages = _messages()
    kind, version = messages[int.from_bytes(data[:2], "big") % len(messages)]
    return decode(kind, version, memoryview(data[2:]))


def _defaults() -> tuple[bytes, ...]:
    found = []
    for number, (kind, version) in enumerate(_messages()):
        parts: list[Any] = []
        try:
            encoder(kind, version)(kind(), parts)
        except (TypeError, AttributeError, struct.error):  # a field without a default
            parts = []
        found.append(number.to_bytes(2, "big") + b"".join(parts))
    return tuple(found)


def _all_of(*functions: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Each function gets the bytes; the first refusal is the answer, after all were asked."""

    def ask(data: bytes) -> None:
        refusal: Exception | None = None
        for function in functions:
            try:
                function(data)
            except (ValueError, KafkaError) as fault:
                refusal = fault
        if refusal is not None:
            raise refusal

    return ask


def _load_groups(data: bytes) -> None:
    loader = GroupLoader()
    loader.read([memoryview(data)])
    for _ in loader.finish():
        pass


def _load_groups_in_columns(data: bytes) -> None:
    loader = GroupLoader()
    for _ in (*load_piece(loader, memoryview(data)), *loader.finish()):
        pass


def _load_transactions(data: bytes) -> None:
    loader = TransactionLoader()
    loader.read([memoryview(data)])
    for _ in loader.finish():
        pass


def _old_rows(data: bytes) -> None:
    entries, fault = scan_entries(memoryview(data))
    for entry in entries:
        has_right_crc(memoryview(data), entry)
    if fault is not None:
        raise fault


_SCRAM = parse_credential("salt=c2FsdHNhbHRzYWx0c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=4096")


def _scram(data: bytes) -> None:
    exchange = ScramExchange("SCRAM-SHA-256", lambda _: _SCRAM, Decoys(b"secret").credential)
    exchange.evaluate(b"n,,n=user,r=nonce" if data[:1] == b"c" else data)
    exchange.evaluate(data)


def _scram_client(data: bytes) -> None:
    ScramClient("SCRAM-SHA-256", "user", SaltedPassword("sha256", "secret")).answer(data)


def _bearer(data: bytes) -> None:
    exchange = OAuthBearerExchange(lambda text: verify_unsecured(text, TokenRules(), 0), lambda: 0.0, lambda _: None)
    exchange.evaluate(data)


def _jwt(header: object, claims: object) -> str:
    parts = (base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in (header, claims))
    return ".".join([*parts, ""])


_TOKEN = _jwt({"alg": "none"}, {"sub": "user", "exp": 100, "iat": 1})
_DEEP_TOKEN = ".".join([base64.urlsafe_b64encode(b'{"alg":"none","a":' + b"[" * 40_000).decode(), "YQ", ""])


def _element(tag: int, content: bytes) -> bytes:
    size = len(content)
    length = bytes((size,)) if size < 128 else b"\x83" + size.to_bytes(3, "big")
    return bytes((tag,)) + length + content


def certificate(subject: bytes, extensions: bytes = b"") -> bytes:
    """As much of a certificate in DER as has a subject, which is the content of its sequence."""
    fields = [_element(2, b"\1"), _element(0x30, b""), _element(0x30, b""), _element(0x30, b"")]
    fields += [_element(0x30, subject), _element(0x30, b""), _element(0xA3, _element(0x30, extensions))]
    return _element(0x30, _element(0x30, b"".join(fields)))


def attribute(oid: bytes, value: bytes) -> bytes:
    return _element(0x31, _element(0x30, _element(6, oid) + _element(0x0C, value)))


_SUBJECT = attribute(b"\x55\x04\x03", b"test") + attribute(b"\x2a\x86\x48\x86\xf7\x0d\x01\x09\x01", b"a@b")
_NAMES = _element(0x30, _element(6, b"\x55\x1d\x11") + _element(4, _element(0x30, _element(0x82, b"host"))))

_PATHS = ("/a", "/b")
_WRITES = (
    Write([Create("/a", b""), SetData("/b", b"1"), Delete("/c"), Check("/d", 1)], "", secure=False),
    Write([Create("/a", b"")], "", secure=False),
)


def _zookeeper_answers(data: bytes) -> None:
    for write in _WRITES:
        _ignoring(lambda write=write: write.created((data, 0)))
    _ignoring(lambda: watch_event(data, 0))
    read_results(_PATHS, (data, 0))


def _zookeeper_requests(data: bytes) -> None:
    """The first byte is the type of the request."""
    zookeeper = Sessions(ZnodeTree(), ManualClock())
    zookeeper.serve(zookeeper.open(1000), data[0] if data else 0, data[1:])


def _zookeeper_snapshot(data: bytes) -> None:
    """With the checksum that fits, so that the rest is read."""
    znode_snapshot.decode_snapshot(data[:4] + crc32c(data[8:]).to_bytes(4, "big") + data[8:])


_ZK_STRING, _ZK_LIST = b"\0\0\0\2/a", b"\0\0\0\1\0\0\0\x1f\0\0\0\5world\0\0\0\6anyone"
_ZK_CREATE = _ZK_STRING + b"\0\0\0\1d" + _ZK_LIST + b"\0\0\0\3"
_ZK_TRANSACTIONS = tuple(
    encode_transaction(Transaction(1, 2, 3, operations))
    for operations in (
        (CreateNode("/a", b"d"), znode_changes.SetData("/a", None), DeleteNode("/a")),
        (OpenSession(1, 2, b"p"), SetAccessList("/a", OPEN), EndSession(1)),
    )
)


def _ignoring(call: Callable[[], Any]) -> None:
    with suppress(Malformed, OperationFailed):
        call()


_ZNODES = (
    znode_data.parse_broker, znode_data.parse_registration, znode_data.parse_topic, znode_data.parse_state,
    znode_data.parse_config, znode_data.parse_controller, znode_data.parse_controller_epoch,
    znode_data.parse_cluster_id, znode_data.parse_producer_id_block, znode_data.parse_partitions,
    znode_data.parse_reassignment, znode_data.parse_feature,
)  # fmt: skip
_ZNODE_SEEDS = (
    b'{"version":5,"endpoints":["PLAINTEXT://h:1"],"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"}}',
    b'{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","partitions":{"0":[1,2]},"adding_replicas":{}}',
    b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}',
    b'{"version":1,"config":{"a":"b"}}', b'{"version":1,"brokerid":1,"timestamp":"1"}', b"17",
    b'{"version":"1","id":"x"}',
    b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}',
    b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1]}]}',
)  # fmt: skip
_OWNED = ConsumerProtocolAssignment(
    assigned_partitions=[
        TopicPartitions(topic="orders", partitions=[0, 1, 2]),
        TopicPartitions(topic="x", partitions=[]),
    ]
)
_SUBSCRIBED = ConsumerProtocolSubscription(topics=["orders", "x"])


def _turning_back(count: int) -> bytes:
    """An assignment with the length of a topic's name that leads back to itself, over `count` partitions inside of the
    name before, which are read again each time. `count` is ASCII."""
    name = struct.pack(">i", count) + bytes(4 * count - 4)
    return struct.pack(">hih", 0, 5 * count, len(name)) + name + struct.pack(">ih", 0, -6 - 4 * count) + bytes(count)


DECODERS = (
    Decoder(
        "metrics of clients",
        ("api/request/metrics_data.py",),
        lambda data: list(read_points(data)),
        (otlp.gauge("lag", 2.5), otlp.delta("sent", 7)),
    ),
    Decoder(
        "offset sync of a mirror",
        ("client/mirror/state_records.py",),
        lambda data: OffsetSync.read(data[:20], data[20:36], (("records", data[36:]),)),
        (b"\0\x0ea-topic-of-wes" + bytes(4) + bytes(16) + b"17", b"\0\1t" + bytes(33)),
    ),
    Decoder(
        "assignment of a member",
        ("protocol/records.py",),
        assigned_partitions,
        (versioned(_OWNED, 0),),
        (),
        (_turning_back(868), b"\0\0\x7f\xff\xff\xff" + b"\xff\xfa" * 1_000),
    ),
    Decoder(
        "subscription of a member",
        ("protocol/records.py",),
        lambda data: subscribed_topics(data) is not None,
        (versioned(_SUBSCRIBED, 1),),
        (),
        (b"\0\0\x7f\xff\xff\xff" + b"\xff\xfe" * 1_000,),
    ),
    Decoder(
        "request or answer",
        ("protocol/codec/decoder_source.py", "protocol/codec/source_writer.py", "protocol/codec/codec.py"),
        _any_message,
        _defaults(),
    ),
    Decoder(
        "header of a request",
        ("protocol/header.py",),
        lambda data: decode_request_header(memoryview(data)),
        (b"\0\x12\0\3\0\0\0\1\0\1c\0", b"\0\3\0\1\0\0\0\1\xff\xff"),
    ),
    Decoder(
        "records of a batch",
        ("record/batch.py", "record/transaction_marker.py"),
        _all_of(
            lambda data: list(iter_batches(data)),
            read_records,
            lambda data: list(record_times(data)),
            lambda data: read_marker(memoryview(data)),
        ),
        (*_BATCHES, _MARKER),
    ),
    Decoder(
        "messages of old formats",
        ("record/message_set.py",),
        _all_of(read_set, read_messages),
        _SETS,
    ),
    Decoder(
        "columns of batches",
        ("record/columns/batch_columns.py", "record/columns/record_columns.py", "record/columns/varint_columns.py"),
        _all_of(scan, lambda data: decode_columns(data, headers=True, check_crc=False, max_bytes=1 << 20)),
        (*_BATCHES, b"".join(_BATCHES)),
    ),
    Decoder(
        "compressed bytes",
        ("record/compression.py",),
        _all_of(*[lambda data, codec=codec: decompress(codec, data, 1 << 20) for codec in (GZIP, SNAPPY, LZ4, ZSTD)]),
        (
            *[compress(codec, b"abc" * 50) * times for codec in (GZIP, SNAPPY, LZ4, ZSTD) for times in (1, 3)],
            b"\x50\x2a\x4d\x18\0\0\0\0",
        ),
    ),
    Decoder(
        "produce for many partitions",
        ("api/fast_path/wide_produce.py",),
        _find_in_known,
        tuple(map(_wide_frame, _WIDE_VERSIONS)),
    ),
    Decoder(
        "fetch of many partitions",
        ("api/fast_path/wide_fetch.py",),
        _read_known,
        tuple(map(_wide_fetch_frame, _FETCH_VERSIONS)),
    ),
    Decoder(
        "produced batch",
        (
            "record/validation/batch_shapes.py",
            "record/validation/batch_validation.py",
            "record/validation/format_conversion.py",
            "record/columns/record_starts.py",
        ),
        _all_of(
            lambda data: validate(memoryview(data), _KEYED, 0, 9),
            lambda data: find_faults(memoryview(data), keys_required=True, earliest_ms=0),
            lambda data: to_batch(memoryview(data), _RULES),
            lambda data: find_unknown(data, 0, 20),
        ),
        _LOG,
        (Malformed, KafkaError),
    ),
    Decoder(
        "batches of a leader",
        ("replication/leader_requests.py",),
        _all_of(
            lambda data: check_batches(memoryview(data), 0),
            lambda data: list(pieces(memoryview(data))),
            lambda data: fetched(memoryview(data)),
        ),
        _LOG,
        (Malformed, KafkaError),
    ),
    Decoder(
        "batches of a segment",
        ("log/segment/segment_file.py",),
        _all_of(
            _in_file(lambda fd, size: list(iter_headers(fd, 0, size))),
            _in_file(lambda fd, size: list(iter_file_batches(fd, 0, size))),
            _in_file(lambda fd, size: count(fd, 0, size)),
        ),
        _LOG,
    ),
    Decoder(
        "segment to be compacted",
        ("cleaner/compaction/segment_reader.py",),
        _in_file(lambda fd, size: list(read_pieces(Files(), f"/proc/self/fd/{fd}", size))),
        _LOG,
        (CleaningFailed,),
    ),
    Decoder("old messages of a segment", ("reader/chunks/rows.py",), _old_rows, _LOG),
    Decoder(
        "window of a segment",
        ("inspection/files/log_file.py",),
        _all_of(
            lambda data: window_bounds(memoryview(data)),
            lambda data: rows_of_batch(memoryview(data)) if len(data) > 26 else None,
        ),
        _LOG,
    ),
    Decoder(
        "batches of every format",
        ("record/batches.py",),
        lambda data: list(whole_batches(memoryview(data))),
        _LOG,
    ),
    Decoder(
        "answers of a decoder process",
        ("console/decoders/wire.py",),
        _all_of(lambda data: wire.Frames().feed(data), without_indexes),
        (wire.encode_frame(wire.DONE, "{}") + wire.encode_frame(wire.FAULT, "x"), b"\0\0\0\0\1\4\2\2x"),
        attacks=(b"\0\0\0\0\0" * 800, b"\0\0\0\0\1" + b"\xfe\xff\xff\xff\x0f" * 700),
    ),
    Decoder(
        "payload in the console",
        ("console/messages/payload.py",),
        _all_of(
            *[lambda data, name=name: shown(data, Format(name)) for name in FORMATS[:4]],
            *[lambda data, name=name: shown(data, Format(name, ScalarDecoder(name))) for name in SCALARS],
            parse_json,
        ),
        (b'{"a": [1, null, "x"]}', b"text", b"\0\1"),
        (ValueError,),
    ),
    Decoder(
        "lines of JSON to produce",
        ("record/json_lines.py",),
        parse_json_line,
        (
            b'{"value": {"a": [1.10, "x"]}, "headers": [{"name": "h", "value": 1}]}',
            b'{"value": "v", "headers": {"h": null}}',
        ),
        (ValueError,),
        attacks=(
            b'{"value": 1, "headers": {' + b'"a":[],' * 570 + b'"a":[]}}',
            b'{"value": 1, "headers": [' + b'{"name":"","value":[]},' * 170 + b'{"name":"","value":[]}]}',
        ),
    ),
    Decoder(
        "topic of offsets and groups",
        ("coordinator/group_store.py", "coordinator/group/record_codec.py"),
        _load_groups,
        (*_LOG, _MARKER),
        (),
    ),
    Decoder(
        "topic of offsets and groups in columns",
        ("coordinator/runtime/last_values.py", "record/columns/keyed_records.py"),
        _load_groups_in_columns,
        (*_LOG, _MARKER),
        (),
    ),
    Decoder(
        "topic of transactions", ("coordinator/runtime/partitioned_store.py",), _load_transactions, (*_LOG, _MARKER), ()
    ),
    Decoder(
        "records of internal topics in a dump",
        ("inspection/files/record_text.py", "protocol/internal_records.py"),
        _all_of(
            lambda data: decode_group_record(data[: len(data) // 2], data[len(data) // 2 :], 0),
            lambda data: decode_transaction_record(data[:10], data[10:], 0),
            lambda data: decode_transaction_json(data[:10], data[10:], 0),
            lambda data: decode_group_record(b"\0\2\0\1g", data, 0),
            lambda data: control_text(data[:4], data[4:]) and control_type(data),
            *[lambda data, read=read: read(data) for read in FIELD_DECODERS.values()],
        ),
        (versioned(_OWNED, 0), versioned(_SUBSCRIBED, 1), b"\0\0\0\1\0\0\0\0\0\1"),
    ),
    Decoder(
        "files beside a segment",
        ("log/state/producer_snapshots.py", "log/segment/record_count_file.py"),
        _all_of(decode_snapshot, decode_record_counts),
        (encode_snapshot([SnapshotEntry(1, 0, 1, 1, 0, 1, 0, -1)] * 2),),
    ),
    Decoder(
        "checkpoints",
        ("common/names.py",),
        _all_of(
            decode_offsets,
            lambda data: decode_entries(data, 2),
            lambda data: decode_topic_id(data) if b"topic_id: " in data else None,
            lambda data: parse_uuid(data.decode("latin-1")),
        ),
        (b"0\n1\ntopic 0 17\n", b"0\n2\n0 0\n1 5\n", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"),
        (ValueError,),
    ),
    Decoder(
        "journal of the metadata",
        ("metadata/metadata_journal.py",),
        lambda data: metadata_journal.decode(data, "file"),
        (metadata_journal.encode({"type": "x"}) * 2,),
        (metadata_journal.CorruptJournal,),
    ),
    Decoder(
        "subject of a certificate",
        ("security/principal.py",),
        _all_of(subject_of, alternative_names),
        (certificate(_SUBJECT, _NAMES),),
        (ValueError,),
        (certificate(attribute(b"\xff" * 50_000 + b"\1", b"x")),),
    ),
    Decoder(
        "logins",
        ("security/sasl/scram.py", "security/sasl/scram.py"),
        _all_of(
            lambda data: _as_value_error(_scram, data),
            lambda data: _as_value_error(PlainExchange({"user": "secret"}).evaluate, data),
            lambda data: _as_value_error(_bearer, data),
            _scram_client,
            lambda data: parse_credential(data.decode("latin-1")),
        ),
        (b"n,,n=user,r=nonce", b"\0user\0secret", f"n,,\1auth=Bearer {_TOKEN}\1\1".encode(), b"c=biws,r=nonce,p=AAAA"),
        (ValueError,),
    ),
    Decoder(
        "bearer tokens",
        ("security/sasl/jwt.py",),
        _all_of(
            lambda data: _as_value_error(lambda text: verify_unsecured(text, TokenRules(), 0), data.decode("latin-1")),
            lambda data: read_token(data.decode("latin-1")),
        ),
        (_TOKEN.encode(), _DEEP_TOKEN.encode()),
        (ValueError,),
    ),
    Decoder(
        "answers of ZooKeeper",
        ("zk/client/wire_requests.py",),
        _zookeeper_answers,
        (
            MULTI_HEADER.pack(GET_DATA, 0, 0) + b"\0\0\0\1d" + bytes(68)
            + MULTI_HEADER.pack(GET_CHILDREN, 0, 0) + b"\0\0\0\2\0\0\0\1a\0\0\0\1b" + MULTI_END,
            MULTI_HEADER.pack(1, 0, 0) + b"\0\0\0\2/a"
            + MULTI_HEADER.pack(-1, 0, -101) + b"\xff\xff\xff\x9b" + MULTI_END,
        ),
        (Malformed, OperationFailed),
        (MULTI_HEADER.pack(GET_CHILDREN, 0, 0) + b"\x7f\xff\xff\xff" + b"\xff\xff\xff\xfc" * 3,),
    ),
    Decoder(
        "requests to the ZooKeeper of our own",
        ("zk/server/requests.py", "zk/server/transactions.py"),
        _zookeeper_requests,
        (
            *(bytes([kind]) + _ZK_CREATE for kind in (1, 15, 19)),
            b"\x0e" + MULTI_HEADER.pack(1, 0, -1) + _ZK_CREATE + MULTI_HEADER.pack(2, 0, -1) + _ZK_STRING + b"\xff" * 4
            + MULTI_END,
            b"\x16" + MULTI_HEADER.pack(4, 0, -1) + _ZK_STRING + b"\1" + MULTI_END,
            b"\x69" + bytes(8) + (b"\0\0\0\1" + _ZK_STRING) * 5,
            *(bytes([kind]) + _ZK_STRING + b"\0\0\0\1" for kind in (3, 4, 6, 8, 12, 17, 103, 106)),
        ),
        (Refused,),
        (b"\x65" + bytes(8) + b"\x7f\xff\xff\xff" * 3, b"\x07" + _ZK_STRING + b"\x7f\xff\xff\xff" * 3),
    ),
    Decoder("transactions of ZooKeeper", ("zk/server/transactions.py",), decode_transaction, _ZK_TRANSACTIONS),
    Decoder(
        "logs of ZooKeeper",
        ("zk/server/transaction_log.py",),
        lambda data: list(read_log(data, "log.0")),
        (b"".join(map(frame, _ZK_TRANSACTIONS)),),
        (StorageError, Malformed),
    ),
    Decoder(
        "snapshots of ZooKeeper",
        ("zk/server/snapshot.py",),
        _zookeeper_snapshot,
        (znode_snapshot.encode_snapshot(ZnodeTree()),),
    ),
    Decoder(
        "contents of znodes",
        ("zk/znodes/json_object.py",),
        _all_of(*_ZNODES),
        _ZNODE_SEEDS,
        (ValueError,),
        (b'{"a":' * 100_000,),
    ),
    Decoder(
        "records that a test compares",
        ("testing/records/stored_record.py",),
        lambda data: matches(data, {"a": 1}),
        (b'{"a": 1}',),
        (),
        (b"[" * 100_000,),
    ),
)  # fmt: skip


def _as_value_error(call: Callable[..., Any], argument: Any) -> None:
    try:
        call(argument)
    except (AuthenticationFailed, TokenRefused) as fault:
        raise ValueError(str(fault)) from None


_OWN = "it reads what this process, or one that it started, has written"
_ONE = "it reads a number at a fixed place, which is neither a length to follow nor a count"
_CHILD = "it calls a library of others, in a process with limits"
_FRAME = "it reads the length of a frame, and compares it with a limit; the frame goes to a decoder"
_COLUMNS = "it sees memory as columns, whose number follows from its size"
_INDEX = "it reads entries of fixed width, whose number follows from the size of the file"
_BATCHES = "it hops over batches as `scan` does, and refuses lengths that are too small"

NO_DECODERS = {
    "api/fast_path/fetch_fast_path.py": _ONE,
    "api/fast_path/heartbeat_fast_path.py": _ONE,
    "api/fast_path/produce_fast_path.py": _ONE,
    "api/request/fetch_sessions.py": _OWN,
    "api/request/throttling.py": _ONE,
    "cleaner/compaction/decompressed_batches.py": _COLUMNS,
    "cleaner/compaction/key_hash.py": _COLUMNS,
    "cleaner/compaction/legacy_messages.py": "it reads by message_set.py",
    "cleaner/compaction/transaction_metadata.py": _INDEX,
    "cleaner/workers/worker_process.py": _OWN,
    "cli/record_format.py": "a line of the user's own",
    "client/blocking_client.py": _FRAME,
    "client/broker_channel.py": _FRAME,
    "common/checksum.py": _ONE,
    "common/xxh3.py": _COLUMNS,
    "console/handlers/messages.py": "base64 of a form",
    "console/messages/analysis.py": "bits of its own",
    "console/decoders/avro.py": _CHILD,
    "console/decoders/decoder_main.py": _OWN,
    "console/decoders/protobuf.py": _CHILD,
    "inspection/dump/index_dump.py": _INDEX,
    "inspection/dump/log_text.py": _ONE,
    "inspection/verify/index_check.py": _INDEX,
    "inspection/verify/partition_check.py": _INDEX,
    "inspection/verify/segment_scan.py": "it looks for a batch behind damage, and tells it by its checksum",
    "cli/local_cluster/broker_process.py": _OWN,
    "log/directories/log_moves.py": _OWN,
    "log/index/sparse_index.py": _INDEX,
    "log/index/transaction_index.py": _INDEX,
    "network/framing.py": _FRAME,
    "network/tls_handshake.py": _ONE,
    "client/producer/bulk_load.py": _COLUMNS,
    "reader/chunks/chunk_file.py": _BATCHES,
    "replication/replica_fetcher.py": _ONE,
    "config/password_encoder.py": _OWN,
    "zk/server/listener.py": _FRAME,
    "testing/control.py": "base64 of a request",
    "testing/faults/spoils.py": _BATCHES,
    "testing/requests/replay.py": _BATCHES,
    "testing/requests/recorded_request.py": "base64 of a line",
}
"""Modules that take bytes apart and need no entry in `DECODERS`, with the reason."""
