"""Drives a broker in this process: it may end at any call to its disk, and time moves only when told."""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Coroutine, Mapping
from random import Random
from typing import Any, NoReturn

from kafkalite.cleaner.job.job import CleaningFailed
from kafkalite.common.errors import KafkaError, StorageError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.network.client_connection import ClientConnection, Pending
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.header import decode_response, request_frame
from tests.support.in_memory_cluster import InMemoryCluster, InMemoryMetadata
from tests.support.log.faulty_files import Ended, FaultyFiles, Killed, PowerCut
from tests.support.loop import idle
from tests.support.manual_clock import ManualClock
from tests.support.transactions.driver import NoAnswer
from tests.support.transactions.in_process_broker import BROKER_ID, InProcessBroker, StandaloneInMemory, connection_of

_SETTINGS = {
    "broker.id": "0",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "log.index.size.max.bytes": "480",
    "log.cleaner.backoff.ms": "1000000000000",  # cleanings are made by `InProcessBroker.clean`
}
_HANGS_MS = 30_000
_ENDS: Mapping[str, type[Ended]] = {"kill": Killed, "power_cut": PowerCut}


class InProcessDriver:
    """`directory` is where its disks are made, one behind another. `is_shared`: the metadata are those of a cluster, so
    every start has new leader epochs."""

    settles_ms = 200_000

    def __init__(self, directory: str, settings: Mapping[str, str], seed: int, *, is_shared: bool = False) -> None:
        self._directory = directory
        self._random = Random(seed)
        self._config = BrokerConfig.load({**_SETTINGS, **settings})
        self._is_shared = is_shared
        self._cluster = InMemoryCluster()
        self._clock = ManualClock()
        self._correlation_id = 0
        self._connections: dict[str, ClientConnection] = {}
        self._late: deque[tuple[str, Message, int]] = deque()
        self._disks = 0
        self.passes = 0  # of the cleaner
        self.ends = 0  # that nobody ordered
        self.errors: list[BaseException] = []  # that nobody has caught
        self.is_down = True
        os.makedirs(f"{directory}/disk-0")
        self.files = FaultyFiles(
            f"{directory}/disk-0", ordered=self._random.random() < 0.4, block_bytes=self._random.choice((64, 4096)),
            open_segments=self._random.choice((8, 64)),
        )  # fmt: skip
        self.start()

    # the interface

    def now_ms(self) -> int:
        return self._clock.wall_ms()

    def ask(self, client: str, request: Message, version: int) -> Any:
        if self.is_down:
            raise NoAnswer
        return self._run(self._ask(client, request, version, waits=True))

    def leave(self, client: str, request: Message, version: int, *, is_late: bool) -> NoReturn:
        if is_late:
            self._late.append((client, request, version))
        elif not self.is_down:
            self._run(self._ask(client, request, version, waits=False))
        raise NoAnswer

    def deliver(self) -> None:
        if self._late and not self.is_down:
            client, request, version = self._late.popleft()
            self._run(self._ask(f"{client}-late", request, version, waits=False))

    def wait(self, duration_ms: int) -> None:
        if not self.is_down:
            try:
                self._run(self._wait(duration_ms))
            except NoAnswer:
                return

    def start(self) -> None:
        while self.is_down:
            self._loop = asyncio.new_event_loop()
            self._loop.set_exception_handler(self._on_loop_error)
            self._clock = ManualClock(self._clock.wall_ms())  # the timers of the one before are gone
            self._connections.clear()
            self.is_down = False
            try:
                self._run(self._start())
            except NoAnswer:
                continue

    def operate(self, what: str, *arguments: Any) -> None:
        if self.is_down:
            return
        try:
            getattr(self, f"_{what}")(*arguments)
        except (NoAnswer, StorageError, OSError, CleaningFailed):
            return

    def close(self) -> None:
        if not self.is_down:
            self.files.heal()
            self.files.ended = Killed
            self._go_down()

    # what may be done to it

    def _work(self, count: int) -> None:
        """The background carries out some of its jobs, in some order."""
        self._run(self._carry_out(count))

    def _end_soon(self, after_calls: int, by: str, torn_bytes: int | None) -> None:
        self.files.end_at = self.files.calls + after_calls
        self.files.end_by = _ENDS[by]
        self.files.torn_bytes = torn_bytes

    def _refuse(self, topic: str, times: int) -> None:
        """The disk takes so many writes to logs of the topic not, as if it were full."""
        self.files.fail("pwrite", f"{topic}-", errno.ENOSPC, times=times)

    def _heal(self) -> None:
        self.files.heal()

    def _kill(self) -> None:
        self.files.ended = Killed
        self._go_down()

    def _power_cut(self) -> None:
        self.files.ended = PowerCut
        self._go_down()

    def _restart(self) -> None:
        """An orderly stop and a start."""
        self._run(self._stop())
        self.files.ended = Killed
        self._go_down()
        self.start()

    def _roll(self, topic: str, partition: int) -> None:
        self._run(self._do(lambda: self.broker.roll((topic, partition))))

    def _clean(self, topic: str, partition: int) -> None:
        self._run(self._do(lambda: self.broker.clean((topic, partition))))

    def _retain(self) -> None:
        self._run(self._do(self.broker.delete_old_segments))

    # in the loop

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Raises NoAnswer when the broker has ended meanwhile."""
        try:
            result = self._loop.run_until_complete(work)
        except Ended:
            self._go_down()
            raise NoAnswer from None
        if self.files.ended is not None:
            self._go_down()
            raise NoAnswer
        assert not self.errors, f"the broker failed: {self.errors}"
        return result

    async def _start(self) -> None:
        metadata: InMemoryMetadata
        if self._is_shared:
            self._cluster.brokers.pop(BROKER_ID, None)
            self._cluster.elect()
            metadata = self._cluster.metadata(BROKER_ID)
        else:
            metadata = self._cluster.members[BROKER_ID] = StandaloneInMemory(self._cluster, BROKER_ID)
            await metadata.register((), None)
        self.broker = InProcessBroker(self._config, self._clock, metadata, self.files)
        await self.broker.start()

    async def _stop(self) -> None:
        await self._result_of(asyncio.ensure_future(self.broker.stop()), "the stop")

    async def _do(self, work: Any) -> None:
        work()
        await idle()

    async def _carry_out(self, count: int) -> None:
        for _ in range(count):
            if not self.broker.work(self._random.randrange(4)):
                break
            await idle()

    async def _wait(self, duration_ms: int) -> None:
        """The disk is quicker than that."""
        end_ms = self._clock.monotonic_ms() + duration_ms
        while (left_ms := end_ms - self._clock.monotonic_ms()) > 0:
            self._clock.advance(min(left_ms, max(50, duration_ms // 4)))
            await idle()
            while self.broker.work():
                await idle()

    async def _ask(self, client: str, request: Message, version: int, *, waits: bool) -> Any:
        connection = self._connections.get(client)
        if connection is None:
            connection = self._connections[client] = connection_of(client)
        self._correlation_id += 1
        frame = request_frame(request, version, self._correlation_id, client)
        answer = self.broker.server.handler(connection, memoryview(bytearray(frame[4:])))
        if answer is None:
            return None
        if not isinstance(answer, list):
            answer = await self._answer_of(client, answer, waits)
        if not waits:
            self._connections.pop(client)
            return None
        data = b"".join(part if isinstance(part, (bytes, bytearray)) else _bytes_of(part) for part in answer)
        correlation_id, response = decode_response(type(request), version, memoryview(data)[4:])
        assert correlation_id == self._correlation_id
        return response

    async def _answer_of(self, client: str, answer: Any, waits: bool) -> Any:
        """The parts of an answer that is to come."""
        if isinstance(answer, Pending):
            outcome: asyncio.Future[Any] = self._loop.create_future()
            outcome.add_done_callback(lambda done: done.cancelled() or done.exception())  # none waits after its end
            answer.on_done(outcome.set_result, outcome.set_exception)
            leave = answer.cancel
        else:
            outcome = asyncio.ensure_future(answer)
            leave = outcome.cancel  # type: ignore[assignment]
        if not waits:
            await idle()
            leave()
            await idle()
            return None
        return await self._result_of(outcome, f"{client} for {answer!r}")

    async def _result_of(self, outcome: asyncio.Future[Any], who: str) -> Any:
        """The background works and time passes until it is there."""
        waited_ms = 0
        while True:
            await idle()
            if self.files.ended is not None:
                raise self.files.ended
            if outcome.done():
                return outcome.result()
            if not self.broker.work(self._random.randrange(2)):
                assert waited_ms < _HANGS_MS, f"nothing comes of it: {who}"
                self._clock.advance(20)
                waited_ms += 20

    # ends

    def _go_down(self) -> None:
        """The process is gone, and perhaps the power."""
        by = self.files.ended
        assert by is not None
        self.ends += self.files.end_at == self.files.calls
        self._loop.run_until_complete(_cancelled())
        self.broker.abandon()
        self.passes += self.broker.passes
        self._loop.close()
        self._cluster.members.clear()
        self._connections.clear()
        self.is_down = True
        if by is PowerCut:
            self._disks += 1
            self.files = self.files.power_cut(f"{self._directory}/disk-{self._disks}", self._random)
        else:
            self.files = self.files.kill()

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and not isinstance(error, (Ended, StorageError, KafkaError)) and self.files.ended is None:
            self.errors.append(error)


async def _cancelled() -> None:
    """Every other task has ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=1)


def _bytes_of(part: Any) -> bytes:
    return bytes(part) if isinstance(part, memoryview) else part.read()
