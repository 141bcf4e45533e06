"""Names of copies, and which topics come from the target."""

from __future__ import annotations

import pytest

from kafkalite.client.mirror.naming import GROUPS_EXCLUDED, TOPICS_EXCLUDED, Filter, Naming, is_internal
from kafkalite.common.errors import ConfigError


def test_a_copy_has_the_alias_of_its_source_before_its_name() -> None:
    naming = Naming("west", "east")
    assert naming.copy_of("orders") == "west.orders"
    assert (naming.offset_syncs, naming.checkpoints, naming.heartbeats) == (
        "mm2-offset-syncs.west.internal",
        "west.checkpoints.internal",
        "west.heartbeats",
    )


def test_a_copy_keeps_its_name_but_for_heartbeats_if_that_is_asked_for() -> None:
    naming = Naming("west", "east", keeps_names=True)
    assert naming.copy_of("orders") == "orders"
    assert naming.copy_of("north.heartbeats") == "west.north.heartbeats"


@pytest.mark.parametrize(
    ("topic", "may"),
    [
        ("orders", True),
        ("orders.eu", True),
        ("north.orders", True),
        ("east.orders", False),
        ("north.east.orders", False),
        ("orders.east", True),
        ("heartbeats", False),
        ("north.heartbeats", True),
        ("east.heartbeats", False),
        ("mm2-offset-syncs.north.internal", False),
        ("north.checkpoints.internal", False),
        ("__consumer_offsets", False),
    ],
)
def test_topics_from_the_target_and_those_of_mirrors_are_not_copied(topic: str, may: bool) -> None:
    assert Naming("west", "east").may_be_copied(topic) is may


def test_with_the_same_names_a_topic_may_begin_with_any_word() -> None:
    assert Naming("west", "east", keeps_names=True).may_be_copied("east.orders")
    assert not Naming("west", "east", keeps_names=True).may_be_copied("east.heartbeats")


def test_filters_match_whole_names() -> None:
    topics = Filter("orders.*, stock", TOPICS_EXCLUDED)
    assert "orders-1" in topics and "stock" in topics
    assert "stocks" not in topics and "my-orders" not in topics and "orders.replica" not in topics
    groups = Filter(".*", GROUPS_EXCLUDED)
    assert "app" in groups and "console-consumer-17" not in groups
    with pytest.raises(ConfigError, match="no regular expression"):
        Filter("(")


def test_internal_topics() -> None:
    assert is_internal("__x") and is_internal(".x") and is_internal("mm2-status.a.internal")
    assert not is_internal("a.internal")
