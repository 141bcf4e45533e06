"""Paths: what stands where, and which is which."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkalite.zk.znodes import znode_paths


def test_paths_are_kafkas():
    assert znode_paths.state("orders", 3) == "/brokers/topics/orders/partitions/3/state"
    assert znode_paths.config(znode_paths.CONFIG_BROKERS, znode_paths.CONFIG_DEFAULT) == "/config/brokers/<default>"
    assert znode_paths.consumer_offset("g", "t", 0) == "/consumers/g/offsets/t/0"
    assert znode_paths.with_parents(["/a/b/c", "/a/d", "/e", "/"]) == ["/a", "/a/b", "/a/b/c", "/a/d", "/e", "/"]
    assert len(znode_paths.PERSISTENT) == 16


@given(st.text("ab./-", min_size=1, max_size=6), st.integers(0, (1 << 31) - 1))
def test_what_was_put_together_is_taken_apart(name, number):
    is_one_name = "/" not in name
    assert znode_paths.state_of(znode_paths.state(name, number)) == ((name, number) if is_one_name else None)
    assert znode_paths.broker_of(znode_paths.broker(number)) == number
    assert znode_paths.registration_of(znode_paths.registration(number)) == number
    assert znode_paths.topic_of(znode_paths.state(name, number)) == (name.partition("/")[0] or None)
    assert (znode_paths.deleted_topic_of(znode_paths.delete_topic(name)) == name) == is_one_name
    assert znode_paths.config_of(znode_paths.config("topics", name)) == ("topics", name)


def test_what_is_none_of_them_is_nothing():
    for path in ("", "/", "/1", "/01", "/x", "/1/2", "/٣", "/4294967296"):
        assert znode_paths.broker_of("/brokers/ids" + path) is None or path == "/1"
        assert znode_paths.registration_of("/kafkalite/registrations" + path) is None or path == "/1"
    for path in ("/t/partitions/-1/state", "/t/partitions/1", "/t/partitions/1/state/x", "/t/x/1/state"):
        assert znode_paths.state_of("/brokers/topics" + path) is None
    for path in ("/config/changes/config_change_0", "/config", "/config/topics", "/config/topics/", "/x/topics/t"):
        assert znode_paths.config_of(path) is None
    assert znode_paths.topic_of("/brokers/topics") is None and znode_paths.topic_of("/brokers/topics/") is None
