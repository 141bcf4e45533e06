"""Share sessions: the partitions that a member of a share group reads from this broker, from request to request.

A session is named by its group and member, and its epochs count the requests of both APIs, ShareFetch and
ShareAcknowledge: 0 opens it, -1 closes it, and every other must be the expected one. It ends with its connection. A
full cache refuses new sessions and evicts none.
Source: org.apache.kafka.server.share.session.ShareSession and ShareSessionCache, kafka.server.share.
SharePartitionManager.newContext and acknowledgeSessionUpdate (4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple

if TYPE_CHECKING:
    from kafkalite.network.client_connection import ClientConnection

OPENING_EPOCH = 0
CLOSING_EPOCH = -1
_EPOCH_MAX = 2**31 - 1


class TopicIdPartition(NamedTuple):
    """A partition as requests name it."""

    topic_id: UUID
    partition: int


class ShareSession:
    """The partitions of one session, in the order in which they are read: those with records move to the end."""

    __slots__ = ("_news", "connection", "epoch", "group_id", "is_opening", "member_id", "partitions")

    def __init__(self, group_id: str, member_id: str, connection: ClientConnection) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.connection = connection
        self.epoch = 1  # of the next request
        self.is_opening = True  # the answer to the first request names every partition
        self.partitions: dict[TopicIdPartition, None] = {}
        self._news: set[TopicIdPartition] = set()  # those that the next answer has to name

    def update(self, added: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]) -> None:
        for partition in added:
            if partition not in self.partitions:
                self.partitions[partition] = None
                self._news.add(partition)
        for partition in forgotten:
            self.partitions.pop(partition, None)
            self._news.discard(partition)

    def rotated(self) -> Iterator[TopicIdPartition]:
        """The partitions, beginning at another one with each epoch."""
        partitions = list(self.partitions)
        at = self.epoch % len(partitions) if partitions else 0
        yield from partitions[at:]
        yield from partitions[:at]

    def is_news(self, partition: TopicIdPartition, *, has_records: bool, has_error: bool) -> bool:
        """Whether the answer has to name the partition, which is then named."""
        is_new = partition in self._news
        if has_error:
            self._news.add(partition)  # so that the client learns when the error is over
        else:
            self._news.discard(partition)
        if has_records and not self.is_opening:
            self.partitions.pop(partition, None)
            self.partitions[partition] = None
        return is_new or has_records or has_error or self.is_opening


class ShareSessions:
    """All sessions of this broker. `on_end` is called with group, member and partitions of each session that ends, for
    any reason: what the member holds is to be released. `on_last_end` follows when its group has no other."""

    def __init__(
        self,
        most: Callable[[], int],
        on_end: Callable[[str, str, Iterable[TopicIdPartition]], None],
        on_last_end: Callable[[str], None],
    ) -> None:
        self._most = most  # group.share.max.share.sessions
        self._on_end = on_end
        self._on_last_end = on_last_end
        self.evictions = 0  # sessions that ended with their connection
        self._sessions: dict[tuple[str, str], ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """Of all sessions together."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def partitions(self, group_id: str, member_id: str) -> Iterable[TopicIdPartition]:
        """The partitions of the member's session; none without one."""
        session = self._sessions.get((group_id, member_id))
        return () if session is None else tuple(session.partitions)

    def has_group(self, group_id: str) -> bool:
        """Whether the group has a session here."""
        return any(group == group_id for group, _ in self._sessions)

    def open(
        self, group_id: str, member_id: str, partitions: Iterable[TopicIdPartition], connection: ClientConnection
    ) -> ShareSession:
        """A new session in place of an earlier one of the member. Raises KafkaError: SHARE_SESSION_LIMIT_REACHED."""
        earlier = self._sessions.pop((group_id, member_id), None)
        if earlier is not None:
            self._report_end(earlier)
        if len(self._sessions) >= self._most():
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = ShareSession(group_id, member_id, connection)
        connection.end_sessions = partial(self.on_disconnect, connection)
        session.update(partitions, ())
        self._sessions[group_id, member_id] = session
        return session

    def continued(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """The session of a request that is neither the first nor the last. Raises KafkaError:
        SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH."""
        session = self._of(group_id, member_id)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        session.is_opening = False
        return session

    def closing(self, group_id: str, member_id: str) -> ShareSession:
        """The session of a request that closes it; `end` closes it, when its acknowledgements are made. Raises
        KafkaError: SHARE_SESSION_NOT_FOUND."""
        return self._of(group_id, member_id)

    def end(self, session: ShareSession) -> None:
        """A second call has no effect."""
        if self._sessions.get((session.group_id, session.member_id)) is session:
            del self._sessions[session.group_id, session.member_id]
            self._report_end(session)

    def on_disconnect(self, connection: ClientConnection) -> None:
        """The sessions of a connection end with it."""
        for session in [each for each in self._sessions.values() if each.connection is connection]:
            self.evictions += 1
            self.end(session)

    def _report_end(self, session: ShareSession) -> None:
        self._on_end(session.group_id, session.member_id, session.partitions)
        if not self.has_group(session.group_id):
            self._on_last_end(session.group_id)

    def _of(self, group_id: str, member_id: str) -> ShareSession:
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        return session
