"""The judge itself: what it lets pass, and what it does not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.zk.znode_comparison import Allowed, differences
from tests.support.zk.znode_story import is_at_rest
from tests.support.zk.znode_tree import Tree, Znode, meaning, ranked

OPEN = ("world:anyone:rwcda",)
RULES = (Allowed("/brokers/ids/*", "timestamp", r"\d{13}", "when"), Allowed("/a", "list.*", "x+", "why not"))


def tree(**nodes: Any) -> Tree:
    """`a__b=1` is the node /a/b."""
    return {"/" + name.replace("__", "/"): Znode(data, False, OPEN) for name, data in nodes.items()}


def test_equal_trees_have_no_differences() -> None:
    assert differences(tree(a={"b": [1, {"c": None}]}, b=None), tree(a={"b": [1, {"c": None}]}, b=None)) == []


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"version": 1}, {"version": "1"}),
        ({"version": 1}, {"version": 1.0}),
        ({"version": 1}, {"version": True}),
        ({"version": 1}, {}),
        ({}, {"version": 1}),
        ({"a": {"b": {"c": 1}}}, {"a": {"b": {"c": 2}}}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": [1, 2]}, {"a": [1]}),
        ({"a": {}}, {"a": []}),
        ({"a": None}, {}),
        (None, {}),
        (None, 0),
        ("text", "texts"),
    ],
)
def test_any_other_value_is_a_difference(theirs: Any, ours: Any) -> None:
    assert differences(tree(a=theirs), tree(a=ours), ()) != []


def test_nodes_that_only_one_side_has() -> None:
    assert [line.split(",")[0] for line in differences(tree(a=1, b=2), tree(b=2, c=3))] == [
        "/a: is missing",
        "/c: is too much",
    ]


def test_lifetime_and_access_are_compared() -> None:
    assert differences({"/a": Znode(1, True, OPEN)}, tree(a=1)) == ["/a: is not ephemeral"]
    [line] = differences(tree(a=1), {"/a": Znode(1, False, ("world:anyone:r",))})
    assert "access list" in line


def test_what_may_differ_must_have_its_shape_on_both_sides() -> None:
    def told(timestamp: Any) -> Tree:
        return tree(brokers__ids__0={"timestamp": timestamp, "port": 1})

    assert differences(told("1700000000000"), told("1800000000000"), RULES) == []
    assert len(differences(told("1700000000000"), told("18"), RULES)) == 1
    assert len(differences(told("1700000000000"), told(1800000000000), RULES)) == 1  # a text is no number
    assert len(differences(told("1700000000000"), tree(brokers__ids__0={"port": 1}), RULES)) >= 1
    assert differences(tree(a={"list": ["x", "xx"]}), tree(a={"list": ["xxx", "x"]}), RULES) == []
    assert differences(tree(b={"list": ["x"]}), tree(b={"list": ["xx"]}), RULES) != []


def test_data_is_taken_for_what_it_means() -> None:
    assert [meaning(data) for data in (b"", None, b"7", b'{"a":"1"}', b"text")] == [None, None, 7, {"a": "1"}, "text"]


def test_sequential_nodes_are_named_by_their_rank() -> None:
    names = ["change_0000000007", "change_0000000019", "other_0000000001", "plain"]
    assert ranked(names) == ["change_<0>", "change_<1>", "other_<0>", "plain"]


def test_a_tree_rests_when_every_partition_has_the_leader_that_it_can_have() -> None:
    def stands(leader: int, *live: int, **more: Any) -> bool:
        brokers: dict[str, Any] = {f"brokers__ids__{one}": {} for one in live}
        topic: dict[str, Any] = {"brokers__topics__t": {"partitions": {"0": [1]}}}
        state: dict[str, Any] = {"brokers__topics__t__partitions__0__state": {"leader": leader}}
        return is_at_rest(tree(**brokers, **topic, **state, **more))

    elected: dict[str, Any] = {"controller": {"brokerid": 0}}
    assert stands(1, 0, 1, **elected) and stands(-1, 0, **elected) and stands(1)
    assert not stands(1, 0, **elected) and not stands(-1, 0, 1, **elected) and not stands(1, 0, 1)
    assert not stands(1, 0, 1, controller={"brokerid": 2})
    assert not stands(1, 0, 1, admin__delete_topics__t=None, **elected)
    assert not is_at_rest(tree(brokers__ids__0={}, brokers__topics__t={"partitions": {"0": [0]}}, **elected))
