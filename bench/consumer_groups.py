"""Members of consumer groups (KIP-848) as raw frames: heartbeats with nothing to tell, and rebalances of 100 members.

A member does as Kafka's client does: it sends everything when it joins, what it owns once after each change of its
assignment, and nothing but its epoch otherwise. Many members share a connection, which no client does, so that the
generator takes little of the machine.
A rebalance takes an interval at least at any broker: the members that there are hear of a newcomer by their next
heartbeat, and it gets their partitions by the first heartbeat of its own after that. In step, all at the same time with
50 ms, its second heartbeat comes just then, so only the broker's work is left to be quicker. At Kafka's own interval of
5 s members come as they do anywhere: the old ones spread over the interval, the new ones over a second.
ConsumerGroupHeartbeat 1, and Metadata 10 for the topic's id. Source: KIP-848.
"""

from __future__ import annotations

import contextlib
import random
import secrets
import socket
import struct
import time
from collections.abc import Iterator, Sequence

from bench.compact import compact, flexible_frame, partitions_by_topic, read_assignment, read_compact
from bench.replay import blocking_socket
from bench.report import Result
from bench.session import Session
from bench.wire import BrokerError, Connection, receive_exactly

HEARTBEAT = 68
CONNECTIONS = 10
GROUPS, MEMBERS_OF_GROUP = 50, 20
REBALANCED, PARTITIONS = 100, 200
REBALANCE_LIMIT_S = 60.0
REBALANCE_MS = 60_000
_POLL_S = 0.002
# Kafka's defaults.
STOCK_GROUP = {"consumer.heartbeat.interval.ms": "5000", "consumer.assignment.interval.ms": "1000"}
ARRIVALS_S = 1.0
_NOT_YET = (14, 15, 16)  # the partition of the group is still being created or loaded

# Alike on both brokers: Kafka's own shortest heartbeat interval is 5 s.
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "50",
    "group.consumer.max.session.timeout.ms": "3600000",
    "group.consumer.session.timeout.ms": "3600000",  # a broker that is stopped meanwhile expels nobody
    "group.consumer.assignment.interval.ms": "0",
}

_ANSWER = struct.Struct(">iixih")  # size, correlation id, no tags, throttle time, error
_NUMBERS = struct.Struct(">ii")
_FIRST_INT = struct.Struct(">i")


class Member:
    """One member: `frame` is its next heartbeat, `take` what the broker answers to it."""

    def __init__(self, group: str, topic: str) -> None:
        self.member_id = secrets.token_hex(11)
        self.epoch = 0
        self.owned: dict[bytes, list[int]] = {}
        self.interval_s = 0.0
        self.is_due = True  # it has something to tell
        self.next_s = 0.0
        self._group = compact(group)
        self._topic = compact(topic)
        self._known: tuple[int, bytes] = (0, b"")

    @property
    def partitions(self) -> int:
        return sum(map(len, self.owned.values()))

    def frame(self) -> bytes:
        """The heartbeat that is due; what has been told is not told again."""
        is_due, self.is_due = self.is_due, False
        if self.epoch == 0:
            return self._frame(0, _FIRST_INT.pack(REBALANCE_MS), b"\2" + self._topic, partitions_by_topic({}))
        if is_due:
            return self._frame(self.epoch, b"\xff\xff\xff\xff", b"\0", partitions_by_topic(self.owned))
        if self._known[0] != self.epoch:
            self._known = self.epoch, self._frame(self.epoch, b"\xff\xff\xff\xff", b"\0", b"\0")
        return self._known[1]

    def leave_frame(self) -> bytes:
        return self._frame(-1, b"\xff\xff\xff\xff", b"\0", b"\0")

    def _frame(self, epoch: int, timeout: bytes, names: bytes, partitions: bytes) -> bytes:
        body = b"".join(
            (self._group, compact(self.member_id), _FIRST_INT.pack(epoch), b"\0\0", timeout, names, b"\0\0")
        )
        return flexible_frame(HEARTBEAT, 1, body + partitions + b"\0")

    def take(self, answer: memoryview) -> None:
        """An answer behind its size; a `BrokerError` if it has an error code."""
        code = int.from_bytes(answer[9:11])
        at = 11
        message, at = read_compact(answer, at)
        if code in _NOT_YET and self.epoch == 0:
            self.is_due = True
            return
        if code:
            raise BrokerError(f"ConsumerGroupHeartbeat: error {code}, {message.decode()}")
        _, at = read_compact(answer, at)
        self.epoch, interval_ms = _NUMBERS.unpack_from(answer, at)
        self.interval_s = interval_ms / 1000
        at += _NUMBERS.size
        if answer[at] == 1:
            assigned = read_assignment(answer, at + 1)
            if assigned != self.owned:
                self.owned, self.is_due = assigned, True


@contextlib.contextmanager
def _sockets(session: Session, count: int) -> Iterator[Sequence[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(blocking_socket(session.bootstrap)) for _ in range(count)]


def await_coordinator(session: Session, group: str) -> None:
    """Until the topic of groups is there and loaded."""
    deadline = time.monotonic() + REBALANCE_LIMIT_S
    body = struct.pack(">h", len(group)) + group.encode() + b"\0"
    while time.monotonic() < deadline:
        with Connection(session.bootstrap) as connection:
            cursor = connection.request(10, 1, body)
            cursor.int32()
            if cursor.int16() == 0:
                return
        time.sleep(0.05)
    raise BrokerError("no group coordinator")


def beat(sockets: Sequence[socket.socket], members: Sequence[Member], frames: Sequence[bytes]) -> None:
    """One heartbeat of each member, those of one connection behind each other, and their answers."""
    for number, sock in enumerate(sockets):
        sock.sendall(b"".join(frames[number :: len(sockets)]))
    for number, sock in enumerate(sockets):
        for member in members[number :: len(sockets)]:
            member.take(_receive(sock))


def _receive(sock: socket.socket) -> memoryview:
    prefix = bytearray(4)
    receive_exactly(sock, memoryview(prefix))
    answer = memoryview(bytearray(int.from_bytes(prefix)))
    receive_exactly(sock, answer)
    return answer


def come_to_rest(
    sockets: Sequence[socket.socket], members: Sequence[Member], partitions: int, *, is_paced: bool = True
) -> float:
    """Heartbeats until all members are stable: each at its interval, or at once if it has something to tell. Returns
    the seconds. `partitions`: as many has each member then."""
    started = time.perf_counter()
    while True:
        now = time.perf_counter()
        if now - started > REBALANCE_LIMIT_S:
            raise BrokerError(f"{len(members)} members are not stable after {REBALANCE_LIMIT_S:.0f} s")
        due = [each for each in members if each.is_due or not is_paced or each.next_s <= now]
        if due:
            beat(sockets, due, [each.frame() for each in due])
            now = time.perf_counter()
            for each in due:
                each.next_s = now + each.interval_s
        else:
            time.sleep(_POLL_S)
        is_whole = all(each.partitions == partitions and not each.is_due for each in members)
        if is_whole and len({each.epoch for each in members}) == 1:
            return now - started


def leave(sockets: Sequence[socket.socket], members: Sequence[Member]) -> None:
    for each in members:
        each.is_due = False
    beat(sockets, members, [each.leave_frame() for each in members])


def heartbeats(session: Session, work: str) -> Result:
    """Members of many groups that have nothing to tell, one heartbeat after another; a request is a heartbeat."""
    run = secrets.token_hex(4)
    with session.topic(work, MEMBERS_OF_GROUP) as topic, _sockets(session, CONNECTIONS) as sockets:
        groups = [[Member(f"{run}-{number}", topic) for _ in range(MEMBERS_OF_GROUP)] for number in range(GROUPS)]
        await_coordinator(session, run)
        for group in groups:
            come_to_rest(sockets, group, 1, is_paced=False)
        members = [member for group in groups for member in group]
        frames = [b"".join(each.frame() for each in members[number::CONNECTIONS]) for number in range(CONNECTIONS)]

        def once_and_again(seconds: float) -> int:
            done, until = 0, time.perf_counter() + seconds
            while time.perf_counter() < until:
                done += _beat_unchanged(sockets, frames, len(members))
            return done

        session.warm_up(once_and_again)
        with session.metered() as measure:
            requests = once_and_again(session.seconds)
        for group in groups:
            leave(sockets, group)
    note = f"{GROUPS} groups of {MEMBERS_OF_GROUP} on {CONNECTIONS} connections"
    return Result(work, measure.seconds, requests, cpu=measure.cpu, client_cpu_s=measure.client_cpu_s, note=note)


def _beat_unchanged(sockets: Sequence[socket.socket], frames: Sequence[bytes], count: int) -> int:
    """One heartbeat of each of `count` members, whose answers have one length."""
    for sock, data in zip(sockets, frames, strict=True):
        sock.sendall(data)
    of_each = count // len(sockets)
    for sock in sockets:
        first = bytearray(_ANSWER.size)
        receive_exactly(sock, memoryview(first))
        size, *_, code = _ANSWER.unpack(first)
        if code:
            raise BrokerError(f"ConsumerGroupHeartbeat: error {code}")
        receive_exactly(sock, memoryview(bytearray((size + 4) * of_each - len(first))))
    return count


def rebalance(session: Session, work: str) -> Result:
    """Half of 100 members are stable when the others join; a request is a rebalance, from then until all are stable."""
    count, seconds, cpu, deadline = 0, 0.0, None, time.monotonic() + session.seconds
    with session.topic(work, PARTITIONS) as topic, _sockets(session, CONNECTIONS) as sockets:
        await_coordinator(session, work)
        for warm in (True, True, *([False] * 1_000)):
            group = f"{work}-{secrets.token_hex(4)}"
            members = [Member(group, topic) for _ in range(REBALANCED)]
            old = members[: REBALANCED // 2]
            come_to_rest(sockets, old, PARTITIONS // len(old))
            with session.metered() as measure:
                took_s = come_to_rest(sockets, members, PARTITIONS // REBALANCED)
            leave(sockets, members)
            if not warm:
                count, seconds = count + 1, seconds + took_s
                cpu = cpu + measure.cpu if cpu and measure.cpu else measure.cpu
            if count and time.monotonic() > deadline:
                break
    return Result(work, seconds, count, cpu=cpu, note=f"{REBALANCED} members on {PARTITIONS} partitions")


def stock_rebalance(session: Session, work: str) -> Result:
    """Half of 100 members are stable when the others join within a second, at the default intervals of Kafka. Each
    sample has the same moments."""
    count, seconds, cpu, deadline = 0, 0.0, None, time.monotonic() + session.seconds
    moments = random.Random(work)
    interval_s = int(STOCK_GROUP["consumer.heartbeat.interval.ms"]) / 1000
    with session.topic(work, PARTITIONS) as topic, _sockets(session, CONNECTIONS) as sockets:
        await_coordinator(session, work)
        while not count or time.monotonic() < deadline:
            group = f"{work}-{secrets.token_hex(4)}"
            members = [Member(group, topic) for _ in range(REBALANCED)]
            old, new = members[: REBALANCED // 2], members[REBALANCED // 2 :]
            come_to_rest(sockets, old, PARTITIONS // len(old))
            with Connection(session.bootstrap) as connection:
                connection.alter_group(group, STOCK_GROUP)
            while any(each.interval_s < interval_s for each in old):
                beat(sockets, old, [each.frame() for each in old])
            time.sleep(ARRIVALS_S)  # the last assignment is as long ago as any may be
            started = time.perf_counter()
            for some, within_s in ((old, interval_s), (new, ARRIVALS_S)):
                for each in some:
                    each.is_due, each.next_s = False, started + moments.uniform(0, within_s)
            with session.metered() as measure:
                seconds += come_to_rest(sockets, members, PARTITIONS // REBALANCED)
            leave(sockets, members)
            count += 1
            cpu = cpu + measure.cpu if cpu and measure.cpu else measure.cpu
    note = f"{REBALANCED} members on {PARTITIONS} partitions, heartbeats every {interval_s:.0f} s"
    return Result(work, seconds, count, cpu=cpu, note=note)
