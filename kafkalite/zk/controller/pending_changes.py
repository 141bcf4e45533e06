"""The changes that the controller has to write for the present state of the cluster: topic ids, first states, leaders.

All of them are derived from the nodes in ZooKeeper, without other state: a newly elected controller finds the same
pending changes as its predecessor, and none after writing them. Each change is bound to the version of the node that
was read. So a change based on an old view is refused, and found again when the view is up to date.

A topic that is to be deleted has no other pending changes, and its deletion waits until every broker with a replica
lives: an absent one would come back with records of a topic that is in the metadata no longer. Kafka calls such a topic
ineligible for deletion.

Differences from Kafka: partitions that are added to a topic under deletion are deleted with it; Kafka first takes them
out of the topic again.
Source: kafka.controller.KafkaController (processTopicIds, onNewPartitionCreation, onBrokerFailure, onBrokerStartup,
fetchTopicDeletionsInProgress), TopicDeletionManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from kafkalite.common.metrics import LatestValues
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import NO_LEADER, TRANSACTION_STATE_TOPIC, TopicPartition, random_uuid
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.topic_config import MIN_ISR
from kafkalite.metadata.cluster_metadata import Election
from kafkalite.metadata.partition_state import effective_min_isr
from kafkalite.zk.client.operations import SetData
from kafkalite.zk.cluster.cluster_view import NO_EPOCH, ClusterView, Known
from kafkalite.zk.controller.controller_store import Step
from kafkalite.zk.controller.election import Brokers, LeaderAndIsr, elect, initial_state, is_kept_by_new_controller
from kafkalite.zk.znodes import json_object, znode_data, znode_paths

_UNCLEAN = "unclean.leader.election.enable"
_BALANCED_PER_TURN = 1_000  # partitions in one turn of the loop: about 1 ms


class NewState(NamedTuple):
    """The first state of a partition."""

    topic: str
    partition: int
    state: LeaderAndIsr


class StateChange(NamedTuple):
    """The next state of a partition, and the step that writes it. `elects`: the leader, or its epoch, is another one.
    `is_unclean`: the new leader may lack committed records."""

    topic: str
    partition: int
    state: LeaderAndIsr
    step: Step
    elects: bool
    is_unclean: bool


class PendingDeletions(NamedTuple):
    """Topics that are to be deleted and their replicas, and the ineligible ones among them: topics that wait for a
    broker that is away, and replicas on such brokers."""

    topics: int = 0
    ineligible_topics: int = 0
    replicas: int = 0
    ineligible_replicas: int = 0


class ElectionContext(NamedTuple):
    """The input of an election besides the partition. `first_epochs` are those under which the controller has seen
    brokers first; `awaits`: it is new, and gives brokers that it has not seen a moment to register."""

    brokers: Brokers
    config: BrokerConfig
    controller_epoch: int
    first_epochs: Mapping[int, int] = {}
    awaits: bool = False


def brokers_of(view: ClusterView) -> Brokers:
    known = view.brokers.values()
    return Brokers(
        {broker.broker_id: broker.epoch for broker in known},
        frozenset(broker.broker_id for broker in known if broker.stopping),
        frozenset(broker.broker_id for broker in known if broker.intact),
    )


def topic_id_step(view: ClusterView, name: str, live: Collection[int], is_overdue: bool) -> Step | None:
    """Assigns a topic id if it is missing: topics that tools from before 2.8 created or rewrote lack one. A topic with
    states is not new, and the brokers that have its records know its id (`zk.cluster.topic_ids`): it gets another one
    only if all of them live and it `is_overdue` that they give it back."""
    known = view.assignments.get(name)
    if known is None or name not in view.without_id:
        return None
    is_new = name not in view.states
    if known.value.topic_id is None and not is_new and not (is_overdue and is_deletable(view, name, live)):
        return None
    data = znode_data.topic_json(known.value._replace(topic_id=known.value.topic_id or random_uuid()))
    return Step((SetData(znode_paths.topic(name), data, known.node.version),))


def state_changes(view: ClusterView, name: str, context: ElectionContext) -> Iterator[NewState | StateChange | None]:
    """One by one the partitions of a topic; None for one that may stay as it is."""
    known = view.assignments.get(name)
    if known is None:
        return
    brokers = context.brokers
    least = min_isr(view, name, context.config)
    election = Election.UNCLEAN if may_be_unclean(view, name, context.config) else None
    states, adding = view.states.get(name, {}), known.value.adding
    for number, replicas in known.value.partitions.items():
        node = states.get(number)
        if node is None:
            state = initial_state(replicas, brokers, view.last_epochs.get(name, {}).get(number, NO_EPOCH) + 1)
            yield None if state is None else NewState(name, number, state)
        elif _needs_no_change(replicas, node, brokers) or _is_kept(name, replicas, node, context):
            yield None
        else:
            of_origin = effective_min_isr(least, len(replicas) - len(adding.get(number, ())))
            state = elect(replicas, leader_and_isr(node), node.node.mzxid, brokers, of_origin, election)
            yield None if state is None else _change(name, number, state, node, context)


def _needs_no_change(replicas: Sequence[int], node: Known[znode_data.StateNode], brokers: Brokers) -> bool:
    """Whether all rules leave the state as it is, because all of its ISR are there: the usual case, in a tenth of the
    time that the rules take."""
    live, stopping, written_by = brokers.live, brokers.stopping, node.node.mzxid
    if node.value.leader not in node.value.isr:
        return False
    for one in node.value.isr:
        if live.get(one, written_by) >= written_by or one in stopping or one not in replicas:
            return False
    return True


def _is_kept(name: str, replicas: Sequence[int], node: Known[znode_data.StateNode], context: ElectionContext) -> bool:
    if name == TRANSACTION_STATE_TOPIC:  # a coordinator's leader epoch fences markers that its former life has sent
        return False
    known = context.first_epochs
    return is_kept_by_new_controller(replicas, leader_and_isr(node), context.brokers, known, awaits=context.awaits)


def requested_change(
    view: ClusterView, name: str, number: int, context: ElectionContext, election: Election
) -> StateChange | None:
    """Makes the first replica of a partition its leader; or with UNCLEAN elects a live replica, in sync or not, for a
    partition without a leader. None if that is impossible, or the case already."""
    known, node = view.assignments.get(name), view.states.get(name, {}).get(number)
    if known is None or node is None or number not in known.value.partitions:
        return None
    least = _min_isr_of_origin(view, name, number, context.config)
    before = leader_and_isr(node)
    state = elect(known.value.partitions[number], before, node.node.mzxid, context.brokers, least, election)
    return None if state is None or state.leader == NO_LEADER else _change(name, number, state, node, context)


async def balancing_changes(view: ClusterView, context: ElectionContext) -> list[StateChange]:
    """The elections that return leadership to preferred replicas, if too much of it has moved elsewhere. A partition
    that is being reassigned is left out: its first replica may still be copying. The view may change meanwhile: a
    change that is based on an old state is refused.
    Source: kafka.controller.KafkaController.checkAndTriggerAutoLeaderRebalance."""
    leaders: dict[TopicPartition, tuple[Sequence[int], int]] = {}
    since_pause = 0
    for name in list(view.assignments):
        known, states = view.assignments.get(name), view.states.get(name, {})
        if known is None or name in view.deletions:
            continue
        moving = known.value.adding.keys() | known.value.removing.keys()
        for number, replicas in known.value.partitions.items():
            if number in states and number not in moving:
                leaders[name, number] = replicas, states[number].value.leader
        since_pause += len(known.value.partitions)
        if since_pause >= _BALANCED_PER_TURN:
            since_pause = 0
            await asyncio.sleep(0)
    due = imbalanced(leaders, context.brokers.live.keys(), context.config.leader_imbalance_per_broker_percentage)
    changes = []
    for at, key in enumerate(due, start=1):
        if (change := requested_change(view, *key, context, Election.PREFERRED)) is not None:
            changes.append(change)
        if at % _BALANCED_PER_TURN == 0:
            await asyncio.sleep(0)
    return changes


def imbalanced(
    leaders: Mapping[TopicPartition, tuple[Sequence[int], int]], live: Collection[int], percentage: int
) -> Iterator[TopicPartition]:
    """The partitions that are to be led by their preferred replicas again: those of each live broker of whose preferred
    partitions more than `percentage` are led by others (leader.imbalance.per.broker.percentage). `leaders` has the
    replicas and the leader of each partition; the election finds out whether the preferred one is in sync."""
    preferring: dict[int, list[TopicPartition]] = {}
    for key, (replicas, _) in leaders.items():
        if replicas:
            preferring.setdefault(replicas[0], []).append(key)
    for broker_id, keys in preferring.items():
        elsewhere = [key for key in keys if leaders[key][1] != broker_id]
        if broker_id in live and len(elsewhere) * 100 > percentage * len(keys):
            yield from elsewhere


def min_isr(view: ClusterView, name: str, config: BrokerConfig) -> int:
    """min.insync.replicas of a topic."""
    topic = view.topics.get(name)
    own = topic.config.get(MIN_ISR, "") if topic is not None else ""
    return int(own) if own.strip().isdecimal() else config.min_insync_replicas


def _min_isr_of_origin(view: ClusterView, name: str, number: int, config: BrokerConfig) -> int:
    """The effective min.insync.replicas. During a reassignment the number of replicas from before it counts.
    Source: kafka.cluster.OngoingReassignmentState.replicationFactor."""
    topic = view.assignments[name].value
    replica_count = len(topic.partitions[number]) - len(topic.adding.get(number, ()))
    return effective_min_isr(min_isr(view, name, config), replica_count)


def may_be_unclean(view: ClusterView, name: str, config: BrokerConfig) -> bool:
    """unclean.leader.election.enable of a topic."""
    topic = view.topics.get(name)
    own = topic.config.get(_UNCLEAN) if topic is not None else None
    return config.unclean_leader_election_enable if own is None else own.strip().lower() == "true"


def state_json(state: LeaderAndIsr, controller_epoch: int) -> bytes:
    node = znode_data.StateNode(
        state.leader, state.leader_epoch, state.isr, controller_epoch, state.recovery, state.elr
    )
    return znode_data.state_json(node)


def is_deletable(view: ClusterView, name: str, live: Collection[int]) -> bool:
    """Whether all brokers with a replica live, so that each of them deletes its logs."""
    known = view.assignments.get(name)
    return known is None or all(set(replicas) <= set(live) for replicas in known.value.partitions.values())


def pending_deletions(view: ClusterView, names: Collection[str], live: Collection[int]) -> PendingDeletions:
    """The counts of these topics. All replicas of an ineligible topic are still to be deleted; Kafka deletes those on
    live brokers before the others.
    Source: kafka.controller.KafkaController.updateMetrics."""
    known = [view.assignments[name].value for name in names if name in view.assignments]
    replicas = [one for topic in known for of_partition in topic.partitions.values() for one in of_partition]
    return PendingDeletions(
        len(names),
        sum([not is_deletable(view, name, live) for name in names]),
        len(replicas),
        sum([one not in live for one in replicas]),
    )


def pending_feature(data: bytes | None) -> bytes | None:
    """The new content of /feature instead of `data` (None: there is no such node), or None if it may stay. In ZooKeeper
    mode no feature is finalized; a cluster that has some keeps them, unless features were switched off there."""
    if data is None:
        return znode_data.feature_json({})
    try:
        enabled, features = znode_data.parse_feature(data)
        wanted = znode_data.feature_json(features if enabled else {})
        return None if json_object.parse(data) == json_object.parse(wanted) else wanted
    except ValueError:
        return None  # of a later version: not ours to repair


def leader_and_isr(node: Known[znode_data.StateNode]) -> LeaderAndIsr:
    value = node.value
    return LeaderAndIsr(value.leader, value.leader_epoch, value.isr, value.recovery, value.elr)


def state_write(
    name: str, number: int, state: LeaderAndIsr, node: Known[znode_data.StateNode], controller_epoch: int
) -> SetData:
    """Writes the next state of a partition in place of the one in `node`."""
    return SetData(znode_paths.state(name, number), state_json(state, controller_epoch), node.node.version)


def _change(
    name: str, number: int, state: LeaderAndIsr, node: Known[znode_data.StateNode], context: ElectionContext
) -> StateChange:
    write = state_write(name, number, state, node, context.controller_epoch)
    before = leader_and_isr(node)
    elects = state.leader_epoch != before.leader_epoch
    return StateChange(name, number, state, Step((write,)), elects, before.would_be_unclean(state.leader))


logger = logging.getLogger(__name__)

_SHOWN_MAX = 10  # partitions in the log


class ControllerStats:
    """Since the start of this broker, which may have been the controller several times. `elections` are partitions that
    got another leader, or the former one under a new epoch; `unclean_elections` those whose leader may lack committed
    records. `election_rounds` are the times that leaders were elected, one or thousands together, because brokers came
    or went: Kafka's LeaderElectionRateAndTimeMs. `balances` are the checks whether leadership has to return to
    preferred replicas: AutoLeaderBalanceRateAndTimeMs. `deletions` are the pending ones, while it is the controller.
    """

    def __init__(self) -> None:
        self.elections = 0
        self.unclean_elections = 0
        self.election_rounds = LatestValues()
        self.balances = LatestValues()
        self.deletions = PendingDeletions()

    def count(self, changes: Iterable[StateChange], refused: Iterable[Step]) -> None:
        """Count changes that were written, all but those whose steps were refused, and warn of leaders that may lack
        records."""
        not_written = set(refused)  # of thousands, when the view was stale: a list would take seconds
        written = [change for change in changes if change.step not in not_written]
        self.elections += sum(change.elects for change in written)
        unclean = [change for change in written if change.is_unclean]
        self.unclean_elections += len(unclean)
        for topic, partition, state, *_ in unclean[:_SHOWN_MAX]:
            logger.warning(
                "%s-%d is led by broker %d, which was not in sync: records may be lost", topic, partition, state.leader
            )
        if len(unclean) > _SHOWN_MAX:
            logger.warning("and so are %d other partitions", len(unclean) - _SHOWN_MAX)
