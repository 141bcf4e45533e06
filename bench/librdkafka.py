"""The stock C client, unmodified, through ctypes: the shared library of the confluent-kafka wheel, or the system's.

Python must not be what is measured, so nothing here happens per record: `rd_kafka_produce_batch` takes thousands of
records in one call, and `rd_kafka_consume_callback_queue` hands each record to a C function, of librdkafka itself, that
reads its error and returns (`rd_kafka_message_errstr`), and returns their number.
Source: rdkafka.h.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.metadata
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

OFFSET_BEGINNING = -2
_PRODUCER, _CONSUMER = 0, 1
_COPY, _BLOCK = 0x2, 0x4
_CONF_OK = 0


class ClientError(Exception):
    """An error of librdkafka, with its message."""


class Message(ctypes.Structure):
    """rd_kafka_message_t."""

    _fields_: ClassVar[Any] = [
        ("err", ctypes.c_int),
        ("rkt", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    ]


class TopicPartition(ctypes.Structure):
    """The fields of rd_kafka_topic_partition_t that come first."""

    _fields_: ClassVar[Any] = [
        ("topic", ctypes.c_char_p),
        ("partition", ctypes.c_int32),
        ("offset", ctypes.c_int64),
    ]


class TopicPartitions(ctypes.Structure):
    """rd_kafka_topic_partition_list_t."""

    _fields_: ClassVar[Any] = [
        ("count", ctypes.c_int),
        ("size", ctypes.c_int),
        ("elements", ctypes.POINTER(TopicPartition)),
    ]


# Result, then arguments.
_SIGNATURES: Mapping[str, tuple[Any, ...]] = {
    "rd_kafka_version_str": (ctypes.c_char_p,),
    "rd_kafka_err2str": (ctypes.c_char_p, ctypes.c_int),
    "rd_kafka_last_error": (ctypes.c_int,),
    "rd_kafka_conf_new": (ctypes.c_void_p,),
    "rd_kafka_conf_destroy": (None, ctypes.c_void_p),
    "rd_kafka_conf_set": (
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_size_t,
    ),
    "rd_kafka_new": (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t),
    "rd_kafka_destroy": (None, ctypes.c_void_p),
    "rd_kafka_topic_new": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p),
    "rd_kafka_topic_destroy": (None, ctypes.c_void_p),
    "rd_kafka_produce_batch": (
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_int32,
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_int,
    ),
    "rd_kafka_flush": (ctypes.c_int, ctypes.c_void_p, ctypes.c_int),
    "rd_kafka_query_watermark_offsets": (
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_int32,
        ctypes.POINTER(ctypes.c_int64),
        ctypes.POINTER(ctypes.c_int64),
        ctypes.c_int,
    ),
    "rd_kafka_topic_partition_list_new": (ctypes.POINTER(TopicPartitions), ctypes.c_int),
    "rd_kafka_topic_partition_list_add": (
        ctypes.c_void_p,
        ctypes.POINTER(TopicPartitions),
        ctypes.c_char_p,
        ctypes.c_int32,
    ),
    "rd_kafka_topic_partition_list_destroy": (None, ctypes.POINTER(TopicPartitions)),
    "rd_kafka_position": (ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(TopicPartitions)),
    "rd_kafka_queue_new": (ctypes.c_void_p, ctypes.c_void_p),
    "rd_kafka_queue_destroy": (None, ctypes.c_void_p),
    "rd_kafka_consume_start_queue": (
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_int32,
        ctypes.c_int64,
        ctypes.c_void_p,
    ),
    "rd_kafka_consume_stop": (ctypes.c_int, ctypes.c_void_p, ctypes.c_int32),
    "rd_kafka_consume_callback_queue": (
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ),
}


def library_path() -> str:
    """The wheel's own library if confluent-kafka is installed, else the system's."""
    try:
        for file in importlib.metadata.files("confluent-kafka") or ():
            if file.name.startswith("librdkafka") and ".libs" in str(file):
                return str(file.locate())
    except importlib.metadata.PackageNotFoundError:
        pass
    found = ctypes.util.find_library("rdkafka")
    if found is None:
        raise ClientError("no librdkafka here: install confluent-kafka, or Debian's librdkafka1")
    return found


class Library:
    """librdkafka with typed functions."""

    def __init__(self, path: str | None = None) -> None:
        self.c = ctypes.CDLL(path or library_path())
        for name, (result, *arguments) in _SIGNATURES.items():
            function = getattr(self.c, name)
            function.restype, function.argtypes = result, arguments
        self.look_at_message = ctypes.cast(self.c.rd_kafka_message_errstr, ctypes.c_void_p)

    @property
    def version(self) -> str:
        return bytes(self.c.rd_kafka_version_str()).decode()

    def check(self, code: int) -> None:
        if code != 0:
            raise ClientError(bytes(self.c.rd_kafka_err2str(code)).decode())

    def client(self, kind: int, settings: Mapping[str, str]) -> int:
        reason = ctypes.create_string_buffer(512)
        conf = self.c.rd_kafka_conf_new()
        for key, value in settings.items():
            if self.c.rd_kafka_conf_set(conf, key.encode(), value.encode(), reason, len(reason)) != _CONF_OK:
                self.c.rd_kafka_conf_destroy(conf)
                raise ClientError(f"{key}={value}: {reason.value.decode()}")
        handle = self.c.rd_kafka_new(kind, conf, reason, len(reason))
        if not handle:
            self.c.rd_kafka_conf_destroy(conf)
            raise ClientError(reason.value.decode())
        return int(handle)


class Producer:
    """Sends the same record again and again to some partitions of one topic, a chunk to each in turn."""

    def __init__(
        self,
        library: Library,
        topic: str,
        settings: Mapping[str, str],
        value: bytes,
        chunk: int,
        partitions: Sequence[int] = (0,),
    ) -> None:
        self._library, self._value = library, ctypes.create_string_buffer(value, len(value))
        self._partitions = itertools.cycle(partitions)
        self._handle = library.client(_PRODUCER, settings)
        self._topic = library.c.rd_kafka_topic_new(self._handle, topic.encode(), None)
        self._chunk = (Message * chunk)()
        for message in self._chunk:
            message.payload, message.len = ctypes.addressof(self._value), len(value)

    def produce(self, record_count: int) -> int:
        """Queue up to one chunk of records, waiting while the queue is full; returns how many were taken."""
        count = min(record_count, len(self._chunk))
        produce_batch = self._library.c.rd_kafka_produce_batch
        return int(produce_batch(self._topic, next(self._partitions), _COPY | _BLOCK, self._chunk, count))

    def flush(self, limit_ms: int) -> None:
        """Return when every record was answered for."""
        self._library.check(self._library.c.rd_kafka_flush(self._handle, limit_ms))

    def close(self) -> None:
        self._library.c.rd_kafka_topic_destroy(self._topic)
        self._library.c.rd_kafka_destroy(self._handle)


class Consumer:
    """Reads some partitions of one topic, counting. `end_offset` and `position` are those of the first."""

    def __init__(
        self, library: Library, topic: str, settings: Mapping[str, str], partitions: Sequence[int] = (0,)
    ) -> None:
        self._library = library
        self._indexes = partitions
        self._handle = library.client(_CONSUMER, settings)
        self._topic = library.c.rd_kafka_topic_new(self._handle, topic.encode(), None)
        self._queue = library.c.rd_kafka_queue_new(self._handle)
        self._partitions = library.c.rd_kafka_topic_partition_list_new(1)
        library.c.rd_kafka_topic_partition_list_add(self._partitions, topic.encode(), partitions[0])
        low, high = ctypes.c_int64(), ctypes.c_int64()
        # Finds the leader and connects to it.
        query = library.c.rd_kafka_query_watermark_offsets
        low_at, high_at = ctypes.byref(low), ctypes.byref(high)
        library.check(query(self._handle, topic.encode(), partitions[0], low_at, high_at, 30_000))
        self.end_offset = high.value

    def start(self, offset: int) -> None:
        for index in self._indexes:
            if self._library.c.rd_kafka_consume_start_queue(self._topic, index, offset, self._queue) != 0:
                self._library.check(self._library.c.rd_kafka_last_error())

    def consume(self, timeout_ms: int) -> int:
        """Wait for records and consume all available ones; returns how many, of which the first may be no record."""
        c = self._library.c
        return int(c.rd_kafka_consume_callback_queue(self._queue, timeout_ms, self._library.look_at_message, None))

    def position(self) -> int:
        """The offset after the last record taken (negative: none yet). Exact, where the counts are not quite."""
        self._library.check(self._library.c.rd_kafka_position(self._handle, self._partitions))
        return int(self._partitions.contents.elements[0].offset)

    def close(self) -> None:
        c = self._library.c
        c.rd_kafka_topic_partition_list_destroy(self._partitions)
        for index in self._indexes:
            c.rd_kafka_consume_stop(self._topic, index)
        c.rd_kafka_queue_destroy(self._queue)
        c.rd_kafka_topic_destroy(self._topic)
        c.rd_kafka_destroy(self._handle)
