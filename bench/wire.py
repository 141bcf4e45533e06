"""Just enough of Kafka's wire protocol to drive a broker with bytes of our own.

Written apart from the broker's codec on purpose: the bench must run against any broker, and an error that both
sides share would go unseen. Only fixed versions that Kafka 2.1 to 4.x and kafkalite answer (none of them flexible):
Metadata 1, CreateTopics 4, DeleteTopics 3, ListOffsets 2, Produce 7, Fetch 11, IncrementalAlterConfigs 0,
DescribeLogDirs 1.
Source: clients/src/main/resources/common/message/*.json of Apache Kafka.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
CREATE_TOPICS, DELETE_TOPICS, DESCRIBE_LOG_DIRS, INCREMENTAL_ALTER_CONFIGS = 19, 20, 35, 44
_TOPIC, _GROUP = 2, 32  # kinds of resources
CLIENT_ID = b"bench"
_TOPIC_ALREADY_EXISTS = 36

_SIZE = struct.Struct(">i")
_REQUEST_HEADER = struct.Struct(">hhih")

Answer = memoryview


class BrokerError(Exception):
    """The broker answered, and not with what the bench needs; or it did not answer at all."""


class TopicExists(BrokerError):
    """CreateTopics: a topic of this name is there already."""


@dataclass(frozen=True, slots=True)
class Broker:
    """One line of Metadata."""

    node_id: int
    host: str
    port: int


class Cursor:
    """Reads an answer from front to back; an answer that ends too early is a `BrokerError`."""

    __slots__ = ("_data", "position")

    def __init__(self, data: Answer) -> None:
        self._data = data
        self.position = 0

    def _int(self, size_bytes: int) -> int:
        end = self.position + size_bytes
        if end > len(self._data):
            raise BrokerError(f"an answer of {len(self._data)} bytes ends inside a field")
        value = int.from_bytes(self._data[self.position : end], "big", signed=True)
        self.position = end
        return value

    def int8(self) -> int:
        return self._int(1)

    def int16(self) -> int:
        return self._int(2)

    def int32(self) -> int:
        return self._int(4)

    def int64(self) -> int:
        return self._int(8)

    def string(self) -> str | None:
        size = self.int16()
        if size < 0:
            return None
        end = self.position + size
        if end > len(self._data):
            raise BrokerError(f"a string of {size} bytes goes past the end of an answer")
        value = bytes(self._data[self.position : end]).decode()
        self.position = end
        return value

    def bytes(self) -> Answer:
        """A view of a byte field; empty for null."""
        size = max(0, self.int32())
        end = self.position + size
        if end > len(self._data):
            raise BrokerError(f"a byte field goes {end - len(self._data)} bytes past the end of an answer")
        view = self._data[self.position : end]
        self.position = end
        return view

    def rest(self) -> Answer:
        """A view of all that was not read."""
        return self._data[self.position :]


def string(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def request_frame(api_key: int, version: int, correlation_id: int, *body: bytes) -> bytes:
    """A whole frame, size first, with request header v1."""
    header = _REQUEST_HEADER.pack(api_key, version, correlation_id, len(CLIENT_ID)) + CLIENT_ID
    return b"".join((_SIZE.pack(len(header) + sum(map(len, body))), header, *body))


def produce_frame(
    topic: str, partition: int, records: bytes | bytearray, *, acks: int = 1, correlation_id: int = 0
) -> bytes:
    """Produce v7 of one partition."""
    return request_frame(
        PRODUCE,
        7,
        correlation_id,
        struct.pack(">hhi", -1, acks, 30_000),
        struct.pack(">i", 1) + string(topic),
        struct.pack(">iii", 1, partition, len(records)),
        bytes(records),
    )


def fetch_frame(
    topic: str,
    partition: int,
    offset: int,
    partition_max_bytes: int,
    *,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    correlation_id: int = 0,
    isolation_level: int = 0,
) -> bytes:
    """Fetch v11 of one partition, without a session (epoch -1); isolation level 1 is read_committed."""
    return request_frame(
        FETCH,
        11,
        correlation_id,
        struct.pack(">iiiibii", -1, max_wait_ms, min_bytes, 0x7FFFFFFF, isolation_level, 0, -1),
        struct.pack(">i", 1) + string(topic),
        struct.pack(">iiiqqi", 1, partition, -1, offset, -1, partition_max_bytes),
        struct.pack(">i", 0),
        string(""),
    )


def split_host(bootstrap: str) -> tuple[str, int]:
    """The first of the bootstrap servers, which must be on this machine: the bench is a load, not a guest."""
    host, _, port = bootstrap.split(",")[0].strip().rpartition(":")
    if not host or not port.isdigit():
        raise BrokerError(f"bootstrap server {bootstrap!r} is not HOST:PORT")
    try:
        address = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0][4][0]
    except OSError as error:
        raise BrokerError(f"bootstrap server {bootstrap!r}: {error}") from None
    if not ipaddress.ip_address(address).is_loopback:
        raise BrokerError(f"bootstrap server {bootstrap!r} is not on loopback; the bench loads only its own machine")
    return str(address), int(port)


def receive_exactly(sock: socket.socket, view: memoryview) -> None:
    """Fill `view` from the socket."""
    received = 0
    while received < len(view):
        count = sock.recv_into(view[received:])
        if count == 0:
            raise BrokerError("the broker closed the connection")
        received += count


class Connection:
    """A blocking connection to one broker: a request, then its answer."""

    def __init__(self, bootstrap: str, timeout_s: float = 60.0) -> None:
        self.bootstrap = bootstrap
        self.socket = socket.create_connection(split_host(bootstrap), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def request(self, api_key: int, version: int, *body: bytes) -> Cursor:
        """Send one request and return its answer, past the correlation id."""
        return self.exchange(request_frame(api_key, version, 0, *body))

    def exchange(self, frame: bytes) -> Cursor:
        """Send one whole frame and return its answer, past the correlation id."""
        self.socket.sendall(frame)
        prefix = bytearray(4)
        receive_exactly(self.socket, memoryview(prefix))
        body = bytearray(_SIZE.unpack(prefix)[0])
        receive_exactly(self.socket, memoryview(body))
        cursor = Cursor(memoryview(body))
        cursor.int32()
        return cursor

    def brokers(self) -> list[Broker]:
        """Every live broker, by Metadata with no topics."""
        cursor = self.request(METADATA, 1, struct.pack(">i", 0))
        found = []
        for _ in range(cursor.int32()):
            found.append(Broker(cursor.int32(), cursor.string() or "", cursor.int32()))
            cursor.string()  # rack
        return found

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic led wholly by this broker, one replica each, and wait until it leads every partition."""
        _, port = split_host(self.bootstrap)
        brokers = self.brokers()
        if not brokers:
            raise BrokerError(f"{self.bootstrap} knows no broker")
        node_id = next((broker.node_id for broker in brokers if broker.port == port), brokers[0].node_id)
        assignments = b"".join(struct.pack(">iii", partition, 1, node_id) for partition in range(partitions))
        settings = config or {}
        cursor = self.request(
            CREATE_TOPICS,
            4,
            struct.pack(">i", 1) + string(name),
            struct.pack(">ihi", -1, -1, partitions) + assignments,
            struct.pack(">i", len(settings)) + b"".join(string(key) + string(settings[key]) for key in settings),
            struct.pack(">ib", 60_000, 0),
        )
        cursor.int32()  # throttle
        for _ in range(cursor.int32()):
            topic, code, message = cursor.string(), cursor.int16(), cursor.string()
            if code == _TOPIC_ALREADY_EXISTS:
                raise TopicExists(topic)
            if code != 0:
                raise BrokerError(f"topic {topic} was not created: error {code}, {message}")
        self._await_leader(name, partitions)

    def _await_leader(self, topic: str, partitions: int, limit_s: float = 300.0) -> None:
        """Metadata may name a leader a moment before the broker acts as one, so ask the leader itself."""
        deadline = time.monotonic() + limit_s
        while True:
            try:
                self.end_offsets(topic, range(partitions))
                return
            except BrokerError as error:
                if time.monotonic() > deadline:
                    raise BrokerError(f"topic {topic} is not led after {limit_s:.0f} s: {error}") from None
            time.sleep(0.002)

    def delete_topic(self, name: str) -> None:
        cursor = self.request(DELETE_TOPICS, 3, struct.pack(">i", 1), string(name), struct.pack(">i", 60_000))
        cursor.int32()  # throttle
        for _ in range(cursor.int32()):
            topic, code = cursor.string(), cursor.int16()
            if code != 0:
                raise BrokerError(f"topic {topic} was not deleted: error {code}")

    def alter_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        """Set some of a topic's settings."""
        self._alter(_TOPIC, topic, settings)

    def alter_group(self, group: str, settings: Mapping[str, str]) -> None:
        """Set some of a group's settings."""
        self._alter(_GROUP, group, settings)

    def _alter(self, resource_type: int, resource: str, settings: Mapping[str, str]) -> None:
        changes = b"".join(string(name) + b"\0" + string(value) for name, value in settings.items())
        cursor = self.request(
            INCREMENTAL_ALTER_CONFIGS,
            0,
            struct.pack(">ib", 1, resource_type) + string(resource),
            struct.pack(">i", len(settings)) + changes,
            b"\0",
        )
        cursor.int32()  # throttle
        for _ in range(cursor.int32()):
            code, message = cursor.int16(), cursor.string()
            cursor.int8(), cursor.string()
            if code != 0:
                raise BrokerError(f"{', '.join(settings)} of {resource} not changed: error {code}, {message}")

    def log_size(self, topic: str, partition: int = 0) -> tuple[str, int]:
        """Where a partition's log is (its log directory), and its bytes."""
        cursor = self.request(
            DESCRIBE_LOG_DIRS, 1, struct.pack(">i", 1) + string(topic), struct.pack(">ii", 1, partition)
        )
        cursor.int32()  # throttle
        found: list[tuple[str, int]] = []
        for _ in range(cursor.int32()):
            code, directory = cursor.int16(), cursor.string()
            for _ in range(cursor.int32()):
                cursor.string()
                for _ in range(cursor.int32()):
                    cursor.int32()
                    found.append((directory or "", cursor.int64()))
                    cursor.int64(), cursor.int8()  # lag, whether it is a future replica
            if code != 0:
                raise BrokerError(f"DescribeLogDirs: error {code} for {directory}")
        if len(found) != 1:
            raise BrokerError(f"DescribeLogDirs knows {len(found)} logs of {topic}-{partition}")
        return found[0]

    def end_offsets(self, topic: str, partitions: Sequence[int] = (0,)) -> dict[int, int]:
        """Partition -> the offset that its next record gets, by ListOffsets."""
        cursor = self.request(
            LIST_OFFSETS,
            2,
            struct.pack(">ibi", -1, 0, 1) + string(topic),
            struct.pack(">i", len(partitions)) + b"".join(struct.pack(">iq", one, -1) for one in partitions),
        )
        cursor.int32()  # throttle
        ends: dict[int, int] = {}
        for _ in range(cursor.int32()):
            cursor.string()
            for _ in range(cursor.int32()):
                partition, code = cursor.int32(), cursor.int16()
                cursor.int64()  # timestamp
                end = cursor.int64()
                if code != 0:
                    raise BrokerError(f"ListOffsets of {topic}-{partition}: error {code}")
                ends[partition] = end
        return ends

    def produce(self, frame: bytes) -> int:
        """Send one pre-encoded Produce frame and return its base offset; an error code is a `BrokerError`."""
        return produce_offset(self.exchange(frame))


def produce_offset(cursor: Cursor) -> int:
    """The base offset in a Produce v7 answer of one partition (`cursor` past the correlation id)."""
    cursor.int32(), cursor.string(), cursor.int32()
    partition, code, base_offset = cursor.int32(), cursor.int16(), cursor.int64()
    if code != 0:
        raise BrokerError(f"Produce to partition {partition}: error {code}")
    return base_offset
