"""Clients of one group in a `World`, of either protocol, as Java's behave: they own what they were assigned, revoke in
their own time, lose answers, and join again when they are fenced.

A client sends its next request with `step`, unless it still waits for an answer, and hears an answer with `hear`.
"""

from __future__ import annotations

import itertools

from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.codec.codec import versioned
from kafkalite.protocol.records import (
    ConsumerProtocolSubscription,
    TopicPartitions,
    encode_assignment,
    read_assignment,
    read_subscription,
)
from tests.support.consumer_group_world import Answered, compile_regex

REBALANCE_MS = 20_000
CLASSIC_SESSION_MS = 10_000
FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
RETRIED = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNRELEASED_INSTANCE_ID,
)
EAGER, COOPERATIVE = "range", "cooperative-sticky"  # what a classic client does before a JoinGroup: revoke all, or not


class GroupClient:
    """`owned` are the partitions that it reads, as (topic id, index); `assigned` those that it was told to have."""

    def __init__(self, world, member_id, instance_id, topics, regex):
        self.world = world
        self.member_id = member_id
        self.instance_id = instance_id
        self.topics = list(topics)
        self.regex = regex
        self.owned = set()
        self.assigned = set()
        self.is_settled = False  # it is a member, and has nothing more to say
        self.waiter = None

    def lose(self):
        """It is fenced, or dies: it reads nothing."""
        self.owned = set()
        self.assigned = set()
        self.is_settled = False

    def revoke(self):
        """Its callback is done: it reads nothing that it was not told to have."""
        self.owned &= self.assigned

    def wanted(self):
        """The partitions of existing topics that it is subscribed to."""
        topics = self.world.topics.topics
        pattern = compile_regex(self.regex).pattern if self.regex else None
        names = [name for name in topics if name in self.topics or (pattern and pattern.fullmatch(name))]
        return {(topics[name].topic_id, index) for name in names for index in topics[name].partitions}

    def take(self, assigned):
        """It is told to have these: it reads them at once if it has nothing to revoke before."""
        self.assigned = set(assigned)
        if self.owned <= self.assigned:
            self.owned = set(self.assigned)


class ConsumerClient(GroupClient):
    """A member of the consumer protocol."""

    def __init__(self, world, member_id, instance_id, topics, regex):
        super().__init__(world, member_id, instance_id, topics, regex)
        self.epoch = 0
        self.interval_ms = 0  # until its next heartbeat, as it was told
        self.is_heard = True  # nothing was lost since its last answer
        self.has_news = False  # it has another subscription than it said last

    def lose(self):
        super().lose()
        self.epoch, self.is_heard = 0, True

    def resubscribe(self, topics, regex):
        self.topics, self.regex, self.has_news = list(topics), regex, True

    def step(self, *, says_owned=True):
        if self.waiter is not None:
            return
        is_full = self.epoch == 0 or not self.is_heard or self.has_news
        self.has_news = False
        fields = {"instance_id": self.instance_id}
        if is_full:
            fields |= {"rebalance_timeout_ms": REBALANCE_MS, "topics": list(self.topics), "regex": self.regex}
        if is_full or says_owned:
            fields["owned"] = _by_topic(self.owned)
        self.waiter = self.world.send(self.member_id, self.epoch, **fields)

    def hear(self, *, is_lost=False):
        if self.waiter is None or self.waiter.result is None:
            return
        answer, self.waiter = self.waiter.result, None
        if is_lost or answer.error in RETRIED:
            self.is_heard = False
        elif answer.error in FENCED or answer.error == ErrorCode.GROUP_ID_NOT_FOUND:
            assert self.epoch or answer.error in FENCED, answer  # fatal for a client that joins
            self.lose()
        else:
            assert answer.error == ErrorCode.NONE, answer
            assert answer.member_epoch >= self.epoch
            self.is_settled = answer.member_epoch == self.epoch and self.is_heard
            self.epoch, self.is_heard = answer.member_epoch, True
            self.interval_ms = answer.heartbeat_interval_ms
            if answer.assignment is not None:
                self.take((each, index) for each, some in answer.assignment.items() for index in some)
            else:
                self.take(self.assigned)

    def leave(self, *, returns=False):
        if self.epoch > 0:
            epoch = -2 if returns and self.instance_id else -1
            self.world.send(self.member_id, epoch, instance_id=self.instance_id)
        self.lose()
        self.waiter = None


class ClassicClient(GroupClient):
    """A member of the classic protocol, with an assignor of either kind. If it leads its group, it assigns."""

    _numbers = itertools.count(1)

    def __init__(self, world, protocol, instance_id, topics):
        super().__init__(world, "", instance_id, topics, "")
        self.protocol = protocol
        self.must_join = True
        self.joined_topics = []  # the subscription of its JoinGroup
        self.generation = -1
        self.result = None  # of its JoinGroup, until its SyncGroup is answered
        self.asks = None

    def lose(self):
        super().lose()
        self.must_join, self.generation, self.result = True, -1, None

    def resubscribe(self, topics, regex):
        self.topics, self.must_join = list(topics), True

    def revoke(self):
        self.must_join = self.must_join or bool(self.owned - self.assigned)  # it has less, and asks for more
        super().revoke()

    def step(self, *, says_owned=True):
        world = self.world
        if self.waiter is not None:
            return
        if says_owned:
            self.revoke()
        if self.must_join:
            if self.protocol == EAGER:
                self.owned, self.assigned = set(), set()
            self.asks, self.result, self.is_settled = self._on_join, None, False
            self.joined_topics = list(self.topics)
            self.waiter = world.classic_join(
                self.member_id,
                instance=self.instance_id,
                protocols=((self.protocol, self._subscription()),),
                known=True,
                session_timeout_ms=CLASSIC_SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
            )
        elif self.result is not None:
            self.asks = self._on_sync
            rows = self._assign() if self.result.members and not self.result.skip_assignment else ()
            self.waiter = world.classic_sync(
                self.member_id, self.generation, rows, instance=self.instance_id, protocol=self.protocol
            )
        else:
            self.asks = self._on_heartbeat
            self.waiter = Answered()
            self.waiter.answer(world.classic_beat(self.member_id, self.generation, instance=self.instance_id))

    def hear(self, *, is_lost=False):
        if self.waiter is None or self.waiter.result is None:
            return
        result, self.waiter = self.waiter.result, None
        if is_lost:
            self.must_join = self.must_join or self.asks != self._on_heartbeat
            return
        self.asks(result)

    def _on_join(self, result):
        if result.error == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = result.member_id
        elif not self._is_refused(result.error):
            self.member_id, self.generation, self.result = result.member_id, result.generation_id, result
            self.must_join = self.joined_topics != self.topics  # it has another subscription than it said

    def _on_sync(self, result):
        if self._is_refused(result.error):
            return
        self.result = None
        ids = {name: topic.topic_id for name, topic in self.world.topics.topics.items()}
        rows = read_assignment(result.assignment).assigned_partitions if result.assignment else ()
        self.take((ids[row.topic], index) for row in rows if row.topic in ids for index in row.partitions)

    def _on_heartbeat(self, error):
        self.is_settled = not self._is_refused(error)

    def _is_refused(self, error):
        if error == ErrorCode.NONE:
            return False
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.lose()
            self.member_id = ""
        elif error == ErrorCode.ILLEGAL_GENERATION:
            self.lose()
        else:
            assert error == ErrorCode.REBALANCE_IN_PROGRESS or error in RETRIED, error
        self.must_join, self.is_settled = True, False
        return True

    def _subscription(self):
        names = {topic.topic_id: name for name, topic in self.world.topics.topics.items()}
        rows = [
            TopicPartitions(topic=names[topic_id], partitions=sorted(some))
            for topic_id, some in _by_topic(self.owned).items()
            if topic_id in names
        ]
        return versioned(
            ConsumerProtocolSubscription(topics=list(self.topics), user_data=None, owned_partitions=rows), 1
        )

    def _assign(self):
        """The assignment of all members: partition by partition, but one that another owns only when it is free."""
        subscriptions = {each.member_id: read_subscription(each.metadata) for each in self.result.members}
        owners = {
            (row.topic, index): member_id
            for member_id, subscription in subscriptions.items()
            for row in subscription.owned_partitions
            for index in row.partitions
        }
        found = {member_id: {} for member_id in subscriptions}
        turn = itertools.count()
        for name, topic in sorted(self.world.topics.topics.items()):
            readers = sorted(member_id for member_id, each in subscriptions.items() if name in each.topics)
            for index in sorted(topic.partitions) if readers else ():
                reader = readers[next(turn) % len(readers)]
                if owners.get((name, index), reader) == reader:
                    found[reader].setdefault(name, []).append(index)
        return {member_id: encode_assignment(some.items(), 1) for member_id, some in found.items()}

    def leave(self, *, returns=False):
        if self.member_id and not (returns and self.instance_id):
            self.world.classic_leave(self.member_id)
        self.lose()
        self.member_id, self.waiter = "", None


def _by_topic(partitions):
    found = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return found
