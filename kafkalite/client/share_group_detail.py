"""One share group for people: its partitions with lag and counts, and the records in flight with their holders.

Start offsets and lags are those that Kafka's tools show. Records in flight, and counts of what became of others since
the leader of their partition began, are reported by kafkalite's brokers: unknown at an Apache Kafka, and where no
member reads.
Source: org.apache.kafka.tools.consumer.group.ShareGroupCommand (4.3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kafkalite.client.group_description import Group
from kafkalite.client.log_offsets import LogOffsets
from kafkalite.client.share_groups import InFlight, SharePosition
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition

_UNKNOWN = SharePosition(None, None)


class SharePartitionRow(NamedTuple):
    """One partition. `readers` is the number of members that it is assigned to; the others are numbers of records:
    held by members, given back, accepted, not to come again without that, and whose lock was over."""

    topic: str
    partition: int
    start_offset: int | None
    end_offset: int | None
    lag: int | None
    acquired: int | None
    available: int | None
    acknowledged: int | None
    archived: int | None
    lock_timeouts: int | None
    readers: int


class ShareRunRow(NamedTuple):
    """Consecutive offsets that are alike; `last_offset` is inclusive. `state` is acquired or available; without a
    holder the last four are None. Times are dates in milliseconds."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    state: str
    delivery_count: int
    member_id: str | None
    client_id: str | None
    host: str | None
    acquired_ms: int | None
    locked_until_ms: int | None


def partition_rows(
    group: Group,
    positions: Mapping[TopicPartition, SharePosition],
    offsets_of: LogOffsets,
    reported: InFlight | None,
) -> tuple[list[SharePartitionRow], Mapping[TopicPartition, str]]:
    """A row for each partition that the group has begun or a member is assigned; and why ends are not known."""
    readers = Counter(key for member in group.members for key in member.partitions)
    keys = sorted({*positions, *readers})
    ends, faults = offsets_of.known_ends(keys)
    rows = []
    for key in keys:
        start_offset, lag = positions.get(key, _UNKNOWN)
        report = {} if reported is None else reported.partitions.get(key, {})
        rows.append(
            SharePartitionRow(
                *key,
                start_offset,
                ends.get(key),
                lag,
                report.get("acquired"),
                report.get("available"),
                report.get("total_acknowledged"),
                report.get("total_archived"),
                report.get("lock_timeouts"),
                readers[key],
            )
        )
    return rows, faults


def run_rows(group: Group, reported: InFlight) -> list[ShareRunRow]:
    """The records in flight that are not done, by partition and offset."""
    members = {member.member_id: member for member in group.members}
    rows = []
    for key, partition in sorted(reported.partitions.items()):
        for run in partition["runs"]:
            member = members.get(run["member_id"])
            rows.append(
                ShareRunRow(
                    *key,
                    run["first_offset"],
                    run["last_offset"],
                    run["state"],
                    run["delivery_count"],
                    run["member_id"],
                    None if member is None else member.client_id,
                    None if member is None else member.host,
                    run["acquired_ms"],
                    run["locked_until_ms"],
                )
            )
    return rows
