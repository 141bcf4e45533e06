"""Members of the consumer protocol (KIP-848) and of share groups (KIP-932) whose heartbeats a test sends one by one."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kafkalite.client.cluster_client import GROUP_KEY, ClusterClient, Retries
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from kafkalite.protocol.messages.share_groups import ShareGroupHeartbeatRequest
from tests.support.wait import DEADLINE_S

_VERSION = 1
_REBALANCE_TIMEOUT_MS = 60_000


class ConsumerMember:
    """One member. `owned` is what it was assigned last, by topic id."""

    def __init__(self, bootstrap: str, group_id: str, member_id: str, **subscription: Any) -> None:
        """`subscription`: further fields of the first heartbeat, such as subscribed_topic_names, instance_id."""
        self.member_id = member_id
        self.epoch = 0
        self.owned: dict[UUID, list[int]] = {}
        self._group_id = group_id
        self._instance_id = subscription.pop("instance_id", None)
        self._cluster = ClusterClient(bootstrap, DEADLINE_S)
        subscription.setdefault("subscribed_topic_names", [])
        self._send(rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS, topic_partitions=[], **subscription)

    def beat(self) -> None:
        """A heartbeat with nothing to tell: a new assignment comes, and no revocation is confirmed."""
        self._send()

    def confirm(self) -> None:
        """A heartbeat that owns just what was assigned last: revocations are confirmed."""
        owned = [HeartbeatTopicPartitions(topic_id=each, partitions=indexes) for each, indexes in self.owned.items()]
        self._send(topic_partitions=owned)

    def leave(self) -> None:
        self.epoch = -1
        self._send()
        self.close()

    def reconnect(self, bootstrap: str) -> None:
        """The same member over new connections, since its broker was another process."""
        self._cluster.close()
        self._cluster = ClusterClient(bootstrap, DEADLINE_S)

    def close(self) -> None:
        self._cluster.close()

    def _send(self, **fields: Any) -> None:
        request = self._request(**fields)
        answer = Retries(DEADLINE_S).ask_coordinator(lambda: self._ask(request))
        assert not answer.error_code, (answer.error_code, answer.error_message)
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}

    def _request(self, **fields: Any) -> Message:
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self._instance_id,
            **fields,
        )

    def _ask(self, request: Message) -> Any:
        error_code, coordinator = self._cluster.find_coordinator(self._group_id, GROUP_KEY)
        if error_code:
            return ConsumerGroupHeartbeatResponse(error_code=error_code)
        return self._cluster.client(coordinator).ask(request, _VERSION)


class ShareGroupMember(ConsumerMember):
    """One member of a share group: it confirms nothing."""

    def _request(self, rebalance_timeout_ms: int = 0, topic_partitions: Any = None, **fields: Any) -> Message:
        return ShareGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self.member_id, member_epoch=self.epoch, **fields
        )
