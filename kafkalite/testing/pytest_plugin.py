"""The fixtures `kafka`, `kafka_module`, `kafka_session` and `kafka_cluster`, and the marker `kafka`, for pytest.

    def test_it_announces_orders(kafka):
        place_order(42, kafka.bootstrap_servers)
        kafka.topic("orders").has(key="42")

pytest loads this module in every run of an environment that has pytest-kafkalite, so it imports nothing of the package
before a test requests a broker. The entry point is in that distribution because pytest scans all files of the
distribution that has it, and rewrites the assertions of their modules.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafkalite.testing.broker import Broker
    from kafkalite.testing.broker_needs import BrokerNeeds
    from kafkalite.testing.cluster import Cluster

_MARKER = (
    "kafka(topics=None, settings=None, faults=None): topics of this test's broker (names, or a mapping to partitions "
    "or to the arguments of create_topic), settings, named like Kafka's with underscores, and faults as in a fault file"
)
_REPORTER = "kafkalite-reporter"
_IN_USE: pytest.StashKey[dict[str, Broker | Cluster]] = pytest.StashKey()
"""The brokers of a test, a module or the session, by the names of their fixtures."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("kafka_topics", "topics of every kafka fixture: a line `name` or `name: partitions` each", "linelist")
    parser.addini("kafka_settings", "settings of every kafka fixture: a line `name = value` each", "linelist")
    parser.addini("kafka_cluster_brokers", "the number of brokers of kafka_cluster", default="3")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker of this test alone."""
    yield from _broker(request)


@pytest.fixture(scope="module")
def kafka_module(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker that the tests of a module share."""
    yield from _broker(request)


@pytest.fixture(scope="session")
def kafka_session(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker that all tests share; with pytest-xdist, those of a worker."""
    yield from _broker(request)


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Several brokers that are a cluster of this test alone."""
    from kafkalite.testing.cluster import Cluster

    needs = _needs(request)
    count = str(request.config.getini("kafka_cluster_brokers"))
    if not count.isdigit():
        raise pytest.UsageError(f"kafka_cluster_brokers is a number, not {count!r}")
    if needs.faults:
        raise pytest.UsageError("faults are of one broker: use those of a broker of the cluster")
    with Cluster(int(count), **needs.settings) as cluster:
        needs.create_topics(cluster)
        with _reported(request, cluster):
            yield cluster


@contextmanager
def _reported(request: pytest.FixtureRequest, broker: Broker | Cluster) -> Iterator[None]:
    """Report its state if a test that uses it fails in this block."""
    manager = request.config.pluginmanager
    if not manager.has_plugin(_REPORTER):
        manager.register(_Reporter(), _REPORTER)
    in_use = request.node.stash.setdefault(_IN_USE, {})
    in_use[str(request.fixturename)] = broker
    try:
        yield
    finally:
        del in_use[str(request.fixturename)]


def _broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    needs = _needs(request)
    with needs.new_broker() as broker:
        needs.create_topics(broker)
        broker.requests.start()
        try:
            broker.faults.load(needs.faults)
        except ValueError as error:
            raise pytest.UsageError(str(error)) from None
        with _reported(request, broker):
            yield broker
        try:
            broker.faults.check()
        except AssertionError as error:
            error.add_note(_report(broker))
            raise


def _needs(request: pytest.FixtureRequest) -> BrokerNeeds:
    from kafkalite.testing.broker_needs import needs_from_lines

    try:
        needs = needs_from_lines(request.config.getini("kafka_topics"), request.config.getini("kafka_settings"))
        for marker in reversed(list(request.node.iter_markers("kafka"))):  # the closest one comes last, and wins
            if marker.args:
                raise TypeError("the marker kafka takes keyword arguments only")
            if unknown := marker.kwargs.keys() - {"topics", "settings", "faults"}:
                names = ", ".join(sorted(unknown))
                raise TypeError(f"the marker kafka takes topics, settings and faults, not {names}")
            needs = needs.with_more(**marker.kwargs)
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(str(error)) from None
    return needs


class _Reporter:
    """Adds the state of brokers to the report of a test that has failed with them."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "call" and report.failed:
            for node in reversed(item.listchain()):
                for name, broker in node.stash.get(_IN_USE, {}).items():
                    if node is item or name in getattr(item, "fixturenames", ()):
                        report.sections.append((f"{name}: its state and requests", _report(broker)))
        return report


def _report(broker: Broker | Cluster) -> str:
    from kafkalite.testing.broker_report import broker_report, cluster_report
    from kafkalite.testing.cluster import Cluster

    try:
        return cluster_report(broker) if isinstance(broker, Cluster) else broker_report(broker)
    except Exception as error:  # a report must not hide the failure that it is about
        return f"it cannot be shown: {error!r}"
