"""Answers to a read_committed client: Fetch to the last stable offset with the aborted transactions, on the fast
path and off it, and ListOffsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.api.fast_path.fetch_fast_path import DelayedFetch
from kafkalite.protocol.header import decode_response
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkalite.record.batch import NewRecord, build_batch, iter_batches
from kafkalite.replication.partition import Partition
from tests.support.fast_path_client import FETCH_VERSIONS, Client, fetch, joined, topics
from tests.support.loop import until

TIME_MS = 1_700_000_000_000
LATEST, MAX_TIMESTAMP = -1, -3


class Producers:
    """Producers that write to one partition, in transactions and outside. Timestamps count up."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self._sequences: dict[int, int] = {}
        self._time_ms = TIME_MS

    def _record(self, size: int) -> NewRecord:
        self._time_ms += 1
        return NewRecord(None, b"v" * size, (), self._time_ms)

    def plain(self, size: int = 10) -> None:
        self.partition.append(memoryview(build_batch([self._record(size)])), TIME_MS, 9)

    def send(self, producer: int, size: int = 10) -> None:
        sequence = self._sequences[producer] = self._sequences.get(producer, -1) + 1
        batch = build_batch(
            [self._record(size)], producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=True
        )
        guard = self.partition.producers.begin_verification(producer, 0, sequence)
        self.partition.append(memoryview(batch), TIME_MS, 9, transactional=True, guard=guard)

    def end(self, producer: int, *, commit: bool) -> None:
        self._time_ms += 1
        self.partition.append_marker(producer, 0, 0, commit, self._time_ms)


async def producers(broker: Any) -> Producers:
    await topics(broker, "t")
    return Producers(broker._running.replica_manager.partition("t", 0))


def answer_of(frame: bytes, version: int) -> tuple[list[int], list[tuple[int, int]] | None, tuple[int, int]]:
    """Base offsets of the batches, the aborted transactions, and (last stable offset, high watermark)."""
    _, response = decode_response(FetchRequest, version, memoryview(frame)[4:])
    data = response.responses[0].partitions[0]
    aborted = data.aborted_transactions
    return (
        [header.base_offset for header, _ in iter_batches(data.records or b"")],
        None if aborted is None else [(txn.producer_id, txn.first_offset) for txn in aborted],
        (data.last_stable_offset, data.high_watermark),
    )


@pytest.mark.parametrize("version", [4, *FETCH_VERSIONS])
def test_a_fetch_ends_at_the_last_stable_offset_and_names_the_aborted_transactions(
    tell: Callable[..., None], version: int
) -> None:
    async def story(_: Any, broker: Any) -> None:
        world = await producers(broker)
        client = Client(broker)

        def ask(offset: int, isolation_level: int = 1) -> Any:
            found = client.ask(fetch(offset, isolation_level=isolation_level), version)
            assert Client(broker).ask(fetch(offset, isolation_level=isolation_level), version) == found
            return answer_of(found, version)

        world.plain()
        world.send(1)
        world.send(2)
        assert ask(0) == ask(0) == ([0], [], (1, 3))
        assert ask(0, 0) == ([0, 1, 2], None, (1, 3))
        world.end(1, commit=False)
        assert ask(0) == ask(0) == ([0, 1], [(1, 1)], (2, 4)), "its marker is behind the last stable offset"
        world.end(2, commit=True)
        assert ask(0) == ask(0) == ([0, 1, 2, 3, 4], [(1, 1)], (5, 5))
        assert ask(3) == ([3, 4], [(1, 1)], (5, 5)), "begun before the fetch offset"
        assert ask(4) == ask(4) == ([4], [], (5, 5))

    tell(story)


def test_a_read_committed_fetch_takes_the_fast_path(tell: Callable[..., None]) -> None:
    async def story(_: Any, broker: Any) -> None:
        world = await producers(broker)
        world.plain()
        world.send(1)
        client = Client(broker)
        request = fetch(0, isolation_level=1)
        found = client.ask(request, 12)
        fast_path = client.connection.fast_paths[1]
        frame = memoryview(bytearray(_frame(request)))
        assert joined(fast_path.answer(frame)) == found  # type: ignore[attr-defined]
        world.end(1, commit=False)
        assert fast_path.answer(frame) is None, "the long way names the aborted transaction"  # type: ignore[attr-defined]
        world.plain()
        behind = memoryview(bytearray(_frame(fetch(3, isolation_level=1))))
        assert joined(fast_path.answer(behind)) == Client(broker).ask(fetch(3, isolation_level=1), 12)  # type: ignore[attr-defined]

    tell(story)


def _frame(request: FetchRequest) -> bytes:
    from kafkalite.protocol.header import request_frame

    return request_frame(request, 12, 7, "somebody")[4:]


@pytest.mark.parametrize("fast", [False, True])
def test_a_fetch_waits_for_the_marker_and_not_for_records_of_an_open_transaction(
    tell: Callable[..., None], fast: bool
) -> None:
    async def story(_: Any, broker: Any) -> None:
        world = await producers(broker)
        client = Client(broker)
        if fast:
            client.ask(fetch(0, isolation_level=1), 12).cancel()
        waiting = client.ask(fetch(0, isolation_level=1), 12)
        uncommitted = Client(broker).ask(fetch(0), 12)
        assert isinstance(waiting, DelayedFetch) == fast
        heard: dict[str, bytes] = {}
        waiting.on_done(lambda parts: heard.update(committed=joined(parts)))
        uncommitted.on_done(lambda parts: heard.update(uncommitted=joined(parts)))
        world.send(1)
        await until(lambda: heard)
        assert heard.keys() == {"uncommitted"}
        world.plain()
        assert answer_of(heard["uncommitted"], 12)[0] == [0]
        world.end(1, commit=False)
        await until(lambda: "committed" in heard)
        assert answer_of(heard["committed"], 12) == ([0, 1, 2], [(1, 0)], (3, 3))

    tell(story)


def test_behind_the_last_stable_offset_nothing_is_waited_for(tell: Callable[..., None]) -> None:
    """A consumer that reads on with read_committed has read further than it may now; Kafka answers at once, too."""

    async def story(_: Any, broker: Any) -> None:
        world = await producers(broker)
        world.send(1)
        world.plain()
        assert answer_of(Client(broker).ask(fetch(1, isolation_level=1), 12), 12) == ([], [], (0, 2))
        world.end(1, commit=True)
        assert answer_of(Client(broker).ask(fetch(1, isolation_level=1), 12), 12) == ([1, 2], [], (3, 3))

    tell(story)


def test_list_offsets_ends_at_the_last_stable_offset(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        world = await producers(broker)
        world.plain()
        world.send(1)
        world.plain()

        async def found(timestamp: int, isolation_level: int) -> int:
            wanted = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(timestamp=timestamp)])
            request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=[wanted])
            answer = await asker.ask(request, 7)
            return int(answer.topics[0].partitions[0].offset)

        for timestamp, committed, uncommitted in (
            (LATEST, 1, 3), (MAX_TIMESTAMP, -1, 2), (TIME_MS + 1, 0, 0), (TIME_MS + 2, -1, 1), (TIME_MS + 3, -1, 2)
        ):  # fmt: skip
            assert (await found(timestamp, 1), await found(timestamp, 0)) == (committed, uncommitted), timestamp
        world.end(1, commit=False)
        assert await found(LATEST, 1) == 4
        assert await found(TIME_MS + 2, 1) == 1, "an aborted record is found, as in Kafka"

    tell(story)


def test_old_clients_get_the_records_of_aborted_transactions_and_no_markers(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        world = await producers(broker)
        world.send(1)
        world.end(1, commit=False)
        world.send(1)
        for version in (1, 3):
            answer = await asker.ask(fetch(0), version)
            records = bytes(answer.responses[0].partitions[0].records)
            assert records.count(b"v" * 10) == 2
            assert int.from_bytes(records[:8], "big") == 0 and (2).to_bytes(8, "big") in records

    tell(story)
