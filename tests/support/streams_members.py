"""Members of groups of Kafka Streams (KIP-1071) whose heartbeats a test sends one by one."""

from __future__ import annotations

from typing import Any

from kafkalite.client.cluster_client import GROUP_KEY, ClusterClient, Retries
from kafkalite.common.errors import ErrorCode, Unanswered
from kafkalite.protocol.messages.streams_groups import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsKeyValue,
    StreamsSubtopology,
    StreamsTaskIds,
    StreamsTopicInfo,
    StreamsTopology,
)
from tests.support.wait import DEADLINE_S, until

_VERSION = 0
_REBALANCE_TIMEOUT_MS = 60_000
PROMPT: dict[str, Any] = {
    "group_streams_initial_rebalance_delay_ms": 0,
    "group_streams_assignment_interval_ms": 0,
}
"""Settings of a broker whose groups assign at once."""


def counting_topology(group_id: str, topic: str) -> StreamsTopology:
    """Reads `topic`, and counts by the keys of a repartition topic. Internal topics are named as Kafka Streams does."""
    by_key = f"{group_id}-by-key-repartition"
    compacted = [StreamsKeyValue(key="cleanup.policy", value="compact")]
    counts = StreamsTopicInfo(name=f"{group_id}-counts-changelog", topic_configs=compacted)
    return StreamsTopology(
        subtopologies=[
            StreamsSubtopology(subtopology_id="0", source_topics=[topic], repartition_sink_topics=[by_key]),
            StreamsSubtopology(
                subtopology_id="1",
                repartition_source_topics=[StreamsTopicInfo(name=by_key)],
                state_changelog_topics=[counts],
            ),
        ]
    )


class StreamsMember:
    """One member in a process of its own. `active` and `standby` are what it was assigned last, by subtopology."""

    def __init__(self, bootstrap: str, group_id: str, member_id: str, topology: StreamsTopology) -> None:
        self.member_id = member_id
        self.epoch = 0
        self.active: dict[str, list[int]] = {}
        self.standby: dict[str, list[int]] = {}
        self.statuses: list[int] = []
        self._group_id = group_id
        self._bootstrap = bootstrap
        self._cluster = ClusterClient(bootstrap, DEADLINE_S)
        self._send(
            rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS,
            topology=topology,
            process_id=f"process-of-{member_id}",
            client_tags=[],
            **self._owned(),
        )

    def beat(self) -> None:
        """A heartbeat with nothing to tell: new tasks come, and no revocation is confirmed."""
        self._send()

    def confirm(self) -> None:
        """A heartbeat that owns just what was assigned last: revocations are confirmed."""
        self._send(**self._owned())

    def await_tasks(self) -> dict[str, list[int]]:
        """Sends heartbeats until it has active tasks."""

        def has_tasks() -> bool:
            self.beat()
            return bool(self.active)

        until(has_tasks, "tasks")
        return self.active

    def leave(self) -> None:
        self.epoch = -1
        self._send()
        self.close()

    def close(self) -> None:
        self._cluster.close()

    def _owned(self) -> dict[str, list[StreamsTaskIds]]:
        kinds = {"active_tasks": self.active, "standby_tasks": self.standby, "warmup_tasks": {}}
        return {
            kind: [StreamsTaskIds(subtopology_id=key, partitions=some) for key, some in tasks.items()]
            for kind, tasks in kinds.items()
        }

    def _send(self, **fields: Any) -> None:
        """Sends a heartbeat until it is answered. After a lost answer it says what it has, as Kafka Streams does, and a
        member that has left may be unknown."""
        answer, is_first = self._answer(fields), True
        while answer is None:
            is_first = False
            self._cluster.close()
            self._cluster = ClusterClient(self._bootstrap, DEADLINE_S)
            answer = self._answer(fields if self.epoch <= 0 else self._owned() | fields)
        if self.epoch < 0 and not is_first and answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            return
        assert not answer.error_code, (answer.error_code, answer.error_message)
        assert answer.member_epoch >= self.epoch, "an epoch went back"
        self.epoch = answer.member_epoch
        self.statuses = [each.status_code for each in answer.status or ()]
        if answer.active_tasks is not None:
            self.active = {each.subtopology_id: each.partitions for each in answer.active_tasks}
            self.standby = {each.subtopology_id: each.partitions for each in answer.standby_tasks or ()}

    def _answer(self, fields: dict[str, Any]) -> StreamsGroupHeartbeatResponse | None:
        """None if the connection was lost."""
        request = StreamsGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self.member_id, member_epoch=self.epoch, **fields
        )
        try:
            answer: StreamsGroupHeartbeatResponse = Retries(DEADLINE_S).ask_coordinator(lambda: self._ask(request))
        except Unanswered:
            return None
        return answer

    def _ask(self, request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse:
        error_code, coordinator = self._cluster.find_coordinator(self._group_id, GROUP_KEY)
        if error_code:
            return StreamsGroupHeartbeatResponse(error_code=error_code)
        answer: StreamsGroupHeartbeatResponse = self._cluster.client(coordinator).ask(request, _VERSION)
        return answer
