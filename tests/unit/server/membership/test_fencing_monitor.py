"""Asking the others whether they still count us in: over sockets, with peers that lie, dawdle and hang up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from kafkalite.common.clock import SystemClock
from kafkalite.config.listeners import ListenerConfig
from kafkalite.metadata.cluster_metadata import BrokerRecord, RegistrationState
from kafkalite.protocol.codec.codec import decode
from kafkalite.protocol.header import decode_request_header, response_frame
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkalite.server.membership.fencing_monitor import FencingMonitor, find_witness
from tests.support.in_memory_cluster import InMemoryCluster, InMemoryMetadata
from tests.support.loop import idle
from tests.support.manual_clock import ManualClock
from tests.support.wait import DEADLINE_S

US, PEER, OTHER = 1, 2, 3
EPOCH = 100  # of our registration
NEVER = -1
CLUSTER = "a-cluster"
Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def peer(answer: Answer, broker_id: int = PEER, *listeners: str) -> AsyncIterator[BrokerRecord]:
    """A broker that does what `answer` does with the request, and then waits until the other end hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            size = int.from_bytes(await reader.readexactly(4), "big")
            await answer(await reader.readexactly(size), writer)
            await reader.read()
        except (OSError, EOFError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        names = listeners or ("PLAINTEXT",)
        yield BrokerRecord(broker_id, tuple(ListenerConfig(name, "127.0.0.1", port, "PLAINTEXT") for name in names))
    finally:
        server.close()


def says(missing_at: int, cluster_id: str = CLUSTER) -> Answer:
    async def answer(request: bytes, writer: asyncio.StreamWriter) -> None:
        header, body_at = decode_request_header(memoryview(request))
        question, _ = decode(MetadataRequest, header.api_version, memoryview(request), body_at)
        assert question.is_missing == US
        response = MetadataResponse(brokers=[], cluster_id=cluster_id, topics=[], missing_at=missing_at)
        for part in response_frame(response, header.api_version, header.correlation_id):
            assert isinstance(part, bytes)
            writer.write(part)

    return answer


async def says_nothing(request: bytes, writer: asyncio.StreamWriter) -> None:
    pass


async def hangs_up(request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def threatens(request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write((1 << 30).to_bytes(4, "big"))


async def babbles(request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\0\0\0\x09nonsense!")


def ask(*answers: Answer) -> int | None:
    """The monitor's conclusion from peers with these answers, numbered from PEER on."""

    async def story() -> int | None:
        async with asyncio.timeout(DEADLINE_S):
            return await with_peers(list(answers), [])

    async def with_peers(left: list[Answer], brokers: list[BrokerRecord]) -> int | None:
        if left:
            async with peer(left[0], PEER + len(brokers)) as one:
                return await with_peers(left[1:], [*brokers, one])
        return await find_witness(
            BrokerRecord(US, (), None, EPOCH), CLUSTER, brokers, SystemClock(asyncio.get_running_loop()), 10_000
        )

    return asyncio.run(story())


def test_a_peer_that_misses_us_is_named() -> None:
    assert ask(says(EPOCH)) == PEER


def test_a_peer_that_counts_us_in_is_no_reason_to_stop() -> None:
    assert ask(says(NEVER)) is None


def test_a_peer_that_has_heard_nothing_since_before_we_came_knows_nothing_about_us() -> None:
    assert ask(says(EPOCH - 1)) is None


def test_one_who_knows_better_is_enough() -> None:
    assert ask(says(NEVER), says(EPOCH + 7)) == OTHER


def test_a_peer_of_another_cluster_knows_nothing_about_us() -> None:
    assert ask(says(EPOCH, cluster_id="another")) is None


def test_peers_that_hang_up_threaten_or_babble_are_passed_over() -> None:
    assert ask(hangs_up, threatens, babbles) is None
    assert ask(hangs_up, says(EPOCH), threatens) == OTHER


@pytest.mark.parametrize(("listener", "asked"), [(None, 2), ("INSIDE", 1), ("ELSEWHERE", 2)])
def test_it_asks_where_brokers_ask_each_other_or_else_everywhere(listener: str | None, asked: int) -> None:
    async def story() -> None:
        questions: list[bytes] = []

        async def answer(request: bytes, writer: asyncio.StreamWriter) -> None:
            questions.append(request)
            writer.close()

        async with peer(answer, PEER, "OUTSIDE", "INSIDE") as one:
            us, clock = BrokerRecord(US, (), None, EPOCH), SystemClock(asyncio.get_running_loop())
            chosen = None if listener is None else ListenerConfig(listener, "h", 1)
            assert await find_witness(us, CLUSTER, [one], clock, 10_000, listener=chosen) is None
        assert len(questions) == asked

    asyncio.run(story())


def test_nobody_to_ask_is_no_answer() -> None:
    assert ask() is None


def test_a_peer_that_is_silent_is_waited_for_no_longer_than_said() -> None:
    async def story() -> None:
        clock = ManualClock()
        async with peer(says_nothing) as silent:
            question = asyncio.ensure_future(
                find_witness(BrokerRecord(US, (), None, EPOCH), CLUSTER, [silent], clock, 2000)
            )
            await asyncio.sleep(0)
            clock.advance(1999)
            await asyncio.sleep(0)
            assert not question.done()
            clock.advance(1)
            async with asyncio.timeout(DEADLINE_S):
                assert await question is None

    asyncio.run(story())


SESSION_TIMEOUT_MS = 6_000


class Scene:
    """A broker with a monitor, and the witnesses that it finds, one after another."""

    def __init__(self, *answers: int | None) -> None:
        self.clock = ManualClock()
        self.metadata: InMemoryMetadata = InMemoryCluster().metadata(1)
        self.answers = list(answers)
        self.asked = 0
        self.monitor = FencingMonitor(self.metadata, self.clock, SESSION_TIMEOUT_MS, self._ask, self.metadata.fence)
        self.monitor.start()
        self.metadata.set_registration_state(RegistrationState.MEMBER)

    async def _ask(self) -> int | None:
        self.asked += 1
        return self.answers.pop(0)

    async def pass_ms(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)
        await idle()


def play(story: Callable[[], Awaitable[None]]) -> None:
    async def one() -> None:
        await story()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(one())


def test_it_asks_when_it_is_cut_off_for_longer_than_a_session_lasts_and_gives_way_to_a_witness() -> None:
    async def story() -> None:
        scene = Scene(None, None, 3)
        scene.metadata.set_registration_state(RegistrationState.DISCONNECTED)
        await scene.pass_ms(SESSION_TIMEOUT_MS - 1)
        assert scene.asked == 0
        await scene.pass_ms(1)
        assert (scene.asked, scene.metadata.registration_state) == (1, RegistrationState.DISCONNECTED)
        await scene.pass_ms(1_000)
        await scene.pass_ms(1_000)
        assert (scene.asked, scene.metadata.registration_state) == (3, RegistrationState.FENCED)
        await scene.pass_ms(60_000)
        assert scene.asked == 3
        await scene.monitor.stop()

    play(story)


def test_a_connection_that_comes_back_ends_the_questions() -> None:
    async def story() -> None:
        scene = Scene(2)
        scene.metadata.set_registration_state(RegistrationState.DISCONNECTED)
        await scene.pass_ms(SESSION_TIMEOUT_MS - 1)
        scene.metadata.set_registration_state(RegistrationState.MEMBER)
        await scene.pass_ms(60_000)
        scene.metadata.set_registration_state(RegistrationState.DISCONNECTED)
        await scene.pass_ms(SESSION_TIMEOUT_MS - 1)
        assert (scene.asked, scene.metadata.registration_state) == (0, RegistrationState.DISCONNECTED)
        await scene.monitor.stop()
        await scene.pass_ms(60_000)
        assert scene.asked == 0

    play(story)


def test_an_answer_that_comes_too_late_fences_nobody() -> None:
    async def story() -> None:
        scene = Scene()
        answer: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        scene.monitor._find_witness = lambda: answer
        scene.metadata.set_registration_state(RegistrationState.DISCONNECTED)
        await scene.pass_ms(SESSION_TIMEOUT_MS)
        scene.metadata.set_registration_state(RegistrationState.MEMBER)
        answer.cancelled() or answer.set_result(2)
        await scene.pass_ms(0)
        assert scene.metadata.registration_state is RegistrationState.MEMBER
        scene.metadata.set_registration_state(RegistrationState.DISCONNECTED)  # and it is asked again when it is time
        scene.answers = [2]
        scene.monitor._find_witness = scene._ask
        await scene.pass_ms(SESSION_TIMEOUT_MS)
        assert scene.metadata.registration_state is RegistrationState.FENCED
        await scene.monitor.stop()

    play(story)
