"""Controllers that die in the middle, one after the other, and at scale; on a real ZooKeeper."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest

from kafkalite.common.names import NO_LEADER
from kafkalite.metadata.cluster_metadata import RegistrationState
from kafkalite.zk.client.operations import Create, Delete, NoNode, Operation, Unavailable
from kafkalite.zk.cluster.zookeeper_metadata import ZooKeeperMetadata
from kafkalite.zk.znodes import znode_paths
from tests.support.controller_members import ENDPOINTS, Member, Place, cluster, expire, topic
from tests.support.wait import DEADLINE_S
from tests.support.zookeeper import Cut
from tests.unit.zk.controller.conftest import Tell

ROUNDS = [10, pytest.param(100, marks=pytest.mark.long)]


@pytest.mark.parametrize("rounds", ROUNDS)
def test_controllers_come_and_go_and_nothing_gets_stuck(tell: Tell, rounds: int) -> None:
    """In each round the controller goes, by turns in three ways, while a topic is made and another is deleted."""

    async def story(place: Place) -> None:
        async with cluster(place, 1, 2, 3) as members:
            await members[0].session.write(topic("kept", [(1,), (2,), (3,)]))
            for number in range(rounds):
                elected = next(each for each in members if each.is_controller)
                other = next(each for each in members if each is not elected)
                doomed = [Create(znode_paths.delete_topic(f"topic-{number - 1}"))] if number else []
                await other.session.write([*topic(f"topic-{number}", [(1,), (2,), (3,)]), *doomed])
                if number % 3 == 0:
                    await elected.vanish()
                    at = members.index(elected)
                    members[at] = await Member(place, elected.broker_id).start()
                elif number % 3 == 1:
                    await expire(elected)
                else:
                    await elected.controller.stop()
                    elected.controller.start()
                for member in members:
                    await member.until(functools.partial(whole, member, number), f"a whole cluster, round {number}")
            epoch = members[0].view.controller_epoch
            assert epoch is not None and epoch.value >= rounds
            assert [each.is_controller for each in members].count(True) == 1

    def whole(member: Member, number: int) -> bool:
        wanted = {"kept", f"topic-{number}"}
        all_led = {0: 1, 1: 2, 2: 3}
        return set(member.view.assignments) == wanted and all(member.leaders(name) == all_led for name in wanted)

    tell(story)


def test_a_controller_that_dies_between_two_transactions_leaves_nothing_undone(
    tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small transactions, and the controller vanishes behind the second one."""
    monkeypatch.setattr("kafkalite.zk.controller.controller_store._BATCH_OPERATIONS_MAX", 10)

    async def story(place: Place) -> None:
        async with cluster(place, 1, 2) as (one, two):
            write, written = one.session.write, 0

            async def faltering(operations: Sequence[Operation]) -> list[str]:
                nonlocal written
                if len(operations) > 5:
                    written += 1
                    if written > 2:
                        raise Unavailable("gone")
                return await write(operations)

            one.session.write = faltering  # type: ignore[method-assign]
            names = [f"topic-{number}" for number in range(8)]
            await two.session.write([each for name in names for each in topic(name, [(1,), (2,), (2,)])])
            await one.until(lambda: written > 2, "the third transaction")
            states = sum(len(two.view.states.get(name, {})) for name in names)
            assert states < 24
            await one.vanish()
            led = {0: NO_LEADER, 1: 2, 2: 2}
            await two.until(lambda: all(two.leaders(name).get(1) == 2 for name in names), "leaders everywhere")
            for name in names:  # what was led by the one that died is offline, or was never led
                assert two.leaders(name).items() <= led.items()
            again = await Member(place, 1).start()
            await again.until(lambda: all(again.leaders(name).get(0) == 1 for name in names), "the rest")
            await again.stop()

    tell(story)


def test_a_controller_that_is_cut_off_is_replaced_and_obeys_when_it_is_back(tell: Tell) -> None:
    async def story(place: Place) -> None:
        servers, _, chroot = place.connect.partition("/")
        with Cut(servers) as cut:
            one = await Member(place._replace(connect=f"{cut.connect}/{chroot}"), 1, session_timeout_ms=600).start()
            await one.until(lambda: one.is_controller, "the first controller")
            two = await Member(place, 2).start()
            await two.session.write(topic("orders", [(1,), (2,)]))
            await two.until(lambda: two.leaders("orders") == {0: 1, 1: 2}, "leaders")
            cut.cut()
            await two.until(lambda: two.leaders("orders") == {0: NO_LEADER, 1: 2}, "another controller")
            assert two.is_controller and one.registration_state is not RegistrationState.MEMBER
            cut.mend()
            await two.until(lambda: two.leaders("orders") == {0: 1, 1: 2}, "broker 1 again")
            await one.until(
                lambda: one.registration_state is RegistrationState.MEMBER and not one.is_controller,
                "a modest broker 1",
            )
            await one.stop()
            await two.stop()

    tell(story)


def test_a_short_interruption_costs_no_election(tell: Tell) -> None:
    async def story(place: Place) -> None:
        servers, _, chroot = place.connect.partition("/")
        with Cut(servers) as cut:
            one = await Member(place._replace(connect=f"{cut.connect}/{chroot}"), 1, session_timeout_ms=20_000).start()
            await one.until(lambda: one.is_controller, "a controller")
            cut.cut()
            await one.until(lambda: one.registration_state is RegistrationState.DISCONNECTED, "the loss")
            cut.mend()
            await one.until(lambda: one.registration_state is RegistrationState.MEMBER, "the connection")
            await one.session.write(topic("orders", [(1,)]))
            await one.until(lambda: one.leaders("orders") == {0: 1}, "a leader")
            assert one.controller.epoch == 1
            assert one.epochs("orders") == {0: 0}
            await one.stop()

    tell(story)


@pytest.mark.long
def test_2000_topics_of_5_partitions(tell: Tell, capsys: pytest.CaptureFixture[str]) -> None:
    async def story(place: Place) -> None:
        async with cluster(place, 1, 2, 3) as (one, _, three):
            names = [f"topic-{number}" for number in range(2000)]
            for first in range(0, 2000, 200):
                operations = [
                    each
                    for index, name in enumerate(names[first : first + 200])
                    for each in topic(name, [(1 + (index + p) % 3,) for p in range(5)])
                ]
                await three.session.write(operations)

            def led(member: Member) -> int:
                return sum(1 for states in member.view.states.values() for k in states.values() if k.value.leader > 0)

            await measured("10,000 first states", three, lambda: led(three) == 10_000)
            await one.vanish()
            lost = sum(1 for states in three.view.states.values() for k in states.values() if k.value.leader == 1)
            await measured("failover", three, lambda: led(three) == 10_000 - lost, limit_s=5)
            again = await Member(place, 1).start()
            await measured("return", three, lambda: led(three) == 10_000)
            await again.stop()
            await measured("going", three, lambda: led(three) == 10_000 - lost)
            for first in range(0, 2000, 500):
                await three.session.write(
                    [Create(znode_paths.delete_topic(name)) for name in names[first : first + 500]]
                )
            again = await Member(place, 1).start()
            await measured("2,000 deletions", three, lambda: not three.view.assignments and not three.view.deletions)
            await again.stop()

    async def measured(what: str, member: Member, probe: Callable[[], bool], limit_s: float = DEADLINE_S) -> None:
        begun = time.monotonic()
        await member.until(probe, what, limit_s)
        with capsys.disabled():
            print(f"\n{what}: {time.monotonic() - begun:.2f} s", end="")

    tell(story)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 12))])
def test_whatever_happens_epochs_grow_and_all_is_led_in_the_end(tell: Tell, seed: int) -> None:
    """Brokers vanish, bounce, lose sessions and come back while topics come and go, without waiting for each other.
    A witness that is no controller sees every state that is written."""
    chance = random.Random(seed)
    seen: dict[tuple[str, int, int], tuple[int, int, int]] = {}

    def witness_states(witness: ZooKeeperMetadata) -> None:
        for name, states in witness.view.states.items():
            topic_node = witness.view.assignments.get(name)
            for number, state in states.items():
                leader, leader_epoch, isr, controller_epoch = state.value[:4]
                assert isr and (leader == NO_LEADER or isr == (leader,))
                assert topic_node is None or set(isr) <= set(topic_node.value.partitions.get(number, isr))
                one = name, number, state.node.czxid
                before = seen.get(one, (-1, -1, 0))
                now = (leader_epoch, state.node.version, controller_epoch)
                assert before <= now and before[2] <= now[2], (one, before, now)
                seen[one] = now

    async def story(place: Place) -> None:
        witness = Member(place, 9).metadata
        await witness.start()
        faults: list[BaseException] = []

        def look(changed: object) -> None:
            try:
                witness_states(witness)
            except AssertionError as fault:
                faults.append(fault)

        witness.listen_paths(look)
        async with cluster(place, 1, 2, 3) as members:
            wanted: set[str] = set()
            for number in range(40):
                at = chance.randrange(3)
                member = members[at]
                what = chance.choice(["create", "create", "delete", "vanish", "expire", "bounce", "resign", "stop"])
                if what == "create":
                    await witness.session.write(topic(f"topic-{number}", [(1,), (2,), (3,), (2,)]))
                    wanted.add(f"topic-{number}")
                elif what == "delete" and wanted:
                    doomed = chance.choice(sorted(wanted))
                    wanted.discard(doomed)
                    await witness.session.write([Create(znode_paths.delete_topic(doomed))])
                elif what == "vanish":
                    await member.vanish()
                    members[at] = await Member(place, member.broker_id).start()
                elif what == "expire":
                    await expire(member)
                elif what == "bounce":
                    await member.metadata.unregister()
                    await member.metadata.register(ENDPOINTS, None)
                elif what == "resign":
                    with suppress(NoNode):
                        await witness.session.write([Delete(znode_paths.CONTROLLER)])
                elif what == "stop":
                    await member.controller.stop()
                    member.controller.start()
            led = {0: 1, 1: 2, 2: 3, 3: 2}
            for member in members:
                await member.until(functools.partial(all_led, member, wanted, led), "a whole cluster")
            assert not faults
        await witness.stop()

    def all_led(member: Member, wanted: set[str], led: dict[int, int]) -> bool:
        return set(member.view.assignments) == wanted and all(member.leaders(name) == led for name in wanted)

    tell(story)
    assert seen
