"""The controller of partitions with several replicas, on a real ZooKeeper with brokers in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from kafkalite.common.errors import KafkaError
from kafkalite.common.names import NO_LEADER
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.metadata.cluster_metadata import Election, Reassignment
from kafkalite.zk.client.operations import Create, SetData
from kafkalite.zk.controller.controller import Controller
from kafkalite.zk.znodes import znode_data, znode_paths
from tests.support.controller_members import ENDPOINTS, Member, Place, cluster, topic
from tests.support.manual_clock import ManualClock
from tests.support.zk.tool_requests import partitions_json, reassignment_json
from tests.unit.zk.controller.conftest import Tell


def codes(refusals: Sequence[KafkaError | None]) -> list[int]:
    return [0 if refusal is None else refusal.code for refusal in refusals]


def replicas(member: Member, name: str = "orders") -> dict[int, tuple[int, ...]]:
    return dict(member.view.assignments[name].value.partitions)


def test_a_new_partition_is_in_sync_on_all_that_live(tell: Tell) -> None:
    async def story(place: Place) -> None:
        async with cluster(place, 1, 2) as (one, _):
            await one.session.write(topic("orders", [(2, 1, 9), (9, 1, 2), (9,)]))
            await one.until(lambda: one.leaders("orders") == {0: 2, 1: 1}, "leaders")
            assert (one.isr("orders", 0), one.isr("orders", 1)) == ({1, 2}, {1, 2})

    tell(story)


def test_a_dead_follower_leaves_the_isr_and_a_dead_leader_is_replaced(tell: Tell) -> None:
    async def story(place: Place) -> None:
        async with cluster(place, 1, 2, 3) as (one, two, three):
            await one.session.write(topic("orders", [(3, 2, 1), (2, 1, 3)]))
            await one.until(lambda: one.leaders("orders") == {0: 3, 1: 2}, "leaders")
            await three.vanish()
            await one.until(lambda: one.leaders("orders") == {0: 2, 1: 2} and one.isr("orders", 1) == {1, 2}, "others")
            assert one.epochs("orders") == {0: 1, 1: 0}, "a leader that stays keeps its epoch"
            assert one.controller.stats.election_rounds.count == 1
            again = await Member(place, 3).start()
            await two.until(lambda: 3 in two.view.brokers, "its return")
            assert one.isr("orders", 0) == {1, 2}, "it has to catch up first"
            await again.stop()

    tell(story)


def test_a_broker_that_stops_hands_over_what_others_have(tell: Tell) -> None:
    async def story(place: Place) -> None:
        async with cluster(place, 1, 2) as (one, two):
            await one.session.write(topic("orders", [(2, 1), (2,), (1, 2)]))
            await one.until(lambda: one.leaders("orders") == {0: 2, 1: 2, 2: 1}, "leaders")
            await two.metadata.begin_to_stop()
            await one.until(lambda: one.leaders("orders") == {0: 1, 1: 2, 2: 1}, "a hand-over")
            await one.until(lambda: one.isr("orders", 2) == {1}, "the stopping one to leave the ISR")
            assert one.epochs("orders") == {0: 1, 1: 0, 2: 0}
            assert 2 in one.view.brokers

    tell(story)


def test_a_reassignment_goes_on_as_the_isr_grows(tell: Tell) -> None:
    async def story(place: Place) -> None:
        async with cluster(place, 1, 2, 3) as (one, *_):
            await one.session.write(topic("orders", [(1, 2), (1,)]))
            await one.until(lambda: one.leaders("orders") == {0: 1, 1: 1}, "leaders")
            admin, key, other = one.controller.partition_admin, ("orders", 0), ("orders", 1)
            assert codes(await admin.reassign([(key, (3, 2)), (other, (2, 1)), (key, (7,))])) == [0, 0, 39]
            assert replicas(one) == {0: (3, 2, 1), 1: (2, 1)}
            assert admin.reassignments() == {
                key: Reassignment((3, 2, 1), (3,), (1,)),
                other: Reassignment((2, 1), (2,), ()),
            }
            await one.write_isr("orders", 1, 1, 2)
            await one.until(lambda: admin.reassignments().keys() == {key}, "the end of the second")
            assert (one.leaders("orders")[1], one.epochs("orders")[1]) == (1, 0), "the leader stays"
            await one.write_isr("orders", 0, 1, 2, 3)
            await one.until(lambda: not admin.reassignments() and one.isr("orders") == {2, 3}, "the end of the first")
            assert replicas(one) == {0: (3, 2), 1: (2, 1)}
            assert (one.leaders("orders")[0], one.epochs("orders")[0]) == (3, 1)

    tell(story)


def test_a_reassignment_without_copies_ends_at_once(tell: Tell) -> None:
    async def story(place: Place) -> None:
        async with cluster(place, 1, 2) as (one, _):
            await one.session.write(topic("orders", [(1, 2), (1, 2)]))
            await one.until(lambda: one.leaders("orders") == {0: 1, 1: 1}, "leaders")
            admin = one.controller.partition_admin
            assert codes(await admin.reassign([(("orders", 0), (2, 1)), (("orders", 1), (2,))])) == [0, 0]
            await one.until(lambda: not admin.reassignments() and replicas(one) == {0: (2, 1), 1: (2,)}, "the end")
            await one.until(lambda: one.leaders("orders") == {0: 1, 1: 2}, "the leaders")
            assert (one.isr("orders", 0), one.isr("orders", 1)) == ({1, 2}, {2})

    tell(story)


def test_a_reassignment_may_be_cancelled_or_get_another_target(tell: Tell) -> None:
    async def story(place: Place) -> None:
        async with cluster(place, 1, 2, 3) as (one, *_):
            await one.session.write(topic("orders", [(1,), (2,)]))
            await one.until(lambda: one.leaders("orders") == {0: 1, 1: 2}, "leaders")
            admin, key = one.controller.partition_admin, ("orders", 0)
            assert codes(await admin.reassign([(key, None)])) == [85]
            assert codes(await admin.reassign([(key, (2,))])) == [0]
            assert codes(await admin.reassign([(key, (3,))])) == [0]
            assert replicas(one)[0] == (3, 1)
            await one.write_isr("orders", 0, 1, 3)
            await one.until(lambda: replicas(one)[0] == (3,), "the end")
            assert codes(await admin.reassign([(key, (1, 3)), (("orders", 1), (2, 1))])) == [0, 0]
            await one.write_isr("orders", 1, 2, 1)
            await one.until(lambda: admin.reassignments().keys() == {key}, "the other one's end")
            version = one.view.states["orders"][0].node.version
            assert codes(await admin.reassign([(key, None), (("orders", 1), None)])) == [0, 85]
            assert (replicas(one)[0], admin.reassignments()) == ((3,), {})
            assert one.view.states["orders"][0].node.version > version, "what a leader began to write is refused"

    tell(story)


def test_a_cancellation_that_would_lose_records_is_refused(tell: Tell) -> None:
    async def story(place: Place) -> None:
        async with cluster(place, 1, 2, 3) as (one, two, _):
            await one.session.write(topic("orders", [(2,)]))
            await one.until(lambda: one.leaders("orders") == {0: 2}, "a leader")
            admin, key = one.controller.partition_admin, ("orders", 0)
            assert codes(await admin.reassign([(key, (1, 3))])) == [0]
            await one.write_isr("orders", 0, 2, 1)
            await one.until(lambda: one.isr("orders") == {1, 2}, "one of two")
            await two.vanish()
            await one.until(lambda: one.leaders("orders") == {0: 1}, "the new replica to lead")
            assert codes(await admin.reassign([(key, None)])) == [39]
            assert codes(await admin.reassign([(key, (3,))])) == [39]
            assert replicas(one)[0] == (1, 3, 2)

    tell(story)


def test_old_tools_follow_their_reassignments(tell: Tell, caplog: pytest.LogCaptureFixture) -> None:
    async def story(place: Place) -> None:
        async with cluster(place, 1, 2) as (one, two):
            await one.session.write(topic("orders", [(1,)] * 5))
            await one.until(lambda: len(one.leaders("orders")) == 5, "leaders")

            async def asked() -> object:
                (node,) = await two.session.read([znode_paths.REASSIGN_PARTITIONS])
                return None if node is None else set(znode_data.parse_reassignment(node.data))

            async def until_asked(*numbers: int) -> None:
                expected = {("orders", number) for number in numbers}
                while await asked() != expected:  # noqa: ASYNC110 - no view shows it
                    await asyncio.sleep(0.01)

            targets = {("orders", n): (2,) for n in range(3)} | {("orders", 3): (1,), ("orders", 4): (7,)}
            request = reassignment_json({**targets, ("none", 0): (1,)})
            await two.session.write([Create(znode_paths.REASSIGN_PARTITIONS, request)])
            await until_asked(0, 1, 2)
            await one.write_isr("orders", 0, 1, 2)
            await until_asked(1, 2)
            assert replicas(one)[0] == (2,)
            admin = one.controller.partition_admin
            assert codes(await admin.reassign([(("orders", 1), None)])) == [0]
            await until_asked(2)
            await one.write_isr("orders", 2, 1, 2)
            await one.until_gone(znode_paths.REASSIGN_PARTITIONS)
            assert replicas(one) == {0: (2,), 1: (1,), 2: (2,), 3: (1,), 4: (1,)}

    tell(story)
    assert "none-0 does not exist" in caplog.text and "orders-4" in caplog.text


def test_a_new_controller_goes_on_with_reassignments(tell: Tell) -> None:
    async def story(place: Place) -> None:
        async with cluster(place, 1, 2, 3) as (one, two, three):
            await two.session.write(topic("orders", [(2,)]))
            await two.until(lambda: two.leaders("orders") == {0: 2}, "a leader")
            request = reassignment_json({("orders", 0): (3,)})
            await two.session.write([Create(znode_paths.REASSIGN_PARTITIONS, request)])
            await two.until(lambda: replicas(two)[0] == (3, 2), "the beginning")
            await one.vanish()
            await two.until(lambda: two.is_controller or three.is_controller, "another controller")
            await two.write_isr("orders", 0, 2, 3)
            await two.until(lambda: replicas(two)[0] == (3,), "the end")
            await two.until_gone(znode_paths.REASSIGN_PARTITIONS)

    tell(story)


def test_preferred_and_unclean_elections_on_request(tell: Tell, caplog: pytest.LogCaptureFixture) -> None:
    async def story(place: Place) -> None:
        async with cluster(place, 1, 2, 3) as (one, two, three):
            await one.session.write(topic("orders", [(2, 1), (3, 1), (2, 3)]))
            await one.until(lambda: len(one.leaders("orders")) == 3, "leaders")
            keys = [("orders", number) for number in range(3)]
            await two.vanish()
            await one.until(lambda: one.leaders("orders") == {0: 1, 1: 3, 2: 3}, "others")
            again = await Member(place, 2).start()
            admin = one.controller.partition_admin
            assert codes(await admin.elect_leaders(keys, Election.PREFERRED)) == [80, 84, 80]
            await one.write_isr("orders", 0, 1, 2)
            await one.until(lambda: one.isr("orders", 0) == {1, 2}, "its return into the ISR")
            elections = one.controller.stats.elections
            await again.session.write([Create(znode_paths.PREFERRED_REPLICA_ELECTION, partitions_json(keys))])
            await one.until_gone(znode_paths.PREFERRED_REPLICA_ELECTION)
            await one.until(lambda: one.leaders("orders") == {0: 2, 1: 3, 2: 3}, "the preferred leader")
            assert one.isr("orders", 0) == {1, 2} and one.controller.stats.elections == elections + 1
            await three.vanish()
            await one.until(lambda: one.leaders("orders") == {0: 2, 1: 1, 2: NO_LEADER}, "nobody for the third")
            assert codes(await admin.elect_leaders(keys, Election.UNCLEAN)) == [84, 84, 0]
            state = one.view.states["orders"][2].value
            assert (state.leader, state.isr, state.recovery) == (2, (2,), 1)
            assert one.controller.stats.unclean_elections == 1
            await again.stop()

    tell(story)
    assert "orders-2 is led by broker 2, which was not in sync: records may be lost" in caplog.text


@pytest.mark.parametrize("enabled", [True, False])
def test_leaders_return_to_their_preferred_replicas(tell: Tell, enabled: bool) -> None:
    async def story(place: Place) -> None:
        clock = ManualClock()
        config = BrokerConfig(auto_leader_rebalance_enable=enabled, leader_imbalance_check_interval_seconds=60)
        one, two = Member(place, 1), Member(place, 2)
        one.controller = Controller(one.metadata, clock, config)
        await one.start()
        await one.until(lambda: one.is_controller, "a controller")
        await two.metadata.start()
        await two.metadata.register(ENDPOINTS, None)
        await one.session.write(topic("orders", [(2, 1), (2, 1)]))
        await one.until(lambda: one.leaders("orders") == {0: 2, 1: 2}, "leaders")
        for number, pause_ms in ((1, 5_000), (2, 60_000)):
            later = f"later-{number}"
            state = one.view.states["orders"][0]
            moved = state.value._replace(leader=1, leader_epoch=10 * number)
            await one.session.write([SetData(znode_paths.state("orders", 0), znode_data.state_json(moved))])
            await one.until(lambda: one.leaders("orders") == {0: 1, 1: 2}, "another leader")
            clock.advance(pause_ms)
            if enabled:
                await one.until(lambda: one.leaders("orders") == {0: 2, 1: 2}, "the preferred leader")
            await one.session.write(topic(later, [(1,)]))
            await one.until(lambda later=later: one.view.states.get(later), "others to be seen to")
            assert one.leaders("orders") == {0: 2 if enabled else 1, 1: 2}
            assert one.controller.stats.balances.count == (number if enabled else 0)
        await one.stop()
        await two.metadata.stop()

    tell(story)
