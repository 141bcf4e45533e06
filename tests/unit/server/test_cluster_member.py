"""What a broker tells of itself, and when it doubts that it still is one of its cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kafkalite.common.clock import ManualClock
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.metadata.registration_state import RegistrationState
from kafkalite.server.cluster_member import FencingMonitor, endpoints_to_tell
from tests.support.memory_cluster import ClusterMemory, MemoryRegistry

SESSION_TIMEOUT_MS = 6_000


def told(ports: dict[str, int], **settings: str) -> list[str]:
    config = BrokerConfig.load({name.replace("_", "."): value for name, value in settings.items()})
    return [str(endpoint) for endpoint in asyncio.run(endpoints_to_tell(config, ports))]


def test_others_are_told_what_is_advertised_or_where_it_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.getfqdn", lambda: "host.example")
    assert told({"PLAINTEXT": 4711}, listeners="PLAINTEXT://127.0.0.1:0") == ["PLAINTEXT://127.0.0.1:4711"]
    assert told({"PLAINTEXT": 9092}, listeners="PLAINTEXT://:9092") == ["PLAINTEXT://host.example:9092"]
    assert told(
        {"IN": 1, "OUT": 2},
        listeners="IN://[::1]:1,OUT://0.0.0.0:0",
        advertised_listeners="OUT://broker.example:443",
        listener_security_protocol_map="IN:PLAINTEXT,OUT:PLAINTEXT",
    ) == ["IN://[::1]:1", "OUT://broker.example:443"]


class Scene:
    """A broker in doubt, and what the others say when they are asked: one answer after another."""

    def __init__(self, *answers: int | None) -> None:
        self.clock = ManualClock()
        self.registry: MemoryRegistry = ClusterMemory().registry(1)
        self.answers = list(answers)
        self.asked = 0
        self.doubt = FencingMonitor(self.registry, self.clock, SESSION_TIMEOUT_MS, self._ask, self.registry.fence)
        self.doubt.start()
        self.registry.stand(RegistrationState.MEMBER)

    async def _ask(self) -> int | None:
        self.asked += 1
        return self.answers.pop(0)

    async def pass_ms(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)
        for _ in range(5):
            await asyncio.sleep(0)


def play(story: Callable[[], Awaitable[None]]) -> None:
    async def one() -> None:
        await story()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(one())


def test_it_asks_when_it_is_cut_off_for_longer_than_a_session_lasts_and_gives_way_to_one_who_knows() -> None:
    async def story() -> None:
        scene = Scene(None, None, 3)
        scene.registry.stand(RegistrationState.DISCONNECTED)
        await scene.pass_ms(SESSION_TIMEOUT_MS - 1)
        assert scene.asked == 0
        await scene.pass_ms(1)
        assert (scene.asked, scene.registry.registration_state) == (1, RegistrationState.DISCONNECTED)
        await scene.pass_ms(1_000)
        await scene.pass_ms(1_000)
        assert (scene.asked, scene.registry.registration_state) == (3, RegistrationState.FENCED)
        await scene.pass_ms(60_000)
        assert scene.asked == 3
        await scene.doubt.stop()

    play(story)


def test_a_connection_that_comes_back_ends_the_doubt() -> None:
    async def story() -> None:
        scene = Scene(2)
        scene.registry.stand(RegistrationState.DISCONNECTED)
        await scene.pass_ms(SESSION_TIMEOUT_MS - 1)
        scene.registry.stand(RegistrationState.MEMBER)
        await scene.pass_ms(60_000)
        scene.registry.stand(RegistrationState.DISCONNECTED)
        await scene.pass_ms(SESSION_TIMEOUT_MS - 1)
        assert (scene.asked, scene.registry.registration_state) == (0, RegistrationState.DISCONNECTED)
        await scene.doubt.stop()
        await scene.pass_ms(60_000)
        assert scene.asked == 0

    play(story)


def test_an_answer_that_comes_too_late_fences_nobody() -> None:
    async def story() -> None:
        scene = Scene()
        answer: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        scene.doubt._ask_peers = lambda: answer
        scene.registry.stand(RegistrationState.DISCONNECTED)
        await scene.pass_ms(SESSION_TIMEOUT_MS)
        scene.registry.stand(RegistrationState.MEMBER)
        answer.cancelled() or answer.set_result(2)
        await scene.pass_ms(0)
        assert scene.registry.registration_state is RegistrationState.MEMBER
        scene.registry.stand(RegistrationState.DISCONNECTED)  # and it is asked again when it is time
        scene.answers = [2]
        scene.doubt._ask_peers = scene._ask
        await scene.pass_ms(SESSION_TIMEOUT_MS)
        assert scene.registry.registration_state is RegistrationState.FENCED
        await scene.doubt.stop()

    play(story)
