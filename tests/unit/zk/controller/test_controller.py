"""The work of the controller, on a real ZooKeeper with two or three brokers in one process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.names import NO_LEADER
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.metadata.cluster_metadata import Election
from kafkalite.zk.client.operations import Create, Delete, SetData
from kafkalite.zk.controller import controller, pending_changes
from kafkalite.zk.controller.controller import Controller
from kafkalite.zk.controller.controller_store import ControllerStore, Step
from kafkalite.zk.znodes import security_nodes, znode_data, znode_paths
from tests.support.controller_members import Member, Place, cluster, expire, topic
from tests.support.manual_clock import ManualClock
from tests.support.zk.tool_requests import partitions_json, reassignment_json
from tests.unit.zk.controller.conftest import Tell


async def data(member: Member, path: str) -> dict[str, object] | None:
    (node,) = await member.session.read([path])
    return None if node is None else json.loads(node.data or b"null")


def test_the_first_broker_is_elected_with_kafkas_nodes(tell: Tell) -> None:
    async def story(place: Place) -> None:
        async with cluster(place, 1, 2) as (one, two):
            controller, epoch = await one.session.read([znode_paths.CONTROLLER, znode_paths.CONTROLLER_EPOCH])
            assert controller is not None and epoch is not None
            assert controller.ephemeral_owner == one.session.session_id
            written = json.loads(controller.data)
            assert written.pop("timestamp").isdigit()
            assert written == {"version": 2, "brokerid": 1, "kraftControllerEpoch": -1}
            assert (epoch.data, epoch.version) == (b"1", 1)
            await one.until(lambda: one.view.controller_id == 1, "the controller in the view")
            assert not two.is_controller
            await one.until_made(znode_paths.FEATURE)  # after the election
            assert await data(one, znode_paths.FEATURE) == {"version": 2, "status": 1, "features": {}}

    tell(story)


def test_a_new_topic_gets_states_and_each_broker_leads_its_own(tell: Tell) -> None:
    async def story(place: Place) -> None:
        async with cluster(place, 1, 2) as (one, two):
            await two.session.write(topic("orders", [(1,), (2,), (1,), (2, 1), (9,)]))
            await one.until(lambda: len(one.leaders("orders")) == 4, "states")
            assert one.leaders("orders") == {0: 1, 1: 2, 2: 1, 3: 2}  # 4 waits for broker 9
            assert await data(one, znode_paths.state("orders", 3)) == {
                "controller_epoch": 1,
                "leader": 2,
                "version": 1,
                "leader_epoch": 0,
                "isr": [2, 1],
            }
            known = one.view.assignments["orders"]
            more = known.value._replace(partitions={**known.value.partitions, 5: (2,)})
            await two.session.write(
                [SetData(znode_paths.topic("orders"), znode_data.topic_json(more), known.node.version)]
            )
            await one.until(lambda: one.leaders("orders").get(5) == 2, "the added partition")

    tell(story)


def test_a_broker_that_comes_while_others_are_seen_to_counts_at_once(
    tell: Tell, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """All are started side by side: what the first would write of the others' partitions is written for nothing."""
    caplog.set_level("INFO", "kafkalite.zk.controller")
    monkeypatch.setattr(controller, "_WRITTEN_PER_TURN", 1)
    write = ControllerStore.write

    async def story(place: Place) -> None:
        async with cluster(place, 1) as (one,):
            (node,) = await one.session.read([znode_paths.broker(1)])
            assert node is not None

            async def beside_a_start(store: ControllerStore, steps: Sequence[Step]) -> list[Step]:
                refused = await write(store, steps)
                if steps and 2 not in one.view.brokers:
                    await one.session.write([Create(znode_paths.broker(2), node.data, ephemeral=True)])
                    await one.until(lambda: 2 in one.view.brokers, "the other broker")
                return refused

            monkeypatch.setattr(ControllerStore, "write", beside_a_start)
            await one.session.write(topic("orders", [(1,), (2,), (2,)]))
            await one.until(lambda: one.leaders("orders").get(0) == 1, "the first state")
            await one.until(lambda: one.leaders("orders") == {0: 1, 1: 2, 2: 2}, "states")

    tell(story)
    told = [record.getMessage() for record in caplog.records if "live brokers" in record.getMessage()]
    assert told == ["live brokers [1, 2]: 3 new partitions, 0 with another leader, 0 without a possible leader"]


def test_a_topic_of_an_old_tool_gets_an_id(tell: Tell) -> None:
    async def story(place: Place) -> None:
        async with cluster(place, 1) as (one,):
            old = b'{"version":1,"partitions":{"0":[1],"1":[1]}}'
            await one.session.write([Create(znode_paths.topic("old"), old)])
            await one.until(lambda: len(one.leaders("old")) == 2, "states")
            await one.until(lambda: "old" in one.view.topics, "an id")
            written = await data(one, znode_paths.topic("old"))
            assert written is not None and len(str(written.pop("topic_id"))) == 22
            assert written == {
                "version": 3,
                "partitions": {"0": [1], "1": [1]},
                "adding_replicas": {},
                "removing_replicas": {},
            }

    tell(story)


def test_a_broker_that_leaves_leads_nothing_until_it_returns(tell: Tell) -> None:
    async def story(place: Place) -> None:
        async with cluster(place, 1, 2) as (one, two):
            await one.session.write(topic("orders", [(1,), (2,)]))
            await one.until(lambda: one.leaders("orders") == {0: 1, 1: 2}, "leaders")
            await two.vanish()
            await one.until(lambda: one.leaders("orders") == {0: 1, 1: NO_LEADER}, "nobody in its place")
            assert one.epochs("orders") == {0: 0, 1: 1}
            assert one.view.states["orders"][1].value.isr == (2,)
            again = await Member(place, 2).start()
            await one.until(lambda: one.leaders("orders") == {0: 1, 1: 2}, "its return")
            assert one.epochs("orders") == {0: 0, 1: 2}
            await again.stop()

    tell(story)


def test_a_broker_that_was_away_unseen_is_elected_again(tell: Tell) -> None:
    """Registered anew in one transaction: no view ever shows it gone."""

    async def story(place: Place) -> None:
        async with cluster(place, 1, 2) as (one, two):
            await one.session.write(topic("orders", [(1,), (2,)]))
            await one.until(lambda: one.leaders("orders") == {0: 1, 1: 2}, "leaders")
            own = znode_paths.broker(2)
            (node,) = await two.session.read([own])
            assert node is not None
            await two.session.write([Delete(own), Create(own, node.data, ephemeral=True)])
            await one.until(lambda: one.epochs("orders") == {0: 0, 1: 1}, "a new epoch")
            assert one.leaders("orders") == {0: 1, 1: 2}

    tell(story)


def test_another_broker_takes_over_when_the_controller_goes(tell: Tell) -> None:
    async def story(place: Place) -> None:
        async with cluster(place, 1, 2, 3) as (one, two, three):
            await three.session.write(topic("orders", [(1,), (2,), (3,)]))
            await three.until(lambda: three.leaders("orders") == {0: 1, 1: 2, 2: 3}, "leaders")
            await one.vanish()
            await three.until(lambda: three.leaders("orders") == {0: NO_LEADER, 1: 2, 2: 3}, "broker 1 leads nothing")
            assert sorted([two.is_controller, three.is_controller]) == [False, True]
            assert three.view.states["orders"][0].value.controller_epoch == 2
            assert three.epochs("orders") == {0: 1, 1: 0, 2: 0}

    tell(story)


def test_a_controller_that_stops_resigns_at_once(tell: Tell) -> None:
    async def story(place: Place) -> None:
        async with cluster(place, 1, 2) as (one, two):
            await one.controller.stop()
            await two.until(lambda: two.view.controller_id == 2, "broker 2 to be elected")
            (node,) = await two.session.read([znode_paths.broker(1)])
            assert node is not None

    tell(story)


def test_an_operator_who_removes_the_controller_node_gets_an_election(tell: Tell) -> None:
    async def story(place: Place) -> None:
        async with cluster(place, 1, 2) as (one, two):
            await two.session.write([Delete(znode_paths.CONTROLLER)])
            await two.until(
                lambda: two.view.controller_epoch is not None and two.view.controller_epoch.value == 2, "an election"
            )
            await two.session.write(topic("orders", [(1,), (2,)]))
            await two.until(lambda: two.leaders("orders") == {0: 1, 1: 2}, "leaders")
            await two.until(lambda: [one.is_controller, two.is_controller].count(True) == 1, "one controller")

    tell(story)


def test_a_former_controller_is_fenced(tell: Tell) -> None:
    """It does not see that it was replaced, decides, and writes nothing."""

    async def story(place: Place) -> None:
        async with cluster(place, 1, 2) as (one, two):
            await one.session.write(topic("orders", [(1,), (2,)]))
            await one.until(lambda: one.leaders("orders") == {0: 1, 1: 2}, "leaders")
            hear = one.session._on_change
            one.session._on_change = lambda changed: None
            await two.session.write([Delete(znode_paths.CONTROLLER)])
            await two.until(lambda: two.is_controller, "a new controller")
            one.view.brokers.pop(2)
            one.controller._on_paths([znode_paths.broker(2)])  # what it believes to have heard
            await one.until(lambda: one.controller.epoch is None, "the former one to give up")
            assert two.epochs("orders") == {0: 0, 1: 0}
            assert two.leaders("orders") == {0: 1, 1: 2}
            hear([znode_paths.CONTROLLER, znode_paths.CONTROLLER_EPOCH])
            await one.until(lambda: one.view.controller_id == 2, "the truth")

    tell(story)


def test_topics_are_deleted_with_all_that_was_theirs(tell: Tell) -> None:
    async def story(place: Place) -> None:
        async with cluster(place, 1, 2) as (one, two):
            await one.session.write(topic("orders", [(1,), (2,)]))
            await one.session.write(topic("large", [(1,)] * 700))
            await one.until(lambda: len(one.leaders("orders") | one.leaders("large")) == 700, "states")
            await two.session.write(
                [Create(znode_paths.delete_topic(name)) for name in ("orders", "large", "nobody's")]
            )
            await one.until(lambda: not one.view.assignments and not one.view.deletions, "the end of all")
            gone = [
                znode_paths.topic("orders"),
                znode_paths.config(znode_paths.CONFIG_TOPICS, "orders"),
                znode_paths.delete_topic("nobody's"),
            ]
            assert await one.session.read(gone) == [None, None, None]

    tell(story)


@pytest.mark.parametrize(
    ("replicas", "left"), [([(1,), (2,)], {0: 1, 1: NO_LEADER}), ([(1, 2), (2, 1)], {0: 1, 1: 1})], ids=["one", "two"]
)
def test_a_topic_of_a_broker_that_is_away_is_deleted_when_it_returns(
    tell: Tell, replicas: list[tuple[int, ...]], left: dict[int, int]
) -> None:
    async def story(place: Place) -> None:
        async with cluster(place, 1, 2) as (one, two):
            await one.session.write(topic("orders", replicas))
            await one.until(lambda: one.leaders("orders") == {0: 1, 1: 2}, "leaders")
            await two.vanish()
            await one.until(lambda: one.leaders("orders") == left, "broker 2 to be gone")
            await one.session.write([Create(znode_paths.delete_topic("orders"))])
            await one.session.write(topic("later", [(1,)]))
            await one.until(lambda: one.leaders("later") == {0: 1}, "others to go on")
            assert "orders" in one.view.assignments
            stats = one.controller.stats
            of_two = sum(2 in of_partition for of_partition in replicas)
            assert stats.deletions == (1, 1, sum(map(len, replicas)), of_two)
            again = await Member(place, 2).start()
            await one.until(lambda: "orders" not in one.view.assignments and not one.view.deletions, "the deletion")
            await one.until(lambda: stats.deletions == (0, 0, 0, 0), "the counts")
            await again.stop()

    tell(story)


def test_what_changed_while_a_deletion_was_ordered_is_done_when_it_is_withdrawn(
    tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "_CHECK_INTERVAL_MS", 1e9)  # which would mend it later

    async def story(place: Place) -> None:
        async with cluster(place, 1) as (one,):
            await one.session.write(topic("orders", [(1, 2)]))
            await one.until(lambda: one.leaders("orders") == {0: 1}, "a leader")
            ordered = znode_paths.delete_topic("orders")
            await one.session.write([Create(ordered)])
            known = one.view.assignments["orders"]
            more = known.value._replace(partitions={**known.value.partitions, 1: (1,)})
            await one.session.write([SetData(znode_paths.topic("orders"), znode_data.topic_json(more), 0)])
            await one.session.write(topic("later", [(1,)]))
            await one.until(lambda: one.leaders("later") == {0: 1}, "others to go on")
            assert one.leaders("orders") == {0: 1}
            await one.session.write([Delete(ordered)])
            await one.until(lambda: one.leaders("orders") == {0: 1, 1: 1}, "the added partition")

    tell(story)


def test_nothing_is_deleted_where_that_is_forbidden(tell: Tell) -> None:
    async def story(place: Place) -> None:
        config = BrokerConfig(delete_topic_enable=False)
        one = await Member(place, 1, config=config).start()
        await one.session.write(topic("orders", [(1,)]))
        await one.session.write([Create(znode_paths.delete_topic("orders"))])
        await one.until(lambda: one.leaders("orders") == {0: 1} and not one.view.deletions, "a refusal")
        assert "orders" in one.view.assignments
        await one.stop()

    tell(story)


def test_old_tools_get_their_answer(tell: Tell, caplog: pytest.LogCaptureFixture) -> None:
    async def story(place: Place) -> None:
        async with cluster(place, 1, 2) as (one, two):
            await one.session.write(topic("orders", [(1, 2), (2,)]))
            await one.until(lambda: one.leaders("orders") == {0: 1, 1: 2}, "leaders")
            state = one.view.states["orders"][0]
            both = state.value._replace(leader=2, isr=(2, 1), leader_epoch=4)  # as a Kafka would leave it
            await two.session.write(
                [SetData(znode_paths.state("orders", 0), znode_data.state_json(both), state.node.version)]
            )
            await one.until(lambda: one.leaders("orders") == {0: 2, 1: 2}, "another leader")
            asked = [("orders", 0), ("orders", 1), ("nobody's", 0)]
            await two.session.write([Create(znode_paths.PREFERRED_REPLICA_ELECTION, partitions_json(asked))])
            await one.until(lambda: one.leaders("orders") == {0: 1, 1: 2}, "the preferred leader")
            assert one.epochs("orders") == {0: 5, 1: 0}
            await one.until_gone(znode_paths.PREFERRED_REPLICA_ELECTION)
            moved = reassignment_json({("orders", 1): (9,), ("orders", 0): (1, 2), ("nobody's", 0): (1,)})
            await two.session.write([Create(znode_paths.REASSIGN_PARTITIONS, moved)])
            requests = [znode_paths.REASSIGN_PARTITIONS, znode_paths.PREFERRED_REPLICA_ELECTION]
            await one.until_gone(*requests)
            assert one.leaders("orders") == {0: 1, 1: 2}
            await two.session.write([Create(path, b"nonsense") for path in requests])
            await one.until_gone(*requests)

    tell(story)
    assert "nobody's-0 does not exist" in caplog.text and "no such broker is alive" in caplog.text


def test_an_unclean_election_has_to_be_allowed(tell: Tell) -> None:
    async def story(place: Place) -> None:
        async with cluster(place, 1, 2) as (one, two):
            await one.session.write(topic("orders", [(2, 1)]))
            await one.until(lambda: one.leaders("orders") == {0: 2}, "a leader")
            await one.write_isr("orders", 0, 2)
            await two.vanish()
            await one.until(lambda: one.leaders("orders") == {0: NO_LEADER}, "nobody")
            allowed = znode_data.config_json({"unclean.leader.election.enable": "true"})
            await one.session.write([SetData(znode_paths.config(znode_paths.CONFIG_TOPICS, "orders"), allowed)])
            await one.until(lambda: one.leaders("orders") == {0: 1}, "one that is behind")
            assert one.view.states["orders"][0].value.isr == (1,)

    tell(story)


def test_whatever_a_killed_controller_left_half_done_is_finished(tell: Tell) -> None:
    async def story(place: Place) -> None:
        earlier = Member(place, 9).metadata  # never registered: only its session is used
        await earlier.start()
        write = earlier.session.write
        await write(topic("parents", [(1,), (1,)]))
        await write([Create(znode_paths.partitions("parents")), Create(znode_paths.partition("parents", 1))])
        await write(topic("half", [(1,), (1,)]))
        state = znode_data.state_json(znode_data.StateNode(1, 7, (1,), 3))
        await write([Create(znode_paths.partitions("half")), Create(znode_paths.partition("half", 0))])
        await write([Create(znode_paths.state("half", 0), state)])
        await write(topic("dying", [(1,), (1,)]))
        await write([Create(znode_paths.partitions("dying")), Create(znode_paths.delete_topic("dying"))])
        notices = [
            Create(f"{path}/notice_", sequential=True) for path in (znode_paths.ISR_CHANGES, znode_paths.LOG_DIR_EVENTS)
        ]
        made = await write(notices)
        await write([Create(znode_paths.topic("no-id"), b'{"version":1,"partitions":{"0":[1]}}')])
        await write([Create(znode_paths.topic("nonsense"), b"nonsense")])
        await earlier.stop()
        one = await Member(place, 1).start()
        await one.until(lambda: one.leaders("parents") == {0: 1, 1: 1}, "what had parents only")
        await one.until(lambda: one.epochs("half") == {0: 8, 1: 0}, "what had one state")
        await one.until(lambda: one.leaders("no-id") == {0: 1} and "no-id" in one.view.topics, "what had no id")
        await one.until(lambda: not one.view.deletions and "dying" not in one.view.assignments, "the deletion")
        await one.until_gone(*made)
        await one.stop()

    tell(story)


def test_a_session_that_expires_without_a_death_costs_an_election_each(tell: Tell) -> None:
    """The broker stands alone, so that its own return is seen by nobody but itself."""

    async def story(place: Place) -> None:
        async with cluster(place, 1) as (one,):
            await one.session.write(topic("orders", [(1,)]))
            await one.until(lambda: one.leaders("orders") == {0: 1}, "a leader")
            await expire(one)
            await one.until(lambda: one.epochs("orders").get(0, 0) > 0 and one.leaders("orders") == {0: 1}, "it again")
            assert one.is_controller

    tell(story)


def test_notices_of_settings_lists_and_tokens_are_swept_when_everybody_has_seen_them(tell: Tell) -> None:
    async def story(place: Place) -> None:
        clock = ManualClock()
        one = Member(place, 1)
        one.controller = Controller(one.metadata, clock, BrokerConfig())
        await one.start()
        await one.until(lambda: one.is_controller and not one.controller._admin_is_due, "the first look")
        change = Create(znode_paths.CONFIG_CHANGE, znode_data.config_change_json("topics/orders"), sequential=True)
        parents = [security_nodes.LITERAL_CHANGES, security_nodes.EXTENDED_CHANGES, security_nodes.TOKEN_CHANGES]
        await one.session.make_paths(parents)
        others = [Create(f"{parent}/change_", b"", sequential=True) for parent in parents]
        notices = await one.session.write([change, *others])
        clock.advance(30_000)
        await one.until(
            lambda: one.controller._admin_requests._known_since_ms.keys() >= set(notices), "the notices to be known"
        )
        clock.advance(14 * 60_000)
        await one.until(lambda: not one.controller._admin_is_due, "another look")
        assert None not in await one.session.read(notices)
        clock.advance(2 * 60_000)
        await one.until_gone(*notices, meanwhile=lambda: clock.advance(1_000))  # on busy cores a look may fail
        await one.stop()

    tell(story)


def test_a_failure_is_survived_and_what_it_kept_back_is_done_later(
    tell: Tell, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = iter([RuntimeError("a bug"), OSError("another")])
    decide = pending_changes.state_changes

    def faltering(*arguments: Any) -> Any:
        for failure in failures:
            raise failure
        return decide(*arguments)

    async def story(place: Place) -> None:
        async with cluster(place, 1) as (one,):
            monkeypatch.setattr(pending_changes, "state_changes", faltering)
            await one.session.write(topic("orders", [(1,)]))
            await one.until(lambda: one.leaders("orders") == {0: 1}, "a leader after all")

    tell(story)
    assert "the controller failed" in caplog.text and "a bug" in caplog.text


def test_clients_have_leaders_elected_by_the_controller_only(tell: Tell) -> None:
    async def story(place: Place) -> None:
        async with cluster(place, 1, 2) as (one, two):
            await one.session.write(topic("orders", [(1, 2), (2,), (9, 1)]))
            await one.until(lambda: one.leaders("orders") == {0: 1, 1: 2, 2: 1}, "leaders")
            state = one.view.states["orders"][0]
            both = state.value._replace(leader=2, isr=(2, 1), leader_epoch=4)  # as a Kafka would leave it
            await two.session.write(
                [SetData(znode_paths.state("orders", 0), znode_data.state_json(both), state.node.version)]
            )
            await one.until(lambda: one.leaders("orders")[0] == 2, "another leader")
            keys = [("orders", 0), ("orders", 1), ("orders", 0), ("orders", 2), ("orders", 7), ("nobody's", 0)]
            found = await one.controller.partition_admin.elect_leaders(keys, Election.PREFERRED)
            assert codes(found) == [0, 84, 0, 80, 3, 3]
            assert (one.leaders("orders"), one.epochs("orders")) == ({0: 1, 1: 2, 2: 1}, {0: 5, 1: 0, 2: 0})
            found = await one.controller.partition_admin.elect_leaders(keys, Election.PREFERRED)
            assert codes(found) == [84, 84, 84, 80, 3, 3]
            for call in (
                two.controller.partition_admin.elect_leaders(keys, Election.PREFERRED),
                two.controller.partition_admin.reassign([(("orders", 0), (1, 2))]),
            ):
                with pytest.raises(KafkaError) as refusal:
                    await call
                assert refusal.value.code is ErrorCode.NOT_CONTROLLER

    tell(story)


def test_a_client_may_order_an_unclean_election(tell: Tell) -> None:
    async def story(place: Place) -> None:
        async with cluster(place, 1, 2) as (one, two):
            await one.session.write(topic("orders", [(2, 1), (2,), (1,)]))
            await one.until(lambda: one.leaders("orders") == {0: 2, 1: 2, 2: 1}, "leaders")
            await one.write_isr("orders", 0, 2)
            keys = [("orders", number) for number in range(3)]
            assert codes(await one.controller.partition_admin.elect_leaders(keys, Election.UNCLEAN)) == [84, 84, 84]
            await two.vanish()
            await one.until(lambda: one.leaders("orders") == {0: NO_LEADER, 1: NO_LEADER, 2: 1}, "nobody")
            assert codes(await one.controller.partition_admin.elect_leaders(keys, Election.PREFERRED)) == [80, 80, 84]
            assert codes(await one.controller.partition_admin.elect_leaders(keys, Election.UNCLEAN)) == [0, 83, 84]
            assert one.leaders("orders") == {0: 1, 1: NO_LEADER, 2: 1}

    tell(story)


def test_an_election_where_no_replica_has_ever_lived_finds_none(tell: Tell) -> None:
    async def story(place: Place) -> None:
        async with cluster(place, 1) as (one,):
            await one.session.write(topic("orders", [(1,), (9, 8)]))
            await one.until(lambda: one.leaders("orders").get(0) == 1, "a leader of the other partition")
            admin = one.controller.partition_admin
            for election, code in (
                (Election.UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
                (Election.PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
            ):
                assert codes(await admin.elect_leaders([("orders", 1)], election)) == [code]

    tell(story)


def test_a_reassignment_to_where_a_partition_is_needs_nothing(tell: Tell) -> None:
    async def story(place: Place) -> None:
        async with cluster(place, 1, 2) as (one, _):
            await one.session.write(topic("orders", [(1, 2), (2,)]))
            await one.until(lambda: one.leaders("orders") == {0: 1, 1: 2}, "leaders")
            admin = one.controller.partition_admin
            targets = [(0, (1, 2)), (1, (2,)), (1, (3,)), (1, ()), (1, None), (7, (1,))]
            found = await admin.reassign([(("orders", number), target) for number, target in targets])
            assert codes(found) == [0, 0, 39, 39, 85, 3]
            assert admin.reassignments() == {}
            assert one.view.assignments["orders"].node.version == 0
            await one.session.write([Create(znode_paths.delete_topic("orders"))])
            await one.until(lambda: "orders" not in one.view.topics, "its end")
            assert codes(await admin.reassign([(("orders", 0), (1, 2))])) == [3]

    tell(story)


def test_a_request_that_waits_is_answered_when_the_controller_stops(tell: Tell) -> None:
    async def story(place: Place) -> None:
        async with cluster(place, 1) as (one,):
            admin = one.controller.partition_admin
            waiting = asyncio.ensure_future(admin.elect_leaders([("orders", 0)], Election.PREFERRED))
            await asyncio.sleep(0)
            await one.controller.stop()
            with pytest.raises(KafkaError) as refusal:
                await waiting
            assert refusal.value.code is ErrorCode.NOT_CONTROLLER

    tell(story)


def codes(refusals: Sequence[KafkaError | None]) -> list[int]:
    return [0 if refusal is None else refusal.code for refusal in refusals]
