"""The cluster in memory: nodes in any order make the same picture, changes are told once, nonsense does no harm."""

import json
import uuid
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.common.names import NO_LEADER, format_uuid
from kafkalite.metadata.cluster_metadata import NO_CONTROLLER, Change, PartitionRecord
from kafkalite.metadata.partition_state import IsrState
from kafkalite.zk.client.operations import Node
from kafkalite.zk.cluster.cluster_view import NO_EPOCH, ClusterView, is_of_interest

ID, OTHER_ID = uuid.UUID(int=7), uuid.UUID(int=8)
T = "/brokers/topics/t"


def as_node(value, at, *, version=0, czxid=None, owner=0):
    """A node that was written by transaction `at`."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Node(data, version, at, at if czxid is None else czxid, owner, 0)


def topic(*replicas, topic_id=ID):
    value = {"version": 3, "partitions": {str(i): list(r) for i, r in enumerate(replicas)}}
    value |= {"adding_replicas": {}, "removing_replicas": {}}
    return value | ({"topic_id": format_uuid(topic_id)} if topic_id is not None else {})


def state(leader, epoch=0, isr=(1,)):
    return {"version": 1, "leader": leader, "leader_epoch": epoch, "isr": list(isr), "controller_epoch": 3}


def registration(stopping=False, intact=True):
    return {"version": 1, "stopping": stopping, "intact": intact}


def config(**values):
    return {"version": 1, "config": values}


def broker(port=9092, rack=None):
    value = {"version": 5, "host": "h", "port": port, "jmx_port": -1, "timestamp": "5", "features": {}}
    value |= {"endpoints": [f"PLAINTEXT://h:{port}"], "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"}}
    return value | ({"rack": rack} if rack else {})


class Fed(ClusterView):
    """A view that numbers the transactions by itself, and is asked until nothing more comes."""

    def __init__(self):
        super().__init__()
        self.transactions = count(1)

    def put(self, nodes):
        """Returns what listeners are told, in a short form. A node that is there is written again."""
        read = [
            (path, value if value is None or isinstance(value, Node) else self.written(path, value))
            for path, value in nodes.items()
        ]
        told = []
        changes = self.apply(read)
        while changes:
            told += changes
            changes = self.apply()
        return told

    def written(self, path, value):
        at, there = next(self.transactions), self.node(path)
        return as_node(value, at, czxid=at if there is None else there.czxid)


@pytest.fixture
def view():
    return Fed()


def test_a_topic_is_shown_with_all_that_is_known_of_it(view):
    assert view.put({T: topic([1], [2])}) == [(Change.TOPIC_CREATED, "t")]
    nobody = PartitionRecord((1,), NO_LEADER, NO_EPOCH, (), NO_EPOCH)
    assert view.topics["t"].partitions == {0: nobody, 1: nobody._replace(replicas=(2,))}
    assert view.put({f"{T}/partitions/0/state": as_node(state(1, 4), 10, version=6)}) == [(Change.PARTITION_STATE, "t")]
    assert view.topics["t"].partitions[0] == PartitionRecord((1,), 1, 4, (1,), 6)
    assert view.put({"/config/topics/t": config(a="b")}) == [(Change.TOPIC_CONFIG, "t")]
    assert view.topics["t"].config == {"a": "b"} and view.topics["t"].topic_id == ID
    assert view.put({T: topic([1], [2], [3])}) == [(Change.PARTITIONS_ADDED, "t")]
    assert list(view.topics["t"].partitions) == [0, 1, 2]
    assert view.put({T: None, f"{T}/partitions/0/state": None}) == [(Change.TOPIC_DELETED, "t")]
    assert not view.topics and not view.states and list(view.paths) == ["/config/topics/t"]


def test_a_topic_keeps_its_id_when_a_tool_that_knows_none_writes_the_node(view):
    view.put({T: as_node(topic([1]), 10)})
    told = view.put({T: as_node(topic([1], [1], topic_id=None), 20, czxid=10)})
    assert told == [(Change.PARTITIONS_ADDED, "t")] and view.topics["t"].topic_id == ID
    assert view.without_id == {"t"} and view.assignments["t"].value.topic_id == ID
    assert view.put({T: as_node(topic([1], topic_id=None), 30, czxid=10)}) == [] and view.take_faults()
    assert view.put({T: as_node(topic([1], [1]), 40, czxid=10)}) == [] and not view.without_id
    told = view.put({T: as_node(topic([1], topic_id=None), 50)})
    assert told == [(Change.TOPIC_DELETED, "t")] and view.without_id == {"t"}, "it was made anew"
    assert view.put({T: None}) == [] and not view.without_id


def test_a_topic_without_an_id_is_for_the_controller_only(view):
    told = view.put({T: topic([1], topic_id=None), f"{T}/partitions/0/state": state(1)})
    assert told == [] and not view.topics
    assert view.assignments["t"].value.partitions == {0: (1,)}
    assert view.put({T: topic([1])}) == [(Change.TOPIC_CREATED, "t")]
    assert view.topics["t"].partitions[0].leader == 1
    view.put({"/admin/delete_topics/t": b""})
    assert view.deletions == {"t"}
    view.put({"/admin/delete_topics/t": None})
    assert not view.deletions


def test_a_topic_that_was_made_again_is_gone_in_between(view):
    view.put({T: topic([1]), f"{T}/partitions/0/state": state(1, 9)})
    again = {T: as_node(topic([2], topic_id=OTHER_ID), 50), f"{T}/partitions/0/state": as_node(state(2, 0), 51)}
    assert view.apply(again.items()) == [(Change.TOPIC_DELETED, "t")]
    assert "t" not in view.topics, "whoever is told finds it so"
    assert view.apply() == [(Change.TOPIC_CREATED, "t")] and view.apply() == []
    assert view.topics["t"].topic_id == OTHER_ID and view.topics["t"].partitions[0].leader == 2


def test_the_next_topic_of_a_name_has_nothing_of_the_last(view):
    s = f"{T}/partitions/0/state"
    view.put({T: topic([1], [1]), s: state(1, 9)})
    view.put({T: as_node(topic([2]), 50)})  # smaller, which no topic becomes; of the same id, as none would be
    assert not view.take_faults() and view.assignments["t"].value.partitions == {0: (2,)}
    assert not view.states and view.topics["t"].partitions[0].leader == NO_LEADER
    view.put({s: None})
    assert not view.last_epochs
    view.put({s: as_node(state(2, 0), 51)})
    assert view.topics["t"].partitions[0].leader == 2


def test_another_id_in_the_same_node_is_not_believed(view):
    view.put({T: as_node(topic([1]), 50, czxid=50)})
    other = uuid.UUID(int=77)
    assert view.put({T: as_node(topic([1], topic_id=other), 60, czxid=50)}) == []
    assert view.topics["t"].topic_id == ID and "keeps its id" in view.take_faults()[0].reason
    assert view.put({T: as_node(topic([1], [1]), 70, czxid=50)}) == [(Change.PARTITIONS_ADDED, "t")]
    view.put({T: as_node(topic([1], topic_id=other), 80, czxid=80)})
    assert view.topics["t"].topic_id == other


def test_the_epoch_of_a_state_that_somebody_took_away_is_remembered_as_long_as_the_topic_lives(view):
    s = "/brokers/topics/t/partitions/0/state"
    view.put({T: as_node(topic([1]), 50, czxid=50), s: as_node(state(1, 7), 51)})
    view.put({s: None})
    assert view.last_epochs == {"t": {0: 7}}
    view.put({T: None})
    assert view.last_epochs == {}
    view.put({T: as_node(topic([1]), 60, czxid=60), s: as_node(state(1, 7), 61)})
    view.put({T: None, s: None})
    assert view.last_epochs == {} and view.last_transaction == 61


def test_settings_that_vanish_or_are_nonsense_cost_no_records(view):
    c = "/config/topics/t"
    view.put({T: as_node(topic([1]), 50, czxid=50), c: as_node(config(**{"retention.ms": "-1"}), 51)})
    for lost in (None, as_node(b"{", 52)):
        assert view.put({c: lost}) == [] and view.topics["t"].config == {"retention.ms": "-1"}
    view.put({c: None, T: None})
    view.put({T: as_node(topic([1]), 60, czxid=60)})
    assert view.topics["t"].config == {}, "another topic"
    fresh = Fed()
    fresh.put({T: topic([1]), c: b"{"})
    assert fresh.topics["t"].config["retention.ms"] == "-1"
    fresh.put({c: config(**{"segment.ms": "7"})})
    assert fresh.topics["t"].config == {"segment.ms": "7"}


def test_what_is_older_never_replaces_what_is_known(view):
    view.put({f"{T}/partitions/0/state": as_node(state(1, 5), 20), T: as_node(topic([1]), 10)})
    assert view.put({f"{T}/partitions/0/state": as_node(state(2, 4), 19), T: as_node(topic([2]), 9)}) == []
    assert view.topics["t"].partitions[0][1:3] == (1, 5)


def test_brokers_come_go_and_bounce(view):
    assert view.put({"/brokers/ids/3": as_node(broker(1, "r"), 5, owner=77)}) == [(Change.BROKERS, "")]
    record = view.brokers[3]
    assert (str(record.endpoints[0]), record.rack, record.epoch) == ("PLAINTEXT://h:1", "r", 5)
    assert view.put({"/brokers/ids/3": as_node(broker(1, "r"), 9)}) == [(Change.BROKERS, "")], "another epoch"
    assert view.brokers[3].epoch == 9
    assert view.put({"/brokers/ids/3": None}) == [(Change.BROKERS, "")] and not view.brokers
    assert view.put({"/brokers/ids/3": None}) == []


def test_a_broker_is_shown_with_the_number_of_its_registration(view):
    path = "/kafkalite/registrations/3"
    assert view.put({path: as_node(registration(), 4, version=7)}) == [], "it is yet to come"
    assert view.put({"/brokers/ids/3": as_node(broker(), 5)}) == [(Change.BROKERS, "")]
    assert view.brokers[3][3:] == (5, 7, False, True)
    assert view.put({path: as_node(registration(stopping=True), 6, version=8)}) == [(Change.BROKERS, "")]
    assert view.brokers[3][3:] == (5, 8, True, True)
    assert view.put({path: as_node(b"rotten", 7, version=9)}) == [] and view.take_faults()
    assert view.put({"/brokers/ids/3": None}) == [(Change.BROKERS, "")]
    assert view.put({path: as_node(registration(intact=False), 8, version=10)}) == []
    assert view.put({"/brokers/ids/3": as_node(broker(), 9)}) == [(Change.BROKERS, "")]
    assert view.brokers[3][3:] == (9, 10, False, False)


def test_a_broker_of_apache_kafka_has_no_number_and_vouches_for_nothing(view):
    view.put({"/brokers/ids/3": broker()})
    assert (view.brokers[3].registration, view.brokers[3].stopping, view.brokers[3].intact) == (-1, False, False)


def test_eligible_replicas_and_reassignments_are_shown(view):
    moving = topic([1, 2, 3]) | {"adding_replicas": {"0": [3]}, "removing_replicas": {"0": [1]}}
    view.put({T: moving})
    assert view.topics["t"].partitions[0][5:] == ((), (3,), (1,))
    s = f"{T}/partitions/0/state"
    assert view.put({s: as_node(state(2, 4, (2,)) | {"elr": [1]}, 50, version=8)}) == [(Change.PARTITION_STATE, "t")]
    assert view.topics["t"].partitions[0] == PartitionRecord((1, 2, 3), 2, 4, (2,), 8, (1,), (3,), (1,))
    assert view.topics["t"].partitions[0].isr_state == IsrState(2, 4, frozenset({2}), frozenset({1}), 8)
    assert view.put({s: as_node(state(2, 4, (2,)), 51, version=9)}) == [(Change.PARTITION_STATE, "t")]
    assert view.put({T: as_node(topic([1, 2, 3]), 60, czxid=1)}) == [(Change.PARTITION_STATE, "t")]
    assert view.topics["t"].partitions[0][5:] == ((), (), ())


def test_a_write_of_our_own_that_comes_back_as_an_event_is_told_once(view):
    view.put({T: topic([1, 2])})
    written = {f"{T}/partitions/0/state": as_node(state(1, 0, (1, 2)), 50, version=1)}
    assert view.put(written) == [(Change.PARTITION_STATE, "t")]
    assert view.put(written) == []


def test_the_change_of_a_state_does_not_touch_the_other_partitions_of_the_topic(view):
    view.put({T: topic(*([1] for _ in range(100)))})
    before = view.topics["t"].partitions
    changed = {f"{T}/partitions/{n}/state": state(1) for n in (7, 70, 100)}  # there is no partition 100
    assert view.put(changed) == [(Change.PARTITION_STATE, "t")]
    now = view.topics["t"].partitions
    assert [n for n in before if before[n] is not now[n]] == [7, 70] and list(now) == list(range(100))
    assert before[7].leader == NO_LEADER, "records are immutable, and so is a mapping that a caller holds"
    assert view.put({f"{T}/partitions/7/state": None}) == [(Change.PARTITION_STATE, "t")]
    assert view.topics["t"].partitions[7] == before[7]


def test_a_state_and_the_topic_in_one_go(view):
    view.put({T: as_node(topic([1]), 10, czxid=10)})
    told = view.put(
        {
            f"{T}/partitions/1/state": state(1),
            T: as_node(topic([1], [1]), 20, czxid=10),
            f"{T}/partitions/0/state": state(1),
        }
    )
    assert told == [(Change.PARTITIONS_ADDED, "t"), (Change.PARTITION_STATE, "t")]
    assert [each.leader for each in view.topics["t"].partitions.values()] == [1, 1]


def test_the_controller_and_its_epoch(view):
    assert view.controller_id == NO_CONTROLLER
    told = view.put({"/controller": {"version": 2, "brokerid": 2}, "/controller_epoch": as_node(b"8", 40, version=4)})
    assert told == [(Change.CONTROLLER, "")] and view.controller_id == 2
    assert view.controller_epoch.value == 8 and view.controller_epoch.node.version == 4
    assert view.put({"/controller": None}) == [(Change.CONTROLLER, "")] and view.controller_id == NO_CONTROLLER


def test_settings_of_brokers(view):
    default = "/config/brokers/<default>"
    assert view.put({default: config(a="1"), "/config/brokers/3": config(b="2")}) == [
        (Change.BROKER_CONFIG, ""),
        (Change.BROKER_CONFIG, "3"),
    ]
    assert view.broker_configs == {"": {"a": "1"}, "3": {"b": "2"}}
    assert view.put({default: config()}) == [(Change.BROKER_CONFIG, "")] and "" not in view.broker_configs
    assert view.put({default: None}) == []


NONSENSE = [
    b"",
    b"{",
    b"\xff",
    b"[]",
    {"version": 3, "partitions": {}},
    {"version": 3, "partitions": {"0": [1], "2": [1]}},
    {"version": 3, "partitions": {"-1": [1]}},
    {"version": 3, "partitions": {"0": [-1]}},
    {"version": 3, "partitions": {"0": []}},
    {"version": 3, "partitions": {"0": [1, 1]}},
    {"version": 3, "partitions": {"x": [1]}},
    {"version": 3, "partitions": {"0": [1]}, "topic_id": "short"},
    {"version": 3, "partitions": [[1]]},
]


@pytest.mark.parametrize("nonsense", NONSENSE)
def test_nonsense_is_named_once_and_leaves_what_was_known(view, nonsense):
    view.put({T: topic([1], [2])})
    before = dict(view.topics)
    rotten = as_node(nonsense, 100)
    assert view.put({T: rotten, "/brokers/topics/other": rotten, "/brokers/topics/sound": topic([1])}) == [
        (Change.TOPIC_CREATED, "sound")
    ]
    assert [fault.path for fault in view.take_faults()] == [T, "/brokers/topics/other"]
    assert view.put({T: rotten}) == [] and view.take_faults() == []
    assert view.topics == before | {"sound": view.topics["sound"]}
    assert view.put({T: None}) == [(Change.TOPIC_DELETED, "t")]


def test_nonsense_anywhere(view):
    rotten = dict.fromkeys(("/controller", "/controller_epoch", "/brokers/ids/1", "/config/topics/t"), b"rotten")
    rotten |= {
        "/brokers/topics/a b": topic([1]),
        "/config/brokers/1": b"[1]",
        f"{T}/partitions/0/state": state(1, -4),
        T: topic([1], [2]),
    }
    view.put(rotten)
    assert {fault.path for fault in view.take_faults()} == set(rotten) - {T}
    assert list(view.topics) == ["t"]
    view.put({T: topic([1])})
    assert [fault.reason for fault in view.take_faults()] == [
        "1 partitions, where there were 2; they are never taken away"
    ]


def test_a_topic_made_anew_with_its_id_and_fewer_partitions_is_another_topic():
    view = Fed()
    view.put({T: topic([1], [2])})
    gone_and_back = [(T, None), (T, as_node(topic([1]), next(view.transactions)))]
    assert view.apply(gone_and_back) == [(Change.TOPIC_DELETED, "t")]
    assert view.apply() == [(Change.TOPIC_CREATED, "t")]
    assert list(view.topics["t"].partitions) == [0]


def test_which_paths_matter():
    matter = [T, f"{T}/partitions/7/state", "/config/topics/t", "/config/brokers/<default>", "/brokers/ids/1"]
    matter += ["/controller", "/controller_epoch", "/admin/delete_topics/t", "/kafkalite/registrations/1"]
    matter += ["/config/users/u", "/config/clients/<default>", "/config/ips/1.2.3.4", "/kafka-acl/Topic/t"]
    for path in matter:
        assert is_of_interest(path)
    idle = ["/", "/brokers", "/brokers/topics", f"{T}/partitions", f"{T}/partitions/7", f"{T}/partitions/x/state"]
    idle += [
        "/config/changes/config_change_0",
        "/config/users",
        "/kafka-acl/Topic",
        "/config/topics",
        "/admin",
        "/admin/delete_topics",
    ]
    idle += ["/kafkalite", "/kafkalite/registrations", "/kafkalite/registrations/x", "/kafkalite/registrations/1/x"]
    idle += ["/brokers/ids", "/brokers/ids/x", "/brokers/seqid", "/controllers"]
    assert not [path for path in idle if is_of_interest(path)]


VALUES = {
    T: [topic([1]), topic([1], [2]), topic([1], topic_id=OTHER_ID), topic([1], topic_id=None), b"rotten"],
    "/brokers/topics/u": [topic([2]), topic([2], [3])],
    f"{T}/partitions/0/state": [state(1), state(-1, 1), state(1, 2), state(1, 2) | {"elr": [2]}, b""],
    f"{T}/partitions/1/state": [state(2)],
    "/config/topics/t": [config(a="1"), config(a="2")],
    "/config/brokers/1": [config(a="1"), config()],
    "/brokers/ids/1": [broker(), broker(2)],
    "/kafkalite/registrations/1": [registration(), registration(stopping=True)],
    "/controller": [{"version": 2, "brokerid": 1}, {"version": 2, "brokerid": 2}],
    "/admin/delete_topics/t": [b""],
}
STEPS = st.lists(
    st.sampled_from(sorted(VALUES)).flatmap(
        lambda path: st.tuples(st.just(path), st.sampled_from([None, *VALUES[path]]))
    )
)


@given(STEPS, st.randoms(use_true_random=False), st.integers(1, 5))
def test_listeners_can_follow_and_order_does_not_matter(steps, random, size):
    """A copy that applies each reported change equals the view, and so does a reading of all nodes at once, in any
    order. Except for nonsense, for a topic's config that was removed, and for an id that a tool of old left out: there
    the view keeps what it knew."""
    view = Fed()
    copy = {}
    last = {}
    for first in range(0, len(steps), size):
        read = []
        for path, value in steps[first : first + size]:
            at, there = next(view.transactions), last.get(path)
            is_made_anew = there is None or random.random() < 0.5
            node = None if value is None else as_node(value, at, czxid=at if is_made_anew else there.czxid)
            read.append((path, node))
            if there is not None and is_made_anew:
                read += [(below, None) for below, each in last.items() if below.startswith(f"{path}/") and each]
            last |= dict(read)
        changes = view.apply(read)
        while changes:
            assert len(set(changes)) == len(changes)
            for change, name in changes:
                if change is Change.TOPIC_DELETED:
                    assert name in copy and name not in view.topics
                    del copy[name]
                elif change is Change.TOPIC_CREATED:
                    assert name not in copy
                    copy[name] = view.topics[name]
                elif change in (Change.PARTITIONS_ADDED, Change.PARTITION_STATE, Change.TOPIC_CONFIG):
                    assert copy[name] != view.topics[name]
            for _, name in changes:
                if name in copy:
                    copy[name] = view.topics[name]
            changes = view.apply()
        assert copy == view.topics
    assert view.paths == {path for path, node in last.items() if node is not None}
    if not view.take_faults():
        fresh = Fed()
        nodes = list(last.items())
        random.shuffle(nodes)
        fresh.put(dict(nodes))
        for name, topic in fresh.topics.items():  # a config that was taken away from a living topic stays in force
            if last.get(f"/config/topics/{name}") is None:
                copy[name] = copy[name]._replace(config=topic.config)
        for name in view.without_id & copy.keys():
            assert name not in fresh.topics
            del copy[name]
        assert (fresh.topics, fresh.states, fresh.brokers) == (copy, view.states, view.brokers)
        assert (fresh.broker_configs, fresh.controller, fresh.deletions) == (
            view.broker_configs,
            view.controller,
            view.deletions,
        )
