"""Kafka's nodes: what Kafka 2.7 to 3.9 write is read, what is written is read again, and nonsense is refused."""

from __future__ import annotations

import json
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.config.listeners import ListenerConfig
from kafkalite.zk.znodes import json_object, znode_data
from kafkalite.zk.znodes.znode_data import BrokerNode, ProducerIdBlockNode, RegistrationNode, StateNode, TopicNode
from tests.support.zk.tool_requests import partitions_json, reassignment_json

INT32 = st.integers(0, (1 << 31) - 1)
INT64 = st.integers(0, (1 << 63) - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
REPLICAS = st.lists(INT32, max_size=4).map(tuple)
ASSIGNMENTS = st.dictionaries(INT32, REPLICAS, max_size=4)
IDS = st.uuids().filter(lambda each: each.int != 0)
PROTOCOLS = st.sampled_from(["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
HOSTS = st.sampled_from(["localhost", "10.0.0.1", "::1", "a-b.example"])
LISTENERS = st.builds(ListenerConfig, st.text("ABC_", min_size=1, max_size=5), HOSTS, st.integers(0, 65_535), PROTOCOLS)
BROKERS = st.builds(
    BrokerNode,
    st.lists(LISTENERS, max_size=3, unique_by=lambda each: each.name).map(tuple),
    st.none() | TEXTS,
    INT64,
)
TOPICS = st.builds(TopicNode, ASSIGNMENTS, st.none() | IDS, ASSIGNMENTS, ASSIGNMENTS)
STATES = st.builds(StateNode, st.integers(-2, 9), INT32, REPLICAS, INT32, st.sampled_from([0, 1]), REPLICAS)
BLOCKS = st.builds(ProducerIdBlockNode, INT32, st.builds(lambda at, n: range(at, at + n), INT32, st.integers(1, 1000)))
PARTITIONS = st.tuples(TEXTS, INT32)

UUID = uuid.UUID("76a20d1c-dbfb-4e39-9b3f-9e3a0d0c1b2a")
TOPIC_ID = "dqINHNv7TjmbP546DQwbKg"


def test_what_is_written_has_kafkas_keys_and_types():
    plain, secure = ListenerConfig("INSIDE", "::1", 9092), ListenerConfig("OUTSIDE", "h", 9093, "SSL")
    written = {
        znode_data.broker_json(BrokerNode((secure, plain), "r", 5)): {
            "version": 5, "host": "::1", "port": 9092, "jmx_port": -1, "timestamp": "5", "rack": "r", "features": {},
            "endpoints": ["OUTSIDE://h:9093", "INSIDE://[::1]:9092"],
            "listener_security_protocol_map": {"OUTSIDE": "SSL", "INSIDE": "PLAINTEXT"},
        },
        znode_data.broker_json(BrokerNode((secure,), None, 5)): {
            "version": 5, "host": None, "port": -1, "jmx_port": -1, "timestamp": "5", "features": {},
            "endpoints": ["OUTSIDE://h:9093"], "listener_security_protocol_map": {"OUTSIDE": "SSL"},
        },
        znode_data.topic_json(TopicNode({0: (1, 2)}, UUID, {0: (2,)})): {
            "version": 3, "topic_id": TOPIC_ID, "partitions": {"0": [1, 2]}, "adding_replicas": {"0": [2]},
            "removing_replicas": {},
        },
        znode_data.topic_json(TopicNode({})): {
            "version": 3, "partitions": {}, "adding_replicas": {}, "removing_replicas": {},
        },
        znode_data.state_json(StateNode(1, 2, (1,), 3)): {
            "controller_epoch": 3, "leader": 1, "version": 1, "leader_epoch": 2, "isr": [1],
        },
        znode_data.state_json(StateNode(-1, 2, (), 3, 1))[-2:]: None,
        znode_data.config_json({"a": "b"}): {"version": 1, "config": {"a": "b"}},
        znode_data.config_change_json("users/b%20b"): {"version": 2, "entity_path": "users/b%20b"},
        znode_data.controller_json(7, 99): {
            "version": 2, "brokerid": 7, "timestamp": "99", "kraftControllerEpoch": -1,
        },
        znode_data.controller_epoch_text(12): 12,
        znode_data.cluster_id_json("x"): {"version": "1", "id": "x"},
        znode_data.producer_id_block_json(ProducerIdBlockNode(1, range(2000, 3000))): {
            "version": 1, "broker": 1, "block_start": "2000", "block_end": "2999",
        },
        znode_data.feature_json({"f": 2}): {"version": 2, "status": 1, "features": {"f": {"max_version_level": 2}}},
    }  # fmt: skip
    for data, meaning in written.items():
        if meaning is not None:
            assert json.loads(data) == meaning
            assert b", " not in data and b": " not in data
    assert json.loads(znode_data.state_json(StateNode(1, 0, (), 0, 1)))["leader_recovery_state"] == 1


def test_the_node_of_a_registration():
    for value in (RegistrationNode(), RegistrationNode(True, False), RegistrationNode(False, True)):
        assert znode_data.parse_registration(znode_data.registration_json(value)) == value
    assert znode_data.registration_json(RegistrationNode(intact=True)) == (
        b'{"version":1,"stopping":false,"intact":true}'
    )
    for nonsense in (b"", b"[]", b'{"stopping":0,"intact":true}', b'{"stopping":false}'):
        with pytest.raises(ValueError):
            znode_data.parse_registration(nonsense)


@given(BROKERS, TOPICS, STATES, st.dictionaries(TEXTS, TEXTS))
def test_what_is_written_is_read_again(broker, topic, state, config):
    assert znode_data.parse_broker(znode_data.broker_json(broker)) == broker
    assert znode_data.parse_topic(znode_data.topic_json(topic)) == topic
    assert znode_data.parse_state(znode_data.state_json(state)) == state
    assert znode_data.parse_config(znode_data.config_json(config)) == config


@given(TEXTS, INT32, BLOCKS, st.lists(PARTITIONS), st.dictionaries(PARTITIONS, REPLICAS), INT64)
def test_so_are_the_small_ones(text, number, block, partitions, reassignment, long):
    assert znode_data.parse_cluster_id(znode_data.cluster_id_json(text)) == text
    assert znode_data.parse_controller(znode_data.controller_json(number, long)) == number
    assert znode_data.parse_controller_epoch(znode_data.controller_epoch_text(number)) == number
    assert znode_data.parse_producer_id_block(znode_data.producer_id_block_json(block)) == block
    assert znode_data.parse_partitions(partitions_json(partitions)) == partitions
    assert znode_data.parse_reassignment(reassignment_json(reassignment)) == reassignment
    features = {text: number % 32_767 + 1}
    assert znode_data.parse_feature(znode_data.feature_json(features)) == (True, features)


def test_what_older_ones_have_written_is_read():
    listener = ListenerConfig("PLAINTEXT", "h", 9092)
    v1 = b'{"version":1,"host":"h","port":9092,"jmx_port":-1,"timestamp":"1"}'
    assert znode_data.parse_broker(v1) == BrokerNode((listener,), None, 1)
    v2 = b'{"version":2,"host":"h","port":9092,"jmx_port":-1,"timestamp":"1","endpoints":["PLAINTEXT://h:9092"]}'
    assert znode_data.parse_broker(v2) == BrokerNode((listener,), None, 1)
    v5 = (
        b'{"features":{"f":{"min_version":1,"max_version":3}},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
        b'"endpoints":["PLAINTEXT://h:9092"],"jmx_port":-1,"port":9092,"host":"h","version":5,"timestamp":"1","new":[]}'
    )
    assert znode_data.parse_broker(v5) == BrokerNode((listener,), None, 1)
    assert znode_data.parse_topic(b'{"version":1,"partitions":{"0":[1],"1":[2,1]}}') == TopicNode({0: (1,), 1: (2, 1)})
    v2 = b'{"version":2,"partitions":{"0":[1]},"adding_replicas":{},"removing_replicas":{}}'
    assert znode_data.parse_topic(v2) == TopicNode({0: (1,)})
    assert znode_data.parse_controller(b'{"version":1,"brokerid":3,"timestamp":"1"}') == 3
    v1 = b'{"version":1,"status":0,"features":{"f":{"min_version_level":1,"max_version_level":2}}}'
    assert znode_data.parse_feature(v1) == (False, {"f": 2})
    assert znode_data.parse_config(b"") == znode_data.parse_config(b'{"version":1}') == {}
    assert znode_data.parse_producer_id_block(b"") is None


PARSERS = {name: getattr(znode_data, name) for name in dir(znode_data) if name.startswith("parse_")}
PARSERS = {name: parse for name, parse in PARSERS.items() if parse.__module__ == znode_data.__name__}
NONSENSE = [
    b"null", b"[]", b'"x"', b"{", b"\xff", b"x" * 1000, b"[" * 100_000, b'{"a":' * 100_000, b"NaN", b"1" * 10_000,
    b'{"version":true}', b'{"version":1e3}', b'{"version":' + b"9" * 30 + b"}", b'{"version":"1"}', b"-", b"\0", b" ",
]  # fmt: skip
GOOD = {
    "parse_broker": znode_data.broker_json(BrokerNode((ListenerConfig("A", "h", 1),), "r")),
    "parse_registration": znode_data.registration_json(RegistrationNode(intact=True)),
    "parse_topic": znode_data.topic_json(TopicNode({0: (1,)}, UUID)),
    "parse_state": znode_data.state_json(StateNode(1, 2, (1,), 3, 1)),
    "parse_config": znode_data.config_json({"a": "b"}),
    "parse_controller": znode_data.controller_json(1, 2),
    "parse_cluster_id": znode_data.cluster_id_json("x"),
    "parse_producer_id_block": znode_data.producer_id_block_json(ProducerIdBlockNode(1, range(5))),
    "parse_partitions": partitions_json([("t", 1)]),
    "parse_reassignment": reassignment_json({("t", 1): (1,)}),
    "parse_feature": znode_data.feature_json({"f": 1}),
    "parse_controller_epoch": b"1",
}
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["\ud800", "-1", "٣", 1 << 70]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


@pytest.mark.parametrize("name", PARSERS)
def test_nonsense_is_refused(name):
    for data in NONSENSE:
        if name == "parse_config" and data.startswith(b'{"version"'):
            continue  # none, as in Kafka
        with pytest.raises(ValueError) as refused:
            PARSERS[name](data)
        assert type(refused.value) is not RecursionError and len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("parse_feature", b'{"version":2,"status":1,"features":{"\\n":null}}'),
        ("parse_config", b'{"version":1,"config":{"\\n":1}}'),
    ],
)
def test_a_name_that_others_chose_breaks_no_line_of_the_log(name, data):
    with pytest.raises(ValueError, match=r"'\\n' is not") as refused:
        PARSERS[name](data)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", PARSERS)
def test_whatever_is_wrong_in_it_a_node_is_read_or_refused(name):
    @settings(max_examples=30)
    @given(st.data())
    def any_change(data):
        value = json.loads(GOOD[name])
        node = value
        while isinstance(node, (dict, list)) and node:
            keys = list(node) if isinstance(node, dict) else range(len(node))
            key = data.draw(st.sampled_from(list(keys)))
            if not isinstance(node[key], (dict, list)) or data.draw(st.booleans()):
                node[key] = data.draw(VALUES)
                break
            node = node[key]
        try:
            PARSERS[name](json.dumps(value).encode())
        except ValueError as refused:
            assert "\n" not in str(refused) or isinstance(refused, json.JSONDecodeError)

    any_change()


def test_every_parser_is_tried():
    assert GOOD.keys() == PARSERS.keys()
    for name, data in GOOD.items():
        PARSERS[name](data)


@pytest.mark.parametrize(
    ("parse", "data", "says"),
    [
        (znode_data.parse_state, b'{"leader":1,"leader_epoch":0,"controller_epoch":1}', "isr is not a list but None"),
        (znode_data.parse_state, b'{"leader":1,"leader_epoch":-1,"controller_epoch":1,"isr":[]}', "leader_epoch is"),
        (znode_data.parse_topic, b'{"version":3,"partitions":{"x":[1]}}', "partition 'x' is not a number"),
        (znode_data.parse_topic, b'{"version":3,"partitions":{"0":[true]}}', "something else than integers"),
        (znode_data.parse_topic, b'{"version":3,"partitions":{},"topic_id":"AAAAAAAAAAAAAAAAAAAAAA"}', "is none"),
        (znode_data.parse_topic, b'{"version":3,"partitions":{},"topic_id":"x"}', "base64|Kafka id"),
        (znode_data.parse_config, b'{"version":1,"config":{"a":1}}', "'a' is not a text but 1"),
        (znode_data.parse_config, b'{"version":1,"config":{"a":"\\ud800"}}', "half of one"),
        (znode_data.parse_broker, b'{"version":5,"endpoints":["A://h"]}', "NAME://HOST:PORT"),
        (znode_data.parse_producer_id_block, b'{"broker":1,"block_start":"5","block_end":"4"}', "from 5 to 4"),
        (znode_data.parse_controller_epoch, b"-1", "epoch is -1"),
    ],
)  # fmt: skip
def test_the_message_says_what_is_wrong(parse, data, says):
    with pytest.raises(ValueError, match=says):
        parse(data)


def test_messages_stay_short_and_on_one_line():
    assert json_object.literal("a\n" * 1000) == ascii("a\n" * 1000)[:77] + "..." and json_object.literal({}) == "dict"
