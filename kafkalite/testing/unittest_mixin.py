"""A broker for tests of the standard library's unittest.

class OrderTest(KafkaTestMixin, unittest.TestCase):
    kafka_topics = ("orders",)

    def test_it_announces_orders(self):
        place_order(42, self.kafka.bootstrap_servers)
        self.kafka.topic("orders").has(key="42")
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from kafkalite.testing.broker_needs import NOTHING, Topics

if TYPE_CHECKING:
    import unittest

    from kafkalite.testing.broker import Broker

    _Base = unittest.TestCase  # it stands before one
else:
    _Base = object


class KafkaTestMixin(_Base):
    """Each test has a broker of its own in `kafka`. It stands before TestCase among the bases. `kafka_topics` and
    `kafka_settings` are those of the marker of the pytest plugin."""

    kafka_topics: ClassVar[Topics] = ()
    kafka_settings: ClassVar[Mapping[str, Any]] = {}
    kafka: Broker

    def setUp(self) -> None:
        super().setUp()
        needs = NOTHING.with_more(self.kafka_topics, self.kafka_settings)
        self.kafka = self.enterContext(needs.new_broker())
        needs.create_topics(self.kafka)
