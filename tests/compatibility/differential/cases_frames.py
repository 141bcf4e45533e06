"""Frames by hand: unknown APIs and versions, headers and bodies that are not whole."""

from __future__ import annotations

import struct

from kafkalite.protocol.apis import APIS
from kafkalite.protocol.header import request_frame
from kafkalite.protocol.messages.groups import HeartbeatRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from tests.compatibility.differential.asking import metadata
from tests.compatibility.differential.engine import Explained, Teller, in_versions, once


def frame(*parts: bytes) -> bytes:
    body = b"".join(parts)
    return struct.pack(">i", len(body)) + body


def header(key: int, version: int, client_id: bytes | None = b"differ") -> bytes:
    name = b"\xff\xff" if client_id is None else struct.pack(">h", len(client_id)) + client_id
    return struct.pack(">hhi", key, version, 7) + name


@once
def unknown_apis(t: Teller) -> None:
    for key in (-1, 1000, 32767, -32768):
        t.say(f"API {key}", frame(header(key, 0), b"\0" * 20))


@once
def versions_that_nobody_has(t: Teller) -> None:
    for key, api in APIS.items():
        if api.name != "ApiVersions":  # which answers
            t.say(f"{api.name} 99", frame(header(key, 99), b"\0" * 40))
            t.say(f"{api.name} -1", frame(header(key, -1), b"\0" * 40))


@once
def headers_cut_short(t: Teller) -> None:
    whole = header(3, 1) + struct.pack(">i", 0)
    for size in (0, 1, 2, 4, 7, 8, 9, 10, 13):
        t.say(f"{size} bytes", frame(whole[:size]))
    t.say("the client id goes past the end", frame(struct.pack(">hhih", 3, 1, 7, 500) + b"differ"))
    t.say("the client id is not UTF-8", frame(header(3, 1, b"\xff\xfe\xfd"), struct.pack(">i", 0)))
    t.say("no client id", frame(header(3, 1, None), struct.pack(">i", 0)))
    t.say("a client id of length -2", frame(struct.pack(">hhih", 3, 1, 7, -2), struct.pack(">i", 0)))
    t.say("an empty client id", frame(header(3, 1, b""), struct.pack(">i", 0)))
    t.say("a size of -1", struct.pack(">i", -1))
    t.say("a size of 2^31-1", struct.pack(">i", 0x7FFFFFFF))


@in_versions(1, 8, 9)
def bodies_cut_short(t: Teller) -> None:
    whole = request_frame(metadata(t.topic()), t.v, 7, "differ")[4:]
    t.say("whole", frame(whole))
    for less in (1, 2, 3, 5, 9):
        t.say(f"{less} bytes less", frame(whole[:-less]))
    t.say("bytes behind the end", frame(whole, b"behind"))


NOT_UTF8 = Explained(
    "text that is not UTF-8 closes the connection",
    "Kafka puts a mark for what it cannot read, so that two names may become one; kafkalite does so in client ids only",
)


@once
def counts_that_lie(t: Teller) -> None:
    t.say("2^31-1 topics", frame(header(3, 1), struct.pack(">i", 0x7FFFFFFF)))
    t.say("-2 topics", frame(header(3, 1), struct.pack(">i", -2)))
    t.say("a name of -1 bytes", frame(header(3, 1), struct.pack(">ih", 1, -1)))
    t.say("a name past the end", frame(header(3, 1), struct.pack(">ih", 1, 99)))
    t.say("no array in version 0", frame(header(3, 0), struct.pack(">i", -1)))
    t.say("a name that is not UTF-8", frame(header(3, 1), struct.pack(">ih", 1, 2), b"\xff\xfe"), but=NOT_UTF8)
    t.say("an endless varint", frame(header(3, 9), b"\0" + b"\xff" * 12))
    t.say("a group id that is null", frame(header(12, 0), struct.pack(">hih", -1, 1, -1)))


@once
def tags_that_nobody_knows(t: Teller) -> None:
    """A flexible request carries them in its header, in its body, or not where it says."""
    body = request_frame(MetadataRequest(topics=[]), 9, 7, "differ")[4 + 8 + 2 + 6 + 1 : -1]
    t.say("in the header", frame(header(3, 9), b"\x01\x63\x03abc", body, b"\0"))
    t.say("in the body", frame(header(3, 9), b"\0", body, b"\x02\x0a\x01x\x63\x00"))
    t.say("twice the same", frame(header(3, 9), b"\0", body, b"\x02\x0a\x01x\x0a\x01x"))
    t.say("not in order", frame(header(3, 9), b"\0", body, b"\x02\x0b\x01x\x0a\x01x"))
    t.say("past the end", frame(header(3, 9), b"\0", body, b"\x01\x0a\x7fx"))
    t.say("too few", frame(header(3, 9), b"\0", body, b"\x02\x0a\x01x"))


@once
def the_newest_versions(t: Teller) -> None:
    group = t.name("none")
    beat = request_frame(HeartbeatRequest(group_id=group, member_id="m", generation_id=1), 4, 7, "differ")
    t.say("Heartbeat 4", beat)
    t.say("Metadata 12, all", frame(header(3, 12), b"\0\0\x01\0\0"))


@once
def two_requests_in_one_packet(t: Teller) -> None:
    """Answered in order; `say` reads the first answer."""
    one = request_frame(MetadataRequest(topics=[]), 1, 7, "differ")
    t.say("Metadata twice", one + one)
