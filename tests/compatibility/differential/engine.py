"""A story: a script of requests with state, told to a broker; what the broker answered is noted down, masked.

A case module holds functions under `@every_version("Produce")`, `@in_versions("Produce", 0, 3, 9)` or `@once`; each
takes a `Teller` and asks. The same story is told to Apache Kafka and to kafkalite, and the two lists of steps are
compared. Kafka 3.9.1 is the reference for versions that it serves, Kafka 4.3.0 for newer ones and for APIs that 3.9
lacks, whose stories are under `@once_in_4_3` and `@in_versions_of_4_3`; of these the wording of messages counts, too.
Requests are built by kafkalite's own codec or are bytes made by hand; what a story must know to go on (a member id) it
takes from the real answer, what is noted of it is masked.

Where an answer may differ, the step says so: `but=Explained(what, why, paths...)`. A difference at other paths fails
the story, and so does a path that does not differ any more.
"""

from __future__ import annotations

import socket
import threading
import time
import uuid
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kafkalite.common.names import ZERO_UUID
from kafkalite.network.client_connection import ANONYMOUS
from kafkalite.protocol.apis import API_OF_REQUEST, APIS
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.header import decode_response, request_frame, response_frame
from kafkalite.protocol.messages.acls import AclCreation, CreateAclsRequest
from kafkalite.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkalite.protocol.messages.group_offsets import OffsetCommitRequest, OffsetFetchRequest
from kafkalite.protocol.messages.groups import FindCoordinatorRequest, HeartbeatRequest
from kafkalite.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkalite.protocol.messages.produce import ProduceRequest
from kafkalite.protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafkalite.protocol.messages.transactions import DescribeTransactionsRequest
from kafkalite.security.acl.acl import Operation, Permission, Resource
from tests.compatibility.differential.masks import STEM, Masks
from tests.support.wait import DEADLINE_S

CLIENT_ID = "differ"
CLOSED = "closed"
SILENT = "no answer"
_LOOPBACK = "127."
HANGS_SECONDS = 1.0  # a request whose handler fails at Kafka is sometimes never answered
OLDER, NEWER = "3.9.1", "4.3.0"
"""The reference Kafkas. The first one with ZooKeeper where its authorizer is needed."""
NEWEST_OF_OLDER = {
    "Produce": 11, "Fetch": 17, "ListOffsets": 9, "Metadata": 12, "OffsetCommit": 9, "OffsetFetch": 9,
    "DescribeGroups": 5, "EndTxn": 4, "WriteTxnMarkers": 1, "TxnOffsetCommit": 4, "DescribeCluster": 1,
    "ListTransactions": 1, "ConsumerGroupHeartbeat": -1, "ConsumerGroupDescribe": -1, "UpdateFeatures": -1,
    "GetTelemetrySubscriptions": -1, "PushTelemetry": -1, "ListConfigResources": -1, "DescribeTopicPartitions": -1,
    "DescribeQuorum": -1,
}  # fmt: skip
"""By API: the newest version for which 3.9 is the reference; of others all are."""
ALL_OLDER = 0x7FFF
_RETRIABLE = (14, 15, 16)  # loading, not available, not the coordinator


@dataclass(frozen=True)
class Explained:
    """A difference that is meant: `what` kafkalite does, `why`, and at which paths of an answer it shows.

    A path is the keys from the answer's top down, joined by dots; `*` stands for any one key, `**` for the rest.
    """

    what: str
    why: str
    at: tuple[str, ...]

    def __init__(self, what: str, why: str, *at: str) -> None:
        object.__setattr__(self, "what", what)
        object.__setattr__(self, "why", why)
        object.__setattr__(self, "at", at or ("**",))


@dataclass(frozen=True)
class Step:
    """One request and what was noted of its answer; `explained` are the differences that are meant."""

    label: str
    answer: Any
    explained: tuple[Explained, ...] = ()


@dataclass(frozen=True)
class Story:
    """A script, and the versions of its API in which it is told; the ones up to `newest_of_older` to Kafka 3.9."""

    tell: Callable[[Teller], None]
    versions: tuple[int, ...]
    newest_of_older: int = ALL_OLDER

    def reference(self, version: int) -> str:
        """The Kafka with which the telling in this version is compared."""
        return OLDER if version <= self.newest_of_older else NEWER

    @property
    def name(self) -> str:
        return self.tell.__name__


def every_version(api_name: str) -> Callable[[Callable[[Teller], None]], Story]:
    """Told in each version of the API that kafkalite lists."""
    api = next(api for api in APIS.values() if api.name == api_name)
    newest = NEWEST_OF_OLDER.get(api_name, ALL_OLDER)
    return lambda tell: Story(tell, tuple(range(api.min_version, api.max_version + 1)), newest)


def in_versions(*versions: int) -> Callable[[Callable[[Teller], None]], Story]:
    """Told in these versions: those where something changed."""
    return lambda tell: Story(tell, versions)


def once(tell: Callable[[Teller], None]) -> Story:
    """Told one time; the story names the versions that it asks in."""
    return Story(tell, (0,))


def in_versions_of_4_3(*versions: int) -> Callable[[Callable[[Teller], None]], Story]:
    """Told in these versions, and compared with Kafka 4.3."""
    return lambda tell: Story(tell, versions, -1)


def once_in_4_3(tell: Callable[[Teller], None]) -> Story:
    """Told one time, and compared with Kafka 4.3; the story names the versions that it asks in."""
    return Story(tell, (0,), -1)


@dataclass
class Line:
    """One connection, and who waits on it: (request, version, correlation id), first come first."""

    sock: socket.socket
    waiting: deque[tuple[Message, int, int]] = field(default_factory=deque)


class Teller:
    """Tells one story to one broker. `v` is the version; `steps` is what came of it."""

    def __init__(self, address: tuple[str, int], family: str, story: Story, version: int) -> None:
        self.v = version
        self.steps: list[Step] = []
        self.requests = 0
        self.rewritten: list[str] = []  # answers of which kafkalite's codec would have made other bytes
        self._address = address
        self._stem = f"{STEM}{family}-{story.name.replace('_', '-')}-{version}"
        is_worded = story.newest_of_older < 0
        self._masks = Masks(f"{self._stem}-", is_worded=is_worded)  # the stem alone begins the names of version 10, too
        self._lines: dict[str, Line] = {}
        self._correlation_id = 0
        self._ids: dict[str, uuid.UUID] = {}

    def name(self, stem: str = "t") -> str:
        """A name for a topic or a group that only this story uses, the same in every run."""
        return f"{self._stem}-{stem}"

    # --- asking

    def ask(
        self,
        label: str,
        request: Message,
        version: int | None = None,
        *,
        by: str = "a",
        but: Explained | tuple[Explained, ...] | None = None,
        until: Callable[[Any], bool] | None = None,
        may_hang: bool = False,
    ) -> Any:
        """Send a request on connection `by`, note its answer, and return it as it came.

        `until`: ask again until the answer is so; Kafka's brokers learn of a change a moment after it is answered.
        `may_hang`: it may be that no answer comes, and that is noted then.
        """
        if may_hang:
            self._line(by).sock.settimeout(HANGS_SECONDS)
        answer = self._exchange(request, version, by)
        deadline = time.monotonic() + DEADLINE_S
        while until is not None and not until(answer) and time.monotonic() < deadline:
            _pause()
            answer = self._exchange(request, version, by)
        self._note(label, answer, self.v if version is None else version, but)
        return answer

    def send(self, request: Message, version: int | None = None, *, by: str) -> None:
        """Send a request whose answer is taken later."""
        self._send(request, self.v if version is None else version, by)

    def take(self, label: str, *, by: str, but: Explained | tuple[Explained, ...] | None = None) -> Any:
        """Note the answer to the first request on `by` that has none yet."""
        version = self._line(by).waiting[0][1]
        answer = self._receive(by)
        self._note(label, answer, version, but)
        return answer

    def say(self, label: str, frame: bytes, *, but: Explained | None = None) -> bytes | None:
        """Send bytes on a connection of their own: the answer without its size, or None when the broker closed."""
        self.requests += 1
        with socket.create_connection(self._address, DEADLINE_S) as sock:
            sock.sendall(frame)
            try:
                answer = _read_frame(sock)
            except ConnectionError:
                answer = None
        self.steps.append(Step(label, CLOSED if answer is None else "answered", _tuple(but)))
        return answer

    def silent(self, label: str, request: Message, version: int | None = None, *, by: str = "a") -> None:
        """Send a request that gets no answer: note whether the connection lives on, by asking ApiVersions."""
        line = self._line(by)
        self._correlation_id += 1
        version = self.v if version is None else version
        self._name_by_id(request, version)
        line.sock.sendall(request_frame(request, version, self._correlation_id, CLIENT_ID))
        self.requests += 2
        probe = b"\0\0\0\x0a\0\x12\0\0\x7f\xff\xff\xff\xff\xff"
        try:
            line.sock.sendall(probe)
            lives = _read_frame(line.sock)[:4] == b"\x7f\xff\xff\xff"
        except ConnectionError:
            lives = False
        if not lives:
            self._lines.pop(by).sock.close()
        self.steps.append(Step(label, SILENT if lives else CLOSED))

    def aside(self, request: Message, version: int, *, by: str = "a") -> Any:
        """Ask without noting it: what a story needs, not what it is about."""
        self._send(request, version, by, counted=False)
        return self._receive(by)

    def note(self, label: str, answer: Message, version: int, *, but: Explained | None = None) -> None:
        """Note an answer that came to bytes made by hand."""
        self._note(label, answer, version, but)

    # --- users: an entry of an access control list may be for one address, and a loopback has many

    def address(self, label: str) -> str:
        """An address that only this story uses, for `by`: a user to authorizers. 127.0.0.1 may do everything."""
        number = zlib.crc32(self.name(label).encode())
        return f"{_LOOPBACK}{1 + number % 250}.{number // 250 % 250}.{number // 62_500 % 250}"

    def acl(
        self,
        host: str,
        operation: Operation,
        resource: Resource,
        permission: Permission = Permission.ALLOW,
        principal: str = ANONYMOUS,
    ) -> None:
        """Have the broker keep an entry."""
        creation = AclCreation(
            resource_type=resource.type,
            resource_name=resource.name,
            resource_pattern_type=resource.pattern,
            principal=principal,
            host=host,
            operation=operation,
            permission_type=permission,
        )
        (result,) = self.aside(CreateAclsRequest(creations=[creation]), 2).results
        assert result.error_code == 0, result

    # --- what many stories begin with

    def topic(self, stem: str = "t", partitions: int = 1, **config: object) -> str:
        """Create a topic and wait until the broker leads every partition."""
        return self.named_topic(self.name(stem), stem, partitions, **config)

    def named_topic(self, name: str, stem: str, partitions: int = 1, **config: object) -> str:
        """The same for a topic of this name, which is shown as `stem`."""
        settings = [CreatableTopicConfig(name=k.replace("_", "."), value=str(v)) for k, v in config.items()]
        wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=settings)
        answer = self.aside(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 7)
        assert answer.topics[0].error_code == 0, answer
        again = ", made again" * (name in self._ids)
        self._ids[name] = answer.topics[0].topic_id
        self._masks.know(self._ids[name], stem + again)
        self.led(name, partitions)
        return name

    def id_of(self, name: str) -> uuid.UUID:
        """The id of a topic that this story made; of another name an id that no topic has."""
        if not name:
            return ZERO_UUID
        if name not in self._ids:
            self._ids[name] = uuid.uuid5(uuid.NAMESPACE_OID, name)
            self._masks.know(self._ids[name], "nothing, " + name.removeprefix(f"{self._stem}-"))
        return self._ids[name]

    def led(self, name: str, partitions: int = 1) -> None:
        """Return when the broker leads these partitions."""
        asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=asked)])
        for _ in tries(f"a leader of {name}"):
            found = self.aside(request, 5).topics[0].partitions
            if len(found) == partitions and all(one.error_code == 0 for one in found):
                return

    def coordinated(self, group: str) -> str:
        """Return the group's name when the broker is its coordinator and has loaded it."""
        for _ in tries(f"a coordinator of {group}"):
            if self.aside(FindCoordinatorRequest(key=group), 2).error_code == 0:
                answer = self.aside(HeartbeatRequest(group_id=group, generation_id=1, member_id="nobody"), 3)
                if answer.error_code not in _RETRIABLE and answer.error_code != 0:
                    return group
        raise AssertionError("unreachable")

    def group(self, stem: str = "g") -> str:
        """The name of a new group whose coordinator is ready."""
        return self.coordinated(self.name(stem))

    def transactional_id(self, stem: str = "tx") -> str:
        """A transactional id that nobody has used, whose coordinator is ready."""
        return self.coordinated_id(self.name(stem))

    def coordinated_id(self, name: str) -> str:
        """Return the transactional id when the broker is its coordinator and has loaded it."""
        for _ in tries(f"a transaction coordinator of {name}"):
            if self.aside(FindCoordinatorRequest(key=name, key_type=1), 2).error_code == 0:
                (described,) = self.aside(DescribeTransactionsRequest(transactional_ids=[name]), 0).transaction_states
                if described.error_code not in _RETRIABLE:
                    return name
        raise AssertionError("unreachable")

    def ended(self, transactional_id: str) -> None:
        """Return when no transaction of this id is about to end: all markers of the last are written."""
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        for _ in tries(f"the end of the transaction of {transactional_id}"):
            if not self.aside(request, 0).transaction_states[0].transaction_state.startswith("Prepare"):
                return

    def close(self) -> None:
        for line in self._lines.values():
            line.sock.close()
        self._lines.clear()

    # --- the wire

    def _exchange(self, request: Message, version: int | None, by: str) -> Any:
        self._send(request, self.v if version is None else version, by)
        return self._receive(by)

    def _send(self, request: Message, version: int, by: str, *, counted: bool = True) -> None:
        line = self._line(by)
        self._name_by_id(request, version)
        self._correlation_id += 1
        self.requests += counted
        line.waiting.append((request, version, self._correlation_id))
        line.sock.sendall(request_frame(request, version, self._correlation_id, CLIENT_ID))

    def _name_by_id(self, request: Message, version: int) -> None:
        """Stories name topics; a request of a version that has ids says these, unless it has one already."""
        named: list[Any] = []
        match request:
            case FetchRequest() if version >= 13:
                named = [*request.topics, *request.forgotten_topics_data]
            case ProduceRequest() if version >= 13:
                named = request.topic_data
            case OffsetCommitRequest() if version >= 10:
                named = request.topics
            case OffsetFetchRequest() if version >= 10:
                named = [topic for group in request.groups for topic in group.topics or ()]
        for one in named:
            if one.topic_id == ZERO_UUID:
                one.topic_id = self.id_of(one.topic if isinstance(request, FetchRequest) else one.name)

    def _receive(self, by: str) -> Any:
        """The answer to the oldest request, or CLOSED, or SILENT."""
        line = self._line(by)
        request, version, correlation_id = line.waiting.popleft()
        try:
            frame = _read_frame(line.sock)
        except ConnectionError:
            self._lines.pop(by).sock.close()
            return CLOSED
        except TimeoutError:
            if line.sock.gettimeout() == HANGS_SECONDS:
                self._lines.pop(by).sock.close()
                return SILENT
            raise AssertionError(f"no answer in {DEADLINE_S:g} s to {request!r} v{version}") from None
        answered, response = decode_response(API_OF_REQUEST[type(request)], version, memoryview(frame))
        assert answered == correlation_id, f"the answer to {correlation_id} carries {answered}"
        again = b"".join(map(bytes, response_frame(response, version, correlation_id)))
        if again[4:] != frame and not _has_null_records(response):
            self.rewritten.append(f"{type(response).__name__} {version}")
        return response

    def _line(self, name: str) -> Line:
        if name not in self._lines:
            source = (name, 0) if name.startswith(_LOOPBACK) else None
            self._lines[name] = Line(socket.create_connection(self._address, DEADLINE_S, source))
        return self._lines[name]

    def _note(self, label: str, answer: Any, version: int, but: Explained | tuple[Explained, ...] | None) -> None:
        shown = answer if answer in (CLOSED, SILENT) else self._masks.show(answer, version)
        self.steps.append(Step(label, shown, _tuple(but)))


def _has_null_records(response: Message) -> bool:
    """kafkalite reads null records and never writes them: librdkafka takes them for a broken answer."""
    if not isinstance(response, FetchResponse):
        return False
    return any(partition.records is None for topic in response.responses for partition in topic.partitions)


def _tuple(but: Explained | tuple[Explained, ...] | None) -> tuple[Explained, ...]:
    return () if but is None else (but,) if isinstance(but, Explained) else but


def _read_frame(sock: socket.socket) -> bytes:
    size = int.from_bytes(_read(sock, 4), "big")
    return _read(sock, size)


def _read(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise ConnectionError("closed")
        data += more
    return bytes(data)


def tries(what: str) -> Iterator[None]:
    """Turns of a loop that leaves when what it looks at is so; AssertionError when that takes too long."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        yield
        _pause()
    raise AssertionError(f"waited {DEADLINE_S:g} s for {what}")


def _pause() -> None:
    """Between two looks at a condition that has a deadline."""
    threading.Event().wait(0.02)
