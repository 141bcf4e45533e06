"""The topics and settings that tests need of their broker, from a marker, an ini file or a class.

class OrderTest(KafkaTestMixin, unittest.TestCase):
    kafka_topics = ("orders",)

    def test_it_announces_orders(self):
        place_order(42, self.kafka.bootstrap_servers)
        self.kafka.topic("orders").has(key="42")
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from kafkalite.common.named_tuple import NamedTuple

if TYPE_CHECKING:
    import unittest

    from kafkalite.testing.broker import Broker
    from kafkalite.testing.cluster import Cluster

    _Base = unittest.TestCase  # it precedes one among the bases
else:
    _Base = object

Topics = Mapping[str, int | Mapping[str, Any]] | Iterable[str]
"""Names of topics; or a mapping to their partitions, or to the arguments of `Broker.create_topic`."""


class BrokerNeeds(NamedTuple):
    """`topics` has the arguments of `Broker.create_topic` by name, `settings` those of `Broker`, `faults` are as in
    `Faults.load`."""

    topics: dict[str, dict[str, Any]]
    settings: dict[str, Any]
    faults: tuple[Mapping[str, Any], ...] = ()

    def with_more(
        self,
        topics: Topics = (),
        settings: Mapping[str, Any] | None = None,
        faults: Iterable[Mapping[str, Any]] = (),
    ) -> BrokerNeeds:
        """These needs and others, which take precedence. Raises TypeError."""
        if settings is not None and not isinstance(settings, Mapping):
            raise TypeError(f"settings are a mapping of names to values, not {settings!r}")
        if isinstance(faults, (str, Mapping)):
            raise TypeError(f"faults are a list of mappings, not {faults!r}")
        return BrokerNeeds(
            {**self.topics, **_normal(topics)}, {**self.settings, **(settings or {})}, (*self.faults, *faults)
        )

    def new_broker(self, **more: Any) -> Broker:
        """A broker with these settings, which is not started."""
        from kafkalite.testing.broker import Broker

        return Broker(**{**self.settings, **more})

    def create_topics(self, broker: Broker | Cluster) -> None:
        for name, arguments in self.topics.items():
            broker.create_topic(name, **arguments)


NOTHING = BrokerNeeds({}, {})


def _normal(topics: Topics) -> dict[str, dict[str, Any]]:
    if isinstance(topics, str):
        raise TypeError(f"topics are a list or a mapping of names, not the text {topics!r}")
    if not isinstance(topics, Mapping):
        return {name: {} for name in topics}
    found: dict[str, dict[str, Any]] = {}
    for name, each in topics.items():
        if not isinstance(each, int | Mapping) or isinstance(each, bool):
            raise TypeError(f"topic {name!r} has a number of partitions or a mapping of settings, not {each!r}")
        found[name] = {"partitions": each} if isinstance(each, int) else dict(each)
    return found


def needs_from_lines(topics: Iterable[str], settings: Iterable[str]) -> BrokerNeeds:
    """From lines like `orders` or `orders: 3`, and `num_partitions = 3`. Raises ValueError."""
    wanted: dict[str, int] = {}
    for line in topics:
        name, _, count = (part.strip() for part in line.partition(":"))
        if count and not count.isdigit():
            raise ValueError(f"kafka_topics: {line!r} is not a name, or a name, a colon and a number of partitions")
        wanted[name] = int(count or 1)
    given: dict[str, str] = {}
    for line in settings:
        name, equals, value = (part.strip() for part in line.partition("="))
        if not equals:
            raise ValueError(f"kafka_settings: {line!r} is not name = value")
        given[name.replace(".", "_")] = value
    return NOTHING.with_more(wanted, given)


class KafkaTestMixin(_Base):
    """Gives each test a broker of its own in `kafka`. It precedes TestCase among the bases. `kafka_topics` and
    `kafka_settings` are as in the marker of the pytest plugin."""

    kafka_topics: ClassVar[Topics] = ()
    kafka_settings: ClassVar[Mapping[str, Any]] = {}
    kafka: Broker

    def setUp(self) -> None:
        super().setUp()
        needs = NOTHING.with_more(self.kafka_topics, self.kafka_settings)
        self.kafka = self.enterContext(needs.new_broker())
        needs.create_topics(self.kafka)
