"""The benchmark of the authorizer asks one with as many lists as it says."""

from __future__ import annotations

import pytest

from bench import access_lists


def test_it_has_as_many_lists_as_it_says() -> None:
    made = access_lists.authorizer(500)
    assert len(list(made.acls.resources())) == 500


def test_it_tells_the_cost(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(access_lists, "_KEPT", 10)
    monkeypatch.setattr(access_lists, "_LOOKED_UP", 10)
    assert access_lists.main(["--lists", "200"]) == 0
    assert "200 lists:" in capsys.readouterr().out
