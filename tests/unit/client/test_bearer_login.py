"""The token of a process: shared by its logins, replaced before it ends, and kept while the authority is away."""

from __future__ import annotations

import threading

import pytest

from kafkalite.client import bearer_login
from kafkalite.client.bearer_login import BearerToken, NoToken
from kafkalite.security.sasl.oauthbearer import OwnToken, RefreshRules

RULES = RefreshRules(min_period_seconds=0, buffer_seconds=0)
LIFE_MS = 1_000_000


class World:
    """A clock, and an authority whose tokens are numbered."""

    def __init__(self) -> None:
        self.now_ms = 5_000_000.0
        self.given = 0
        self.fault: Exception | None = None
        self.token = BearerToken(self.fetch, RULES, lambda: self.now_ms, lambda: 0.0)

    def fetch(self) -> OwnToken:
        if self.fault is not None:
            raise self.fault
        self.given += 1
        return OwnToken(str(self.given), "broker", self.now_ms, self.now_ms + LIFE_MS)

    def get(self) -> str:
        """The token of now, after the thread that gets another one, if there is one."""
        text = self.token.get().text
        if self.token.refreshing is not None:
            self.token.refreshing.join()
        return text


@pytest.fixture
def world() -> World:
    return World()


def test_one_token_serves_until_it_is_due(world: World) -> None:
    assert [world.get(), world.get()] == ["1", "1"]
    world.now_ms += 0.8 * LIFE_MS - 1
    assert world.get() == "1" and world.given == 1
    world.now_ms += 1
    assert [world.get(), world.get()] == ["2", "2"] and world.given == 2


def test_nobody_waits_for_long_for_an_authority_that_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bearer_login, "_PATIENCE_S", 0.0)
    world, may_answer = World(), threading.Event()
    world.get()
    fetch = world.fetch

    def slow() -> OwnToken:
        may_answer.wait(30)
        return fetch()

    world.token._fetch = slow
    world.now_ms += 0.9 * LIFE_MS
    assert [world.token.get().text for _ in range(3)] == ["1", "1", "1"]
    may_answer.set()
    assert [world.get(), world.get()][1] == "2"


def test_without_a_login_it_is_replaced_by_who_looks(world: World) -> None:
    world.token.refresh()
    assert world.token.refreshing is None  # nobody has logged in
    world.get()
    world.now_ms += 0.9 * LIFE_MS
    world.token.refresh()
    assert world.token.refreshing is not None
    world.token.refreshing.join()
    assert world.get() == "2"


def test_the_token_of_before_serves_while_the_authority_is_away(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.get()
    world.now_ms += 0.9 * LIFE_MS
    world.fault = NoToken("it is away")
    assert [world.get(), world.get()] == ["1", "1"]
    assert caplog.text.count("the token of broker is not replaced yet: it is away") == 1  # tried every ten seconds
    world.now_ms += 10_000
    world.get()
    assert caplog.text.count("is not replaced yet") == 2
    world.now_ms += LIFE_MS
    with pytest.raises(NoToken, match="it is away"):
        world.get()
    world.fault = None
    assert world.get() == "2"


def test_a_token_that_is_old_when_it_comes(world: World) -> None:
    world.token = BearerToken(lambda: OwnToken("x", "broker", 0, world.now_ms), RULES, lambda: world.now_ms)
    with pytest.raises(NoToken, match="has expired"):
        world.get()


@pytest.mark.parametrize("fault", [None, NoToken("it is away"), RuntimeError("a defect")])
def test_logins_at_the_same_time_share_a_request(fault: Exception | None) -> None:
    asked, may_answer = threading.Event(), threading.Event()
    requests = []

    def fetch() -> OwnToken:
        requests.append(1)
        asked.set()
        may_answer.wait(30)
        if fault is not None:
            raise fault
        return OwnToken("one", "broker", 0, 1e18)

    token = BearerToken(fetch, RULES, lambda: 1.0)
    found: list[str] = []

    def log_in() -> None:
        try:
            found.append(token.get().text)
        except (NoToken, RuntimeError) as error:
            found.append(type(error).__name__)

    threads = [threading.Thread(target=log_in) for _ in range(5)]
    threads[0].start()
    assert asked.wait(30)
    for thread in threads[1:]:
        thread.start()
    may_answer.set()
    for thread in threads:
        thread.join()
    if fault is None:
        assert found == ["one"] * 5 and len(requests) == 1
    else:
        assert len(found) == 5 and {"NoToken", type(fault).__name__} >= set(found)
