"""Scenes that are closed at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.cleaner.cleaner_scene import Scene


@pytest.fixture
def new_scene(tmp_path: Path) -> Iterator[Callable[..., Scene]]:
    scenes: list[Scene] = []

    def make(**settings: object) -> Scene:
        scenes.append(Scene(tmp_path / f"data-{len(scenes)}", **settings))
        return scenes[-1]

    yield make
    for scene in scenes:
        scene.close()


@pytest.fixture
def scene(new_scene: Callable[..., Scene]) -> Scene:
    return new_scene()
