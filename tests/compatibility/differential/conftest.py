"""The brokers of a run, `--record-golden`, and the count at its end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import cache

import pytest

from bench.reference import ReferenceUnavailable
from tests.compatibility.differential.brokers import Kind, apache_kafka, kafkalite_broker, kind_of
from tests.compatibility.differential.compare import Verdict

COUNTS = pytest.StashKey[dict[str, int]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-golden", action="store_true", help="write anew what Apache Kafka answers")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[COUNTS] = {}


@pytest.fixture(scope="session")
def kafkalites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], tuple[str, int]]]:
    """A broker for each family of stories: what one family leaves is not seen by another, in whatever order."""
    with contextlib.ExitStack() as stack:
        yield cache(lambda family: stack.enter_context(kafkalite_broker(tmp_path_factory.mktemp(family), family)))


@pytest.fixture
def kafkalite(family: str, kafkalites: Callable[[str], tuple[str, int]]) -> tuple[str, int]:
    return kafkalites(family)


@pytest.fixture(scope="session")
def kafkas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, Kind], tuple[str, int]]]:
    """By version and kind: Apache Kafka."""
    with contextlib.ExitStack() as stack:

        @cache
        def running(version: str, kind: Kind) -> tuple[str, int]:
            home = tmp_path_factory.mktemp(f"kafka-{version}")
            return stack.enter_context(apache_kafka(version, home, kind))

        yield running


@pytest.fixture
def kafka(family: str, kafkas: Callable[[str, Kind], tuple[str, int]]) -> Callable[[str], tuple[str, int]]:
    """The Apache Kafka of a version for this family."""

    def running(version: str) -> tuple[str, int]:
        try:
            return kafkas(version, kind_of(family))
        except ReferenceUnavailable as reason:
            pytest.skip(str(reason))

    return running


@pytest.fixture
def counts(request: pytest.FixtureRequest) -> dict[str, int]:
    """The counts of this run."""
    return request.config.stash[COUNTS]


def count(counts: dict[str, int], requests: int, verdict: Verdict) -> None:
    for name, number in (
        ("stories", 1),
        ("requests", requests),
        ("equal", verdict.equal),
        ("explained", verdict.explained),
        ("wrong", len(verdict.faults)),
    ):
        counts[name] = counts.get(name, 0) + number


@pytest.fixture(name="count")
def count_fixture(counts: dict[str, int]) -> object:
    return lambda requests, verdict: count(counts, requests, verdict)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    counts = config.stash.get(COUNTS, {})
    if counts:
        terminalreporter.write_line(
            "kafkalite beside Apache Kafka: {requests} requests in {stories} tellings; of their answers {equal} "
            "are equal, {explained} differ as explained in docs/differences.md, {wrong} are wrong".format(**counts)
        )
