"""A broker or a cluster in some lines of text, for the report of a test that has failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.common.names import INTERNAL_TOPICS
from kafkalite.common.text import printable
from kafkalite.coordinator.group.group import SHARE
from kafkalite.testing.records.stored_record import READ_UNCOMMITTED, count_records

if TYPE_CHECKING:
    from kafkalite.server.broker_server import BrokerServer
    from kafkalite.testing.broker import Broker
    from kafkalite.testing.cluster import Cluster
    from kafkalite.testing.maintenance import GroupDescription

_LINES_MAX = 40
_REQUESTS_MAX = 20
_REPEATED = ("ApiVersions", "Fetch", "Heartbeat", "ConsumerGroupHeartbeat")


def broker_report(broker: Broker) -> str:
    """Its topics with the number of records, its groups with members, offsets and lag, the faults that fired, and
    the last requests."""
    state = _state(broker) if broker.is_running else ["a broker that is not running: it has crashed or ended"]
    faults = [f"fault {fired}" for fired in broker.faults.fired]
    return "\n".join(map(printable, [*state, *_some(faults), *_requests(broker)]))


def cluster_report(cluster: Cluster) -> str:
    """Its brokers, the leaders and in-sync replicas of its partitions, and the faults that fired. A paused broker is
    left out."""
    lines = [f"{broker} at {broker.bootstrap_servers}" for broker in cluster.brokers]
    live = next((broker for broker in cluster.brokers if broker.is_running and not broker.is_paused), None)
    topics = {} if live is None else live.call(lambda: dict(live.server.metadata.topics))
    partitions = [
        f"{name}-{index}: leader {_or_none(cluster.leader_of(name, index))}, ISR {sorted(cluster.isr(name, index))}"
        for name, topic in sorted(topics.items())
        if name not in INTERNAL_TOPICS
        for index in sorted(topic.partitions)
    ]
    fired = [f"broker {one.broker_id}: fault {fired}" for one in cluster.brokers for fired in one.faults.fired]
    return "\n".join([*lines, *_some(partitions or ["no topics"]), *_some(fired)])


def _or_none(leader: int | None) -> str:
    return "none" if leader is None else str(leader)


def _state(broker: Broker) -> list[str]:
    server = broker.server
    topics = broker.call(lambda: _topics(server))
    groups = [line for group in broker.groups.values() for line in _group(broker, group)]
    return [f"broker at {broker.bootstrap_servers}", *_some(topics or ["no topics"]), *_some(groups or ["no groups"])]


def _requests(broker: Broker) -> list[str]:
    """The last requests, if they are recorded, without those that clients repeat all the time."""
    recorded = list(broker.requests)
    last = [each for each in recorded if each.api not in _REPEATED or each.errors][-_REQUESTS_MAX:]
    return [f"the last {len(last)} of {len(recorded)} requests:", *map(repr, last)] if last else []


def _topics(server: BrokerServer) -> list[str]:
    lines = []
    for topic in sorted(server.replica_manager, key=lambda topic: topic.name):
        if topic.internal:
            continue
        counts = [count_records(topic.partitions[index], 0, READ_UNCOMMITTED) for index in sorted(topic.partitions)]
        settings = "".join(f" {name}={value}" for name, value in sorted(topic.overrides.items()))
        lines.append(f"topic {topic.name}: {' + '.join(map(str, counts))} records{settings}")
    return lines


def _group(broker: Broker, group: GroupDescription) -> list[str]:
    offsets = ", ".join(f"{topic}-{index}@{offset}" for (topic, index), offset in sorted(group.offsets.items()))
    epochs = f"generation {group.generation}"
    if group.target_epoch is not None:
        epochs = f"epoch {group.generation}, target epoch {group.target_epoch}"
    first = f"group {group.group_id}: {group.state}, {epochs}, lag {broker.lag(group.group_id)}"
    position = _share_positions(broker, group) if group.kind == SHARE else f"committed {offsets or 'nothing'}"
    lines = [f"{first}, {position}"]
    for member in group.members:
        assigned = ", ".join(f"{topic}-{index}" for topic, index in sorted(member.partitions))
        epoch = "" if member.epoch is None else f", epoch {member.epoch}"
        lines.append(f"  {member.client_id} at {member.client_host}{epoch}: {assigned or 'nothing'}")
    return lines


def _share_positions(broker: Broker, group: GroupDescription) -> str:
    """The start offsets of a share group, and how many records its members hold."""
    found = broker.share_group(group.group_id).describe().partitions
    starts = ", ".join(f"{topic}-{index}@{one.start_offset}" for (topic, index), one in found.items())
    held = sum(record.member_id is not None for one in found.values() for record in one.in_flight)
    return f"from {starts or 'nothing'}, {held} records acquired"


def _some(lines: list[str]) -> list[str]:
    more = len(lines) - _LINES_MAX
    return lines if more <= 0 else [*lines[:_LINES_MAX], f"and {more} lines more"]
