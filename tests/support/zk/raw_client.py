"""A client of ZooKeeper that sends bytes as they are, and decodes answers so that two servers can be compared."""

from __future__ import annotations

import asyncio
import struct
from typing import Any, Self

from kafkalite.zk.client.wire_requests import MULTI_HEADER, string
from kafkalite.zk.server.requests import Fields
from kafkalite.zk.server.transactions import data_field

CREATE, DELETE, EXISTS, GET_DATA, SET_DATA, GET_ACL, SET_ACL, GET_CHILDREN, SYNC = range(1, 10)
PING, GET_CHILDREN2, CHECK, MULTI, CREATE2 = 11, 12, 13, 14, 15
CHECK_WATCHES, REMOVE_WATCHES, CREATE_CONTAINER, CREATE_TTL, MULTI_READ = 17, 18, 19, 21, 22
AUTH, SET_WATCHES, GET_EPHEMERALS, GET_ALL_CHILDREN_NUMBER, SET_WATCHES2, ADD_WATCH, WHO_AM_I = (
    100, 101, 103, 104, 105, 106, 107,
)  # fmt: skip
CLOSE = -11
INT = struct.Struct("!i")
LIMIT_S = 20.0


class RawClient:
    """One connection. `session` and `password` are those that the server gave it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._xid = 0
        self.session = 0
        self.timeout_ms = 0
        self.password = bytes(16)
        self.zxid = 0

    @classmethod
    async def open(
        cls, port: int, session: int = 0, password: bytes = bytes(16), timeout_ms: int = 10_000, zxid: int = 0
    ) -> Self:
        client = cls(*await asyncio.open_connection("127.0.0.1", port))
        client.write(struct.pack("!iqiq", 0, zxid, timeout_ms, session) + data_field(password) + b"\0")
        fields = Fields(await client.frame())
        fields.integer()
        client.timeout_ms, client.session, client.password = fields.integer(), fields.long(), fields.data() or b""
        return client

    def write(self, body: bytes) -> None:
        self._writer.write(INT.pack(len(body)) + body)

    async def frame(self) -> bytes:
        """Raises IncompleteReadError at the end of the connection."""
        async with asyncio.timeout(LIMIT_S):
            (size,) = INT.unpack(await self._reader.readexactly(4))
            return await self._reader.readexactly(size)

    async def ask(self, kind: int, body: bytes = b"") -> tuple[list[tuple[int, str]], int, bytes]:
        """The events before the answer, its error, its body."""
        self._xid += 1
        xid = {PING: -2, AUTH: -4, SET_WATCHES: -8}.get(kind, self._xid)
        self.write(struct.pack("!ii", xid, kind) + body)
        events = []
        while True:
            answer = await self.frame()
            got, zxid, error = struct.unpack_from("!iqi", answer)
            if got == -1:
                fields = Fields(answer[16:])
                event, _, path = fields.integer(), fields.integer(), fields.string()
                events.append((event, path))
                continue
            assert got == xid, (got, xid)
            self.zxid = max(self.zxid, zxid)
            return events, error, answer[16:]

    def close(self) -> None:
        self._writer.close()


def create(path: str, data: bytes | None, access_list: bytes, flags: int) -> bytes:
    return string(path) + data_field(data) + access_list + INT.pack(flags)


def multi(parts: list[tuple[int, bytes]]) -> bytes:
    return b"".join(MULTI_HEADER.pack(kind, 0, -1) + body for kind, body in parts) + MULTI_HEADER.pack(-1, 1, -1)


def decoded(kind: int, body: bytes, base_zxid: int, owners: dict[int, str]) -> Any:
    """The answer's content: zxids from `base_zxid` on, sessions by their names, without times."""
    fields = Fields(body)
    found = _content(kind, fields, base_zxid, owners)
    assert not fields.has_more(), (kind, body)
    return found


def _content(kind: int, fields: Fields, base: int, owners: dict[int, str]) -> Any:
    match kind:
        case 1 | 9:
            return fields.string()
        case 15 | 19 | 21:
            return fields.string(), _stat(fields, base, owners)
        case 4:
            return fields.data(), _stat(fields, base, owners)
        case 3 | 5 | 7:
            return _stat(fields, base, owners)
        case 6:
            return fields.access_list(), _stat(fields, base, owners)
        case 8 | 103:
            return sorted(fields.strings())
        case 12:
            return sorted(fields.strings()), _stat(fields, base, owners)
        case 104 | 106:
            return fields.integer()
        case 107:
            return sorted((fields.string(), fields.string()) for _ in range(fields.integer()))
        case 14 | 22:
            results = []
            for each in fields.kinds():
                content = fields.integer() if each == -1 else _content(each, fields, base, owners)
                results.append((each, content))
            return results
    return None


def _stat(fields: Fields, base: int, owners: dict[int, str]) -> Any:
    czxid, mzxid = (max(0, fields.long() - base) for _ in range(2))
    fields.long(), fields.long()  # times
    versions = [fields.integer() for _ in range(3)]
    owner = fields.long()
    sizes = fields.integer(), fields.integer()
    return czxid, mzxid, versions, owners.get(owner, owner), sizes, max(0, fields.long() - base)
