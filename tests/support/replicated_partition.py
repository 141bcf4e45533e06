"""A partition with replicas, as numbers of records: brokers that come and go, a leader that keeps its ISR, and a
controller that decides by what it has seen last. Writes are those of ZooKeeper: by version, with checks."""

from __future__ import annotations

from typing import NamedTuple

from kafkalite.common.names import NO_LEADER
from kafkalite.metadata.cluster_metadata import Election
from kafkalite.zk.controller.election import Brokers, LeaderAndIsr, elect, members
from kafkalite.zk.znodes.znode_data import RECOVERED, RECOVERING


class Seen(NamedTuple):
    """ZooKeeper as somebody has read it. `registrations` has the version of each broker's registration."""

    replicas: tuple[int, ...]
    state: LeaderAndIsr
    version: int
    written_by: int
    live: dict[int, int]
    stopping: frozenset[int]
    intact: frozenset[int]
    registrations: dict[int, int]


class Cluster:
    """All replicas live and are in sync at first. Each method is one step of a history; a step that cannot be taken
    does nothing. `checks`: writes check the registrations of the members that they keep."""

    def __init__(self, replicas: tuple[int, ...], *, unclean: bool = False, checks: bool = True) -> None:
        self._replicas = replicas
        self._unclean = unclean
        self._checks = checks
        self._transaction = 0
        self._live: dict[int, int] = {}
        self._stopping: set[int] = set()
        self._intact: set[int] = set()  # lost nothing when they went last
        self._registrations = dict.fromkeys(replicas, 0)
        self._log = dict.fromkeys(replicas, 0)
        self._copied: set[int] = set()  # followers that have all of the leader's log, under their registration
        self._committed = 0
        self.elected_with_all_that_was_committed = True
        for broker in replicas:
            self.comes(broker)
        self.state = LeaderAndIsr(replicas[0], 0, replicas)
        self._version = 0
        self._written_by = self._next()
        self.seen = self._now()

    def _next(self) -> int:
        self._transaction += 1
        return self._transaction

    def _now(self) -> Seen:
        return Seen(
            self._replicas, self.state, self._version, self._written_by,
            dict(self._live), frozenset(self._stopping), frozenset(self._intact), dict(self._registrations),
        )  # fmt: skip

    # Brokers

    def comes(self, broker: int) -> None:
        if broker not in self._live:
            self._live[broker] = self._next()
            self._registrations[broker] += 1
            self._copied.discard(broker)

    def goes(self, broker: int) -> None:
        """With the end of its log, half of it: that was not on the disk."""
        if broker in self._live:
            self.exits(broker)
            self._log[broker] //= 2
            self._intact.discard(broker)

    def exits(self, broker: int) -> None:
        """With all of its log."""
        if self._live.pop(broker, None) is not None:
            self._stopping.discard(broker)
            self._copied.discard(broker)
            self._intact.add(broker)

    def bounces(self, broker: int) -> None:
        self.goes(broker)
        self.comes(broker)

    def stops(self, broker: int) -> None:
        """Announces that it is about to stop, which counts as a change of its registration."""
        if broker in self._live:
            self._next()
            self._stopping.add(broker)
            self._registrations[broker] += 1

    # Leader and followers

    @property
    def _leads(self) -> bool:
        """Whether the leader of the state lives, under the registration with which it was elected."""
        return self._live.get(self.state.leader, self._written_by) < self._written_by

    def produce(self, _: int) -> None:
        if self._leads:
            self._log[self.state.leader] += 1
            self._copied.clear()
            self._commit()

    def copy(self, broker: int) -> None:
        if self._leads and broker in self._live and broker != self.state.leader:
            self._log[broker] = self._log[self.state.leader]
            self._copied.add(broker)
            self._commit()

    def replicate(self, broker: int) -> None:
        """A record that all live followers copy."""
        self.produce(broker)
        for follower in self._replicas:
            self.copy(follower)

    def _commit(self) -> None:
        self._committed = max(self._committed, min(self._log[one] for one in self.state.isr))

    def shrink(self, broker: int) -> None:
        self._write_isr(tuple(one for one in self.state.isr if one != broker or one == self.state.leader))

    def expand(self, broker: int) -> None:
        if broker in self._copied and broker not in self.state.isr and broker not in self._stopping:
            self._write_isr((*self.state.isr, broker))

    def _write_isr(self, isr: tuple[int, ...]) -> None:
        """The leader knows the registration under which each follower has copied; a member that registered anew is not
        kept."""
        if not self._leads or isr == self.state.isr:
            return
        known = {one for one in isr if one in self._copied or self._live.get(one, self._written_by) < self._written_by}
        if not self._checks or known == set(isr):
            self._write(self.state._replace(isr=isr, recovery=RECOVERED))
            self._commit()

    # The controller

    def look(self, _: int) -> None:
        self.seen = self._now()

    def decide(self, _: int) -> None:
        """By what was seen; refused if the state is another one now, or a member that it keeps registered since."""
        seen = self.seen
        brokers = Brokers(seen.live, seen.stopping, seen.intact)
        election = Election.UNCLEAN if self._unclean else None
        decided = elect(seen.replicas, seen.state, seen.written_by, brokers, 0, election)
        if decided is None or seen.version != self._version:
            return
        if self._checks and any(self._registrations[one] != seen.registrations[one] for one in decided.isr):
            return
        known = members(self._replicas, self.state.isr, self._written_by, Brokers(self._live))
        had_all = [*known.ready, *known.stopping, *known.absent, *(self._intact & set(known.returned))]
        if decided.leader != NO_LEADER and decided.leader_epoch != self.state.leader_epoch:  # the same one, perhaps
            self.elected_with_all_that_was_committed = True
            if decided.recovery == RECOVERING or self._unclean or not had_all:
                self._committed = min(self._committed, self._log[decided.leader])  # allowed, or it was lost by all
            else:
                self.elected_with_all_that_was_committed = self._log[decided.leader] >= self._committed
            self._copied.clear()
        self._write(decided)

    def act(self, broker: int) -> None:
        """In time."""
        self.look(broker)
        self.decide(broker)

    def _write(self, state: LeaderAndIsr) -> None:
        self.state = state
        self._version += 1
        self._written_by = self._next()
