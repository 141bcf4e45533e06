"""The socket of a ZooKeeper: connections of clients, their frames, and the four-letter words.

    frame     length (4), body; the first body of a connection asks for a session, each other begins with xid, type
    answer    length, xid, zxid, error, body; xid -1: an event of a watch, -2: the answer to a ping
    word      four letters in place of a length, such as ruok; the connection ends behind the answer

A connection that exceeds a limit is closed. One whose client does not read, or has many requests that wait for the
disk, is not read from meanwhile.
Source: org.apache.zookeeper.server.NIOServerCnxn, ZooKeeperServer (processConnectRequest, processPacket),
zookeeper.jute (ConnectRequest, ConnectResponse, RequestHeader, ReplyHeader, WatcherEvent), command.FourLetterCommands.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections import Counter
from functools import partial
from typing import cast

from kafkalite.common.clock import Clock, Timer
from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.text import printable
from kafkalite.zk.client.wire_requests import INT, read_fields, string
from kafkalite.zk.server.access_lists import Identity
from kafkalite.zk.server.refusals import AUTH_FAILED, Refused
from kafkalite.zk.server.requests import AUTH, CLOSE_SESSION, PING, SASL, Fields
from kafkalite.zk.server.sessions import PASSWORD_BYTES, Session
from kafkalite.zk.server.transactions import data_field
from kafkalite.zk.server.zookeeper_server import ZooKeeperServer

logger = logging.getLogger(__name__)

VERSION = "3.9.0-kafkalite"  # the protocol that it speaks

_CONNECT = struct.Struct("!iqiq")  # protocol, last zxid, timeout, session
_CONNECTED = struct.Struct("!iiq")  # protocol, timeout, session
_REQUEST = struct.Struct("!ii")  # xid, type
_REPLY = struct.Struct("!iqi")  # xid, zxid, error
_EVENT_XID, _PING_XID, _SYNC_CONNECTED = -1, -2, 3
_HELLO_LIMIT_MS = 10_000
_HELLO_BYTES_MAX = 1_024
_IN_FLIGHT_MAX = 1_000


class ListenerLimits(NamedTuple):
    """`request_bytes`: as jute.maxbuffer. Session timeouts outside their bounds are replaced by them."""

    connections: int = 1_000
    connections_per_address: int = 1_000
    sessions: int = 10_000
    watches: int = 1_000_000
    request_bytes: int = 16 << 20
    session_ms_min: int = 1_000
    session_ms_max: int = 60_000


class ZooKeeperListener:
    """Connections of one ZooKeeper, on the running loop, whose clock is `clock`."""

    def __init__(self, server: ZooKeeperServer, clock: Clock, limits: ListenerLimits | None = None) -> None:
        self.server = server
        self.clock = clock
        self.limits = limits or ListenerLimits()
        self.received = self.sent = self.refused = 0
        self.connections: set[_Connection] = set()
        self.by_session: dict[int, _Connection] = {}
        self.by_address: Counter[str] = Counter()
        self._sockets: asyncio.Server | None = None
        self._left = asyncio.Event()

    @property
    def port(self) -> int:
        """Valid after `open`."""
        assert self._sockets is not None
        return int(self._sockets.sockets[0].getsockname()[1])

    async def open(self, host: str, port: int) -> None:
        """Raises OSError."""
        loop = asyncio.get_running_loop()
        self._sockets = await loop.create_server(partial(_Connection, self), host or None, port)

    async def open_inherited(self, descriptor: int) -> None:
        """Accept connections at a socket that listens already; some may be waiting there. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._sockets = await loop.create_server(partial(_Connection, self), sock=socket.socket(fileno=descriptor))

    def close(self) -> None:
        """Ends all connections; their sessions stay."""
        if self._sockets is not None:
            self._sockets.close()
        for connection in list(self.connections):
            connection.abort()

    async def until_alone(self) -> None:
        """Wait until no client is connected."""
        while self.connections:
            self._left.clear()
            await self._left.wait()

    def is_full(self, address: str) -> bool:
        limits = self.limits
        return len(self.connections) >= limits.connections or self.by_address[address] >= limits.connections_per_address

    def left(self) -> None:
        """A connection has ended."""
        self._left.set()

    def word(self, name: str) -> str:
        """The answer to a four-letter word."""
        sessions = self.server.sessions
        tree = sessions.tree
        match name:
            case "ruok":
                return "imok"
            case "isro":
                return "rw"
            case "envi":
                return f"Environment:\nzookeeper.version={VERSION}\n"
            case "srvr":
                return (
                    f"Zookeeper version: {VERSION}\nLatency min/avg/max: 0/0.0/0\nReceived: {self.received}\n"
                    f"Sent: {self.sent}\nConnections: {len(self.connections)}\n"
                    f"Outstanding: {self.server.waiting_count}\nZxid: {tree.zxid:#x}\nMode: standalone\n"
                    f"Node count: {len(tree.nodes)}\n"
                )
            case "mntr":
                values = {
                    "version": VERSION,
                    "server_state": "standalone",
                    "num_alive_connections": len(self.connections),
                    "connection_rejected": self.refused,
                    "global_sessions": len(sessions.numbers),
                    "outstanding_requests": self.server.waiting_count,
                    "packets_received": self.received,
                    "packets_sent": self.sent,
                    "znode_count": len(tree.nodes),
                    "ephemerals_count": tree.ephemeral_count(),
                    "watch_count": sessions.watches.count,
                    "approximate_data_size": tree.tree_bytes,
                }
                return "".join(f"zk_{key}\t{value}\n" for key, value in values.items())
        return f"{name} is not executed because it is not in the whitelist.\n"


class _Connection(asyncio.Protocol):
    """One client's. `session` is None until it has asked for one."""

    def __init__(self, listener: ZooKeeperListener) -> None:
        self.session: Session | None = None
        self._listener = listener
        self._server = listener.server
        self._address = ""
        self._input = bytearray()
        self._output: list[bytes] = []
        self._in_flight = 0
        self._hello: Timer | None = None
        self._is_blocked = self._is_ending = False

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # that of uvloop is no subclass
        peer = transport.get_extra_info("peername")
        self._address = str(peer[0]) if peer else ""
        listener = self._listener
        if listener.is_full(self._address):
            listener.refused += 1
            logger.warning("ZooKeeper: too many connections; one from %s is closed", self._address)
            self._is_ending = True
            self._transport.abort()
            return
        listener.connections.add(self)
        listener.by_address[self._address] += 1
        self._hello = listener.clock.call_later(_HELLO_LIMIT_MS, self.abort)

    def data_received(self, data: bytes) -> None:
        self._input += data
        at = 0
        try:
            while not self._is_ending and len(self._input) - at >= INT.size:
                (size,) = INT.unpack_from(self._input, at)
                if self.session is None and self._answer_word(bytes(self._input[at : at + INT.size])):
                    return
                if not 0 <= size <= (_HELLO_BYTES_MAX if self.session is None else self._listener.limits.request_bytes):
                    raise Malformed(f"a frame of {size} bytes")
                if len(self._input) - at - INT.size < size:
                    break
                at += INT.size + size
                self._take(bytes(self._input[at - size : at]))
        except Malformed as fault:
            logger.warning("ZooKeeper: a connection from %s is closed: %s", self._address, printable(str(fault)))
            self.abort()
        del self._input[:at]
        self._set_reading()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._is_blocked = True
        self._set_reading()

    def resume_writing(self) -> None:
        self._is_blocked = False
        self._set_reading()

    def connection_lost(self, _: Exception | None) -> None:
        self._is_ending = True
        if self._hello is not None:
            self._hello.cancel()
        listener = self._listener
        if self not in listener.connections:
            return
        listener.connections.discard(self)
        listener.left()
        listener.by_address[self._address] -= 1
        if not listener.by_address[self._address]:
            del listener.by_address[self._address]
        self._leave_session()

    def abort(self) -> None:
        self._is_ending = True
        self._transport.abort()

    # the session

    def _leave_session(self) -> None:
        session, sessions = self.session, self._server.sessions
        if session is not None and self._listener.by_session.get(session.number) is self:
            del self._listener.by_session[session.number]
            session.on_end = None
            sessions.detach(session)

    def _connect(self, body: bytes) -> None:
        ((_, last_zxid, timeout_ms, number), at) = read_fields(_CONNECT, body, 0)
        fields = Fields(body[at:])
        password = fields.data() or b""
        is_old = not fields.has_more()  # before 3.4: it says nothing of read-only servers, and is told nothing
        if self._hello is not None:
            self._hello.cancel()
        server, limits = self._server, self._listener.limits
        sessions = server.sessions
        if last_zxid > sessions.tree.zxid:
            raise Malformed(f"its client has seen transaction {last_zxid:#x}, which this server has not")
        timeout_ms = min(max(timeout_ms, limits.session_ms_min), limits.session_ms_max)
        session = None
        if number:
            session = sessions.resume(number, password, timeout_ms)
        elif len(sessions.numbers) < limits.sessions:
            session = sessions.open(timeout_ms)
        else:
            raise Malformed(f"there are {limits.sessions} sessions already")
        end = b"" if is_old else b"\0"
        if session is None:
            self._deliver(_CONNECTED.pack(0, 0, 0) + data_field(bytes(PASSWORD_BYTES)) + end, is_last=True)
            return
        former = self._listener.by_session.pop(session.number, None)
        if former is not None:
            former.abort()
        self.session = session
        self._listener.by_session[session.number] = self
        sessions.attach(session, self._send_event, [Identity("ip", self._address)])
        session.on_end = self.abort
        sessions.touch(session)
        password = sessions.password(session)
        self._deliver(_CONNECTED.pack(0, session.timeout_ms, session.number) + data_field(password) + end)

    # requests

    def _take(self, body: bytes) -> None:
        self._listener.received += 1
        session, sessions = self.session, self._server.sessions
        if session is None:
            self._connect(body)
            return
        ((xid, kind), at) = read_fields(_REQUEST, body, 0)
        if not sessions.is_alive(session):
            self.abort()
            return
        sessions.touch(session)
        if kind == PING:
            self._reply(_PING_XID, 0)
        elif kind == CLOSE_SESSION:
            session.on_end = None
            sessions.end(session)
            self._reply(xid, 0, is_last=True)
        elif kind in (AUTH, SASL):
            self._log_in(session, xid, kind, body[at:])
        elif sessions.watches.count > self._listener.limits.watches:
            raise Malformed(f"there are {sessions.watches.count} watches")
        else:
            try:
                answer = sessions.serve(session, kind, body[at:])
            except Refused as refusal:
                self._reply(xid, refusal.code)
            else:
                self._reply(xid, 0, answer)

    def _log_in(self, session: Session, xid: int, kind: int, body: bytes) -> None:
        fields = Fields(body)
        if kind == AUTH:
            fields.integer()
            scheme, credentials = fields.string(), fields.data() or b""
            if scheme == "digest" and credentials.isascii():
                self._server.sessions.log_in(session, credentials.decode())
                self._deliver(_REPLY.pack(xid, 0, 0))
                return
            if scheme == "ip":
                self._deliver(_REPLY.pack(xid, 0, 0))
                return
        self._deliver(_REPLY.pack(xid, 0, AUTH_FAILED), is_last=True)

    # messages to the client

    def _send_event(self, kind: int, path: str) -> None:
        zxid = self._server.sessions.tree.zxid
        event = INT.pack(kind) + INT.pack(_SYNC_CONNECTED) + string(path)
        self._deliver(_REPLY.pack(_EVENT_XID, zxid, 0) + event)

    def _reply(self, xid: int, error: int, answer: bytes = b"", *, is_last: bool = False) -> None:
        self._deliver(_REPLY.pack(xid, self._server.sessions.tree.zxid, error) + answer, is_last=is_last)

    def _deliver(self, body: bytes, *, is_last: bool = False) -> None:
        self._is_ending |= is_last
        self._in_flight += 1
        self._server.when_durable(partial(self._send, body, is_last))

    def _send(self, body: bytes, is_last: bool) -> None:
        self._in_flight -= 1
        if self._transport.is_closing():
            return
        self._listener.sent += 1
        if not self._output:
            asyncio.get_running_loop().call_soon(self._flush)
        self._output += (INT.pack(len(body)), body)
        if is_last:
            self._flush()
            self._transport.close()
        elif self._in_flight == _IN_FLIGHT_MAX - 1:
            self._set_reading()

    def _flush(self) -> None:
        """Everything of one turn of the loop in one write."""
        if self._output and not self._transport.is_closing():
            self._transport.write(b"".join(self._output))
        self._output.clear()

    def _set_reading(self) -> None:
        if self._transport.is_closing():
            return
        if self._is_blocked or self._in_flight >= _IN_FLIGHT_MAX:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _answer_word(self, letters: bytes) -> bool:
        if not (letters.isalpha() and letters.islower()):
            return False
        self._is_ending = True
        answer = self._listener.word(letters.decode())
        self._transport.write(answer.encode())
        self._transport.close()
        return True
