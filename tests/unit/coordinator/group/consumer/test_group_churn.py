"""Many members that come, go and die among a thousand other groups: each partition has one owner at most at any time,
and a change has reached everybody within a heartbeat interval, the time between two targets, and the short interval of
a member that waits for the last of the others. Kafka gives it the whole interval, so there it takes two."""

from __future__ import annotations

import random
import time

import pytest

from tests.support.consumer_group_world import HEARTBEAT_MS, SESSION_MS, Topics, World
from tests.support.group_clients import ConsumerClient

ASSIGNMENT_MS = 1_000  # between two targets of a group
REACHED_MS = HEARTBEAT_MS + ASSIGNMENT_MS + HEARTBEAT_MS // 10
TICK_MS = 100


class Churn:
    """`size` members of one group on `partitions`, and `others` groups of one member, each with a beat of its own."""

    def __init__(self, size, partitions, others, seed=1):
        self.random = random.Random(seed)
        self.world = World(Topics(foo=partitions), assignment_interval_ms=ASSIGNMENT_MS).load()
        self.count = 0
        self.beats = {}  # by client: the time of its next heartbeat
        self.owners = {}  # by partition
        self.now_ms = 0
        self.changed_ms = 0
        self.epoch = 0
        self.others = [f"other-{number}" for number in range(others)]
        self.epochs = {group: self.world.join("m", "foo", group=group).member_epoch for group in self.others}
        for _ in range(size):
            self.come()

    def come(self):
        self.count += 1
        client = ConsumerClient(self.world, f"m{self.count}", None, ["foo"], "")
        self.beat(client)
        if not self.now_ms:  # those of the beginning are not in step
            self.beats[client] = self.random.randrange(0, HEARTBEAT_MS, TICK_MS)

    def go(self):
        """A member leaves, or dies and is not heard of again."""
        client = self.random.choice(list(self.beats))
        del self.beats[client]
        if self.random.random() < 0.5:
            client.leave()
        for partition in [each for each, owner in self.owners.items() if owner is client]:
            del self.owners[partition]

    def beat(self, client):
        """A heartbeat, and another one at once if something was revoked, as Java's."""
        while True:
            client.step(says_owned=False)
            client.hear()
            if client.owned <= client.assigned:
                break
            client.revoke()
            client.is_heard = False
            self.move(client)
        self.move(client)
        self.beats[client] = self.now_ms + client.interval_ms

    def move(self, client):
        for partition in [each for each, owner in self.owners.items() if owner is client and each not in client.owned]:
            del self.owners[partition]
        for partition in client.owned:
            assert self.owners.setdefault(partition, client) is client, "a partition has two owners"

    def tick(self):
        self.world.clock.advance(TICK_MS)
        self.now_ms += TICK_MS
        phase = self.now_ms % HEARTBEAT_MS
        for client in [client for client, at in self.beats.items() if at <= self.now_ms]:
            self.beat(client)
        for group in self.others[phase // TICK_MS :: HEARTBEAT_MS // TICK_MS]:
            answer = self.world.beat("m", self.epochs[group], group=group)
            assert answer.member_epoch == self.epochs[group] and answer.assignment is None
        tables = self.world.group().tables
        if tables.group_epoch != self.epoch:
            self.epoch, self.changed_ms = tables.group_epoch, self.now_ms
        if self.now_ms - self.changed_ms > REACHED_MS:
            self.has_reached_everybody()

    def has_reached_everybody(self):
        """Members that have died keep their partitions until their sessions end; all others are where they belong."""
        tables = self.world.group().tables
        dead = tables.members.keys() - {client.member_id for client in self.beats}
        assert dead or self.world.group().state_name == "Stable"
        assert {client.epoch for client in self.beats} == {tables.target_epoch}
        assert all(client.owned == client.assigned for client in self.beats)
        held = [part for each in dead for part in tables.members[each].current[3:]]
        held += [tables.targets.get(each) for each in dead]
        blocked = {index for part in held for some in part.values() for index in some}
        assert len(self.owners) == len(self.world.topics.topics["foo"].partitions) - len(blocked)


def churn(size, partitions, others, duration_ms, seed=1):
    """Returns how many times the group has changed."""
    scene = Churn(size, partitions, others, seed)
    next_ms = 0
    while scene.now_ms < duration_ms:
        if scene.now_ms >= next_ms:
            for _ in range(scene.random.randrange(3)):
                scene.go() if len(scene.beats) > size // 2 and scene.random.random() < 0.5 else scene.come()
            next_ms = scene.now_ms + scene.random.choice([500, 3_000, 2 * REACHED_MS])
        scene.tick()
    for _ in range((SESSION_MS + 2 * REACHED_MS) // TICK_MS):  # the last ones that died are gone as well
        scene.tick()
    scene.has_reached_everybody()
    assert len(scene.owners) == partitions
    return scene.epoch


@pytest.mark.parametrize("seed", range(4))
def test_members_that_come_and_go(seed: int) -> None:
    assert churn(size=12, partitions=24, others=20, duration_ms=60_000, seed=seed) > 10


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_hundred_members_for_ten_minutes_among_a_thousand_groups() -> None:
    began = time.monotonic()
    assert churn(size=100, partitions=200, others=1_000, duration_ms=600_000) > 100
    print(f"{time.monotonic() - began:.0f} s")
