"""Keys of an authority: read again when they are old or one is missing, and kept while the source is away."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.security.sasl.jwt import TokenRefused, TokenRules
from kafkalite.server.jwks import RefreshingKeys
from tests.support.manual_clock import ManualClock
from tests.support.tokens import TokenAuthority
from tests.support.wait import DEADLINE_S


class World:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.authority = TokenAuthority()
        url = self.authority.write(path)
        self.keys = RefreshingKeys(url, TokenRules(), 3_600_000, self.clock.wall_ms, self.clock.monotonic_ms)

    def token(self, kid: str) -> str:
        now_s = self.clock.wall_ms() // 1000
        return self.authority.sign(kid, sub="alice", iat=now_s, exp=now_s + 60)

    def passes(self, kid: str) -> bool:
        try:
            return self.keys.verify(self.token(kid)).name == "alice"
        except TokenRefused:
            return False
        finally:
            if self.keys.reading is not None:
                self.keys.reading.join(DEADLINE_S)


def test_a_new_key_is_looked_for(tmp_path: Path) -> None:
    world = World(tmp_path / "keys.json")
    assert world.passes("first")
    world.authority.add_rsa("second")
    world.authority.write(world.path)
    assert not world.passes("second")
    world.clock.advance(10_000)
    world.passes("second")  # perhaps already: another thread reads them
    assert world.passes("second")


def test_old_keys_are_read_again_and_kept_while_there_are_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path / "keys.json")
    world.path.write_text("gone")
    world.clock.advance(3_600_000)
    assert world.passes("first") and "the keys of before stay" in caplog.text
    del world.authority.keys["first"]
    world.authority.add_rsa("first")
    world.authority.write(world.path)
    world.clock.advance(10_000)
    world.passes("first")
    assert world.passes("first")


def test_a_start_needs_keys(tmp_path: Path) -> None:
    clock = ManualClock()
    (tmp_path / "empty").write_text("{}")
    for url, why in (
        ((tmp_path / "none").as_uri(), "No such file"),
        ((tmp_path / "empty").as_uri(), "is no JWKS"),
        ("ftp://here/keys", "must be an address that begins with https: or file:"),
    ):
        with pytest.raises(ConfigError, match=why):
            RefreshingKeys(url, TokenRules(), 1_000, clock.wall_ms, clock.monotonic_ms)
