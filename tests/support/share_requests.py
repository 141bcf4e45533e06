"""A member of a share group whose requests a test sends one by one, over one connection."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kafkalite.client.blocking_client import BlockingClient
from kafkalite.common.errors import COORDINATOR_MOVES
from kafkalite.protocol.messages import configs, share_fetch, share_groups
from kafkalite.protocol.messages.groups import FindCoordinatorRequest
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.wait import DEADLINE_S, until

GROUP_RESOURCE = 32
ACCEPT, RELEASE, REJECT = 1, 2, 3
_HEARTBEAT_VERSION = 1
_VERSION = 2

Acknowledged = tuple[int, int, list[int]]
"""First offset, last offset, types."""


def begin_at_earliest(bootstrap: str, group_id: str, **settings: str) -> None:
    """Sets where the group begins, and what else is given."""
    given = {"share_auto_offset_reset": "earliest", **settings}
    rows = [
        configs.IncrementalAlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
        for name, value in given.items()
    ]
    resource = configs.IncrementalAlterConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name=group_id, configs=rows
    )
    with BlockingClient(bootstrap, DEADLINE_S) as client:
        answer = client.ask(configs.IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == 0, answer


class ShareRequester:
    """One member of a group, which reads partition 0 of one topic. All requests go to one broker."""

    def __init__(self, bootstrap: str, group_id: str, topic: str, member_id: str = "m") -> None:
        self.client = BlockingClient(bootstrap, DEADLINE_S)
        self.client.ask(FindCoordinatorRequest(key=group_id), 3)
        self.member_id = member_id
        self.epoch = 0
        self.session_epoch = 0
        self._group_id = group_id
        self._topic = topic
        self._topic_id = self._id_of(topic)

    def _id_of(self, topic: str) -> UUID:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        found: UUID = self.client.ask(request, 12).topics[0].topic_id
        return found

    def beat(self) -> Any:
        request = share_groups.ShareGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            subscribed_topic_names=None if self.epoch else [self._topic],
        )
        answer = self.client.ask(request, _HEARTBEAT_VERSION)
        if not answer.error_code:
            self.epoch = answer.member_epoch
        return answer

    def leave(self) -> Any:
        """The answer to a heartbeat that leaves the group."""
        self.epoch = -1
        return self.beat()

    def join(self) -> ShareRequester:
        """Until it has a partition."""

        def is_assigned() -> bool:
            answer = self.beat()
            if answer.error_code in COORDINATOR_MOVES:
                return False
            assert not answer.error_code, answer
            return answer.assignment is not None and bool(answer.assignment.topic_partitions)

        until(is_assigned, "an assignment")
        return self

    def fetch(self, *acknowledged: Acknowledged, **fields: Any) -> Any:
        """The answer to a ShareFetch."""
        self.send_fetch(*acknowledged, **fields)
        return self.receive_fetch()

    def send_fetch(self, *acknowledged: Acknowledged, **fields: Any) -> None:
        """A ShareFetch whose answer `receive_fetch` waits for."""
        fields = {"max_wait_ms": 0, "min_bytes": 1, "max_records": 500, "batch_size": 1} | fields
        row = share_fetch.ShareFetchPartition(partition_index=0, acknowledgement_batches=_batches(acknowledged))
        topics = [share_fetch.ShareFetchTopic(topic_id=self._topic_id, partitions=[row])]
        if self.session_epoch and not acknowledged:
            topics = []
        request = share_fetch.ShareFetchRequest(
            group_id=self._group_id,
            member_id=self.member_id,
            share_session_epoch=self.session_epoch,
            topics=topics,
            **fields,
        )
        self.client.send(request, _VERSION)

    def receive_fetch(self) -> Any:
        answer = self.client.receive(share_fetch.ShareFetchRequest, _VERSION)
        self.session_epoch += not answer.error_code
        return answer

    def acknowledge(self, *acknowledged: Acknowledged) -> Any:
        """The answer to a ShareAcknowledge."""
        row = share_fetch.ShareAcknowledgePartition(partition_index=0, acknowledgement_batches=_batches(acknowledged))
        request = share_fetch.ShareAcknowledgeRequest(
            group_id=self._group_id,
            member_id=self.member_id,
            share_session_epoch=self.session_epoch,
            topics=[share_fetch.ShareAcknowledgeTopic(topic_id=self._topic_id, partitions=[row])],
        )
        answer = self.client.ask(request, _VERSION)
        self.session_epoch += not answer.error_code
        return answer

    def close(self) -> None:
        """Drops the connection, and with it the session."""
        self.client.close()


def _batches(acknowledged: tuple[Acknowledged, ...]) -> list[share_fetch.AcknowledgementBatch]:
    return [
        share_fetch.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
        for first, last, types in acknowledged
    ]


def the_row(answer: Any) -> Any:
    """The only partition of an answer that has no error as a whole."""
    assert not answer.error_code, answer
    [topic] = answer.responses
    [row] = topic.partitions
    return row


def acquired(answer: Any) -> list[tuple[int, int, int]]:
    """First and last offset and delivery count of each range that was acquired; none without a row."""
    assert not answer.error_code, answer
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in answer.responses
        for row in topic.partitions
        for each in row.acquired_records
    ]
