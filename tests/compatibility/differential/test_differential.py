"""The same stories, told to kafkalite and to Apache Kafka.

The short form compares kafkalite with what Kafka 3.9.1, or 4.3.0, answered when it was last recorded. The long form
runs Kafka beside it, compares the two as they are, and holds the record to what Kafka says now; `--record-golden`
writes it anew:

    pytest -m "long or not long" tests/compatibility/differential [--record-golden]
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
from collections.abc import Callable
from functools import cache
from itertools import zip_longest
from typing import Any

import pytest

from tests.compatibility.differential import brokers, golden, page
from tests.compatibility.differential.compare import compare

TELLINGS = [
    pytest.param(family, story, version, id=f"{family}-{name}-{version}")
    for family in brokers.FAMILIES
    for name, story in brokers.stories(family).items()
    for version in story.versions
]
recorded = cache(golden.load)


@pytest.mark.parametrize(("family", "story", "version"), TELLINGS)
def test_as_kafka_answered(
    family: str, story: Any, version: int, kafkalite: tuple[str, int], count: Callable[..., None]
) -> None:
    steps = recorded(family).get((story.name, version))
    if steps is None:
        pytest.fail("not recorded: run the long form with --record-golden")
    told = brokers.tell(kafkalite, family, story, version)
    verdict = compare(told.steps, steps)
    count(told.requests, verdict)
    assert not verdict.faults, "\n".join(verdict.faults)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("family", brokers.FAMILIES)
def test_as_kafka_answers(
    family: str, kafkalite_again: tuple[str, int], kafka: Callable[[str], tuple[str, int]], record: bool
) -> None:
    tellings, faults = {}, []
    for name, story in brokers.stories(family).items():
        for version in story.versions:
            try:
                told = brokers.tell(kafka(story.reference(version)), family, story, version)
            except Exception as error:
                faults.append(f"{name} {version} at Kafka: {error!r}")
                continue
            theirs = [(step.label, golden.plain(step.answer)) for step in told.steps]
            tellings[name, version] = theirs
            faults += [
                f"{name} {version}: kafkalite's codec writes other bytes of: {label}" for label in told.rewritten
            ]
            verdict = compare(brokers.tell(kafkalite_again, family, story, version).steps, theirs)
            faults += [f"{name} {version}: {fault}" for fault in verdict.faults]
    if record:
        golden.save(family, tellings)
    stale = [
        f"{name} {version}: {_first_difference(tellings.get((name, version), []), told)}"
        for (name, version), told in golden.load(family).items()
        if tellings.get((name, version)) != told
    ]
    assert not stale, f"Kafka answers otherwise than recorded: {stale[:20]}"
    assert not faults, "\n".join(faults)


@pytest.fixture(scope="session")
def kafkalites_again(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Other brokers: the stories are told once to each."""
    with contextlib.ExitStack() as stack:

        @cache
        def running(kind: brokers.Kind) -> tuple[str, int]:
            family = next(each for each in brokers.FAMILIES if brokers.kind_of(each) is kind)
            return stack.enter_context(brokers.kafkalite_broker(tmp_path_factory.mktemp("kafkalite-again"), family))

        yield running


@pytest.fixture
def kafkalite_again(family: str, kafkalites_again: Callable[[brokers.Kind], tuple[str, int]]) -> tuple[str, int]:
    return kafkalites_again(brokers.kind_of(family))


@pytest.fixture(scope="session")
def record(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--record-golden", default=False))


def _first_difference(theirs: list[Any], recorded: list[Any]) -> str:
    pairs = ((one, other) for one, other in zip_longest(theirs, recorded) if one != other)
    return "{} instead of {}".format(*(f"{each!r:.600}" for each in next(pairs)))


def test_the_page_lists_every_explanation(record: bool) -> None:
    text = page.text()
    if record:
        page.PATH.write_text(text)
    assert page.PATH.read_text() == text, "docs/differences.md is old: run with --record-golden"


@pytest.mark.parametrize("family", brokers.FAMILIES)
def test_every_explanation_is_used(family: str) -> None:
    module = importlib.import_module(f"tests.compatibility.differential.cases_{family}")
    source = inspect.getsource(module)
    names = [name for name, value in vars(module).items() if isinstance(value, brokers.Explained)]
    assert [name for name in names if source.count(name) < 2] == []
