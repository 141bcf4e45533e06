"""Hostile frames without end, each made from a seed and its number alone, so that any one can be made again.

The first ones are systematic: every golden frame cut off at every byte. Then come drawn ones: noise, flipped bits,
sizes that lie, counts that promise what is not there, broken bodies, bombs of tagged fields and of doubled arrays,
record batches with one thing wrong (the checksum made right again, mostly), and compressed bombs.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable
from functools import cached_property
from itertools import accumulate
from struct import pack, pack_into
from typing import NamedTuple

from kafkalite.protocol.apis import APIS
from kafkalite.protocol.header import request_frame
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.record.batch import HEADER_BYTES, compute_crc
from kafkalite.record.message_set import build_message
from kafkalite.record.message_set import pack as pack_set
from tests.system.hostile.fuzz_bombs import bombs, bombs_of_sets
from tests.system.hostile.fuzz_golden import (
    CLIENT_ID,
    PLAIN,
    TOPICS,
    batch,
    framed,
    golden_frames,
    mend_checksums,
    message_set,
)

FRAME_BYTES_MAX = 100 * 1024 * 1024  # socket.request.max.bytes
HUGE = [bytes.fromhex(text) for text in ["7fffffff", "80000000", "ffffffff", "fffffffe", "00ffffff", "7fff", "8000"]]
HUGE_COMPACT = [bytes.fromhex(text) for text in ("ffffffff0f", "ffffffffffffffffff01", "ff7f", "80808008", "80" * 12)]


class Hostile(NamedTuple):
    """One frame, whole as it goes out. `derails`: its size is a lie, nothing behind it would be read as a frame."""

    kind: str
    data: bytes
    derails: bool = False


class Frames:
    """The frames of one seed, by number."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.golden = [(api.key, version, frame) for api, version, frame in golden_frames()]
        # where each golden frame's truncations begin: one for each length from nothing to one byte less than all
        self.cuts = [0, *accumulate(len(frame) - 4 for _, _, frame in self.golden)]

    @property
    def systematic_count(self) -> int:
        return self.cuts[-1]

    def frame(self, number: int) -> Hostile:
        """The frame of that number; the first `systematic_count` are the truncations. Its correlation id, if it is long
        enough to have one, is its number: so its answer is known."""
        hostile = self._made(number)
        data = hostile.data
        if len(data) < 12:
            return hostile
        return hostile._replace(data=data[:8] + pack(">i", number) + data[12:])

    def _made(self, number: int) -> Hostile:
        if number < self.cuts[-1]:
            at = bisect_right(self.cuts, number) - 1
            return _cut_at(self.golden[at][2], number - self.cuts[at])
        dice = random.Random(self.seed << 40 | number)
        draw = dice.random()
        for share, make in self._table:
            if draw < share:
                return make(self, dice)
        return self.noise(dice)

    def pick(self, dice: random.Random) -> bytes:
        return self.golden[dice.randrange(len(self.golden))][2]

    def noise(self, dice: random.Random) -> Hostile:
        """Bytes without meaning; now and then with a good header's beginning."""
        body = dice.randbytes(dice.randrange(1, 300))
        if dice.random() < 0.5:
            key, version, _ = self.golden[dice.randrange(len(self.golden))]
            body = pack(">hh", key, version) + body
        return Hostile("noise", framed(body))

    def cut(self, dice: random.Random) -> Hostile:
        frame = self.pick(dice)
        return _cut_at(frame, dice.randrange(len(frame) - 4))

    def good(self, dice: random.Random) -> Hostile:
        """Also a stranger may mean well."""
        return Hostile("good", self.pick(dice))

    def flipped(self, dice: random.Random) -> Hostile:
        body = bytearray(self.pick(dice)[4:])
        for _ in range(dice.choice((1, 1, 1, 2, 3, 8, 20))):
            body[dice.randrange(len(body))] ^= 1 << dice.randrange(8)
        return Hostile("flipped", framed(body))

    def overwritten(self, dice: random.Random) -> Hostile:
        """A count or length somewhere is enormous, negative, or a varint that does not end."""
        body = bytearray(self.pick(dice)[4:])
        huge = dice.choice(HUGE if dice.random() < 0.6 else HUGE_COMPACT)
        at = dice.randrange(8, len(body))
        body[at : at + (len(huge) if dice.random() < 0.7 else 1)] = huge
        return Hostile("count", framed(body))

    def body_noise(self, dice: random.Random) -> Hostile:
        frame = self.pick(dice)
        head = frame[4 : 4 + 10 + len(CLIENT_ID)]
        return Hostile("body", framed(head + b"\0" * dice.randrange(2) + dice.randbytes(dice.randrange(0, 200))))

    def spliced(self, dice: random.Random) -> Hostile:
        """The beginning of one request and the end of another."""
        one, other = self.pick(dice), self.pick(dice)
        body = one[4 : dice.randrange(14, len(one))] + other[dice.randrange(14, len(other)) :]
        return Hostile("spliced", framed(body))

    def lying(self, dice: random.Random) -> Hostile:
        """The size in front of the frame is not its size."""
        frame = self.pick(dice)
        size = len(frame) - 4
        limits = (-1, 0, -(2**31), 2**31 - 1, FRAME_BYTES_MAX, FRAME_BYTES_MAX + 1)
        texts = (0x16030100, 0x47455420)  # of TLS and HTTP
        lie = dice.choice((*limits, *texts, size + 1, size - 1, size + 70_000, dice.randrange(1, 2**31)))
        return Hostile("size", pack(">i", lie) + frame[4:], derails=True)

    def tagged(self, dice: random.Random) -> Hostile:
        """Tagged fields where there are none, too many of them, too long ones, unordered and doubled ones."""
        flexible = [frame for key, version, frame in self.golden if version in APIS[key].request.flexible]
        frame = dice.choice(flexible)
        field = dice.choice((b"\0\0", b"\1\0", b"\0\5abcde", b"\x7f\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x0f\0"))
        count = dice.choice((1, 2, 100, 5000))
        said = dice.choice((count, count + 1, 0x0FFFFFFF))
        varint = bytes((said & 127 | 128, said >> 7 & 127 | 128, said >> 14 & 127 | 128, said >> 21 & 127))
        at = 4 + 10 + len(CLIENT_ID) if dice.random() < 0.5 else len(frame) - 1
        return Hostile("tagged", framed(frame[4:at] + varint + field * count + frame[at + 1 :]))

    def doubled(self, dice: random.Random) -> Hostile:
        """Well formed, and the same thing a thousand times."""
        count = dice.choice((2, 10, 300, 1000))
        records = memoryview(bytes(batch()))
        data = [PartitionProduceData(index=0, records=records if i % 100 == 0 else None) for i in range(count)]
        topics = [FetchTopic(topic=PLAIN, partitions=[FetchPartition(partition_max_bytes=100)] * 2)] * (count // 2)
        request, version = dice.choice(
            (
                (ProduceRequest(acks=-1, topic_data=[TopicProduceData(name=PLAIN, partition_data=data)]), 8),
                (ProduceRequest(acks=1, topic_data=[TopicProduceData(name="", partition_data=[])] * count), 9),
                (FetchRequest(topics=topics, session_epoch=0, max_bytes=1000), 12),
                (MetadataRequest(topics=[MetadataRequestTopic(name=PLAIN)] * count), 9),
            )
        )
        return Hostile("doubled", request_frame(request, version, 9, CLIENT_ID))

    def batch(self, dice: random.Random) -> Hostile:
        """A produce request with a batch that is wrong somewhere, but for its checksum mostly, so that more is read."""
        data = batch(dice.randrange(5), count=dice.choice((1, 2, 40)), producer_id=dice.choice((-1, -1, 5)))
        way = dice.randrange(4)
        if way == 0:
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        elif way == 1:
            at = dice.randrange(HEADER_BYTES, len(data))
            data[at : at + dice.randrange(6)] = dice.choice([*HUGE_COMPACT, b"", dice.randbytes(4)])
        elif way == 2:
            pack_into(">i", data, dice.choice((23, 57)), dice.choice((-1, 0, 1, 2**31 - 1, -(2**31), 1000)))
        else:
            data = data[: dice.randrange(len(data))]
        if dice.random() < 0.8 and len(data) >= HEADER_BYTES:
            pack_into(">i", data, 8, len(data) - 12)
            pack_into(">I", data, 17, compute_crc(data))
        return Hostile("batch", produce(dice.choice(TOPICS), data, dice.choice((3, 7, 8, 9)), dice.choice((-1, 1, 0))))

    def old_set(self, dice: random.Random) -> Hostile:
        """A produce request of old with a message set that is wrong somewhere, its checksums right mostly."""
        magic, codec = dice.randrange(2), dice.choice((0, 0, 0, 1, 2, 3))
        inside = bytearray(message_set(magic, count=dice.choice((1, 2, 40)), key=dice.choice((b"k", None))))
        way = dice.randrange(4)
        if way == 0:
            inside[dice.randrange(len(inside))] ^= 1 << dice.randrange(8)
        elif way == 1:  # an offset, a size, a checksum, a magic, a length of a key or value
            pack_into(">i", inside, dice.randrange(len(inside) - 4), dice.choice((-1, 0, 13, -(2**31), 2**31 - 1, 300)))
        elif way == 2:
            inside += dice.choice((message_set(1 - magic), message_set(magic, 1), bytes(batch())))
        else:
            del inside[dice.randrange(len(inside)) :]
        if dice.random() < 0.8:
            mend_checksums(inside)
        data = bytes(inside)
        if codec or dice.random() < 0.2:
            attributes = codec if dice.random() < 0.9 else dice.randrange(-128, 128)
            offset = dice.choice((0, 0, 1, len(data), -1))
            data = build_message(offset, None, pack_set(codec, data, magic), magic=magic, attributes=attributes)
        return Hostile("set", produce(dice.choice(TOPICS), data, dice.randrange(3), dice.choice((-1, 1, 0))))

    def bomb(self, dice: random.Random) -> Hostile:
        if dice.random() < 0.3:
            return Hostile("bomb", produce(dice.choice(TOPICS), dice.choice(bombs_of_sets()), dice.randrange(3), -1))
        return Hostile("bomb", produce(dice.choice(TOPICS[1:]), dice.choice(bombs()), 9, -1))

    @cached_property
    def _table(self) -> list[tuple[float, Callable[[Frames, random.Random], Hostile]]]:
        shares = (
            (0.10, Frames.noise), (0.10, Frames.cut), (0.08, Frames.good), (0.25, Frames.flipped),
            (0.15, Frames.overwritten), (0.06, Frames.body_noise), (0.06, Frames.spliced), (0.04, Frames.lying),
            (0.03, Frames.tagged), (0.0197, Frames.doubled), (0.08, Frames.batch), (0.03, Frames.old_set),
            (0.0003, Frames.bomb),
        )  # fmt: skip
        return list(zip(accumulate(share for share, _ in shares), (make for _, make in shares), strict=True))


def produce(topic: str, records: bytes | bytearray, version: int, acks: int) -> bytes:
    """A produce frame of one batch."""
    data = [PartitionProduceData(index=0, records=memoryview(records))]
    request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=data)])
    return request_frame(request, version, 11, CLIENT_ID)


def _cut_at(frame: bytes, size: int) -> Hostile:
    # a frame of no bytes is a size that lies: nothing can come of it but the end
    return Hostile("cut", framed(frame[4 : 4 + size]), derails=size == 0)
