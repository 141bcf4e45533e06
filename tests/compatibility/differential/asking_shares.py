"""Short words for the requests of a share group's members."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kafkalite.protocol.messages import share_fetch, share_groups
from kafkalite.protocol.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tests.compatibility.differential.asking import SET
from tests.compatibility.differential.engine import Explained, Teller, tries

GAP, ACCEPT, RELEASE, REJECT, RENEW = 0, 1, 2, 3, 4
GROUP_RESOURCE = 32
HEARTBEAT = 1
Given = tuple[int, int, list[int]]
"""An acknowledgement: first and last offset, and types."""


def beat(group: str, member: str, epoch: int, *topics: str, **fields: Any) -> share_groups.ShareGroupHeartbeatRequest:
    """A heartbeat that says nothing but this."""
    names = list(topics) if topics or epoch == 0 else None
    return share_groups.ShareGroupHeartbeatRequest(
        **{"group_id": group, "member_id": member, "member_epoch": epoch, "subscribed_topic_names": names} | fields
    )


def joined(t: Teller, group: str, member: str, topic: str, **settings: object) -> int:
    """The epoch of a new member that has its partitions. The group begins at the earliest offset, and has `settings`
    such as `record_lock_duration_ms`."""
    values = {"auto_offset_reset": "earliest"} | settings
    configs = [
        IncrementalAlterableConfig(name=f"share.{name.replace('_', '.')}", config_operation=SET, value=str(value))
        for name, value in values.items()
    ]
    resource = IncrementalAlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=configs)
    answer = t.aside(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == 0, answer
    epoch, names = 0, [topic]
    for _ in tries(f"an assignment of {member}"):
        answer = t.aside(beat(group, member, epoch, *names), HEARTBEAT)
        if answer.error_code:
            continue
        epoch, names = answer.member_epoch, []
        if answer.assignment is not None and answer.assignment.topic_partitions:
            return epoch
    raise AssertionError("unreachable")


def fetch(t: Teller, group: str, member: str, epoch: int, topic: str | UUID, *given: Given, **fields: Any) -> Any:
    """Of partition 0, at once, with acknowledgements."""
    partition = fields.pop("partition", 0)
    row = share_fetch.ShareFetchPartition(partition_index=partition, acknowledgement_batches=_batches(given))
    topic_id = topic if isinstance(topic, UUID) else t.id_of(topic)
    rows = [share_fetch.ShareFetchTopic(topic_id=topic_id, partitions=[row])]
    return share_fetch.ShareFetchRequest(
        **{"group_id": group, "member_id": member, "share_session_epoch": epoch, "topics": rows}
        | {"max_wait_ms": 0, "min_bytes": 1, "max_records": 500, "batch_size": 500}
        | fields
    )


def acknowledge(t: Teller, group: str, member: str, epoch: int, topic: str | UUID, *given: Given, **fields: Any) -> Any:
    partition = fields.pop("partition", 0)
    row = share_fetch.ShareAcknowledgePartition(partition_index=partition, acknowledgement_batches=_batches(given))
    topic_id = topic if isinstance(topic, UUID) else t.id_of(topic)
    rows = [share_fetch.ShareAcknowledgeTopic(topic_id=topic_id, partitions=[row])]
    return share_fetch.ShareAcknowledgeRequest(
        **{"group_id": group, "member_id": member, "share_session_epoch": epoch, "topics": rows} | fields
    )


def _batches(given: tuple[Given, ...]) -> list[share_fetch.AcknowledgementBatch]:
    return [
        share_fetch.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
        for first, last, types in given
    ]


def has_records(answer: Any) -> bool:
    return any(each.acquired_records for topic in answer.responses for each in topic.partitions)


def first_fetch(
    t: Teller,
    label: str,
    group: str,
    member: str,
    topic: str,
    since: int = 0,
    but: Explained | None = None,
    **fields: Any,
) -> int:
    """Open a session, or go on with it from an epoch, and read until there are records. The session's next epoch."""
    for epoch in range(since, since + 200):
        answer = t.aside(fetch(t, group, member, epoch, topic, **fields), t.v)
        if has_records(answer):
            t.note(label, answer, t.v, but=but)
            return epoch + 1
    raise AssertionError("no records")
