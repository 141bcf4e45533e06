"""Groups of Kafka Streams over a connection: joining, internal topics, descriptions, and refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.messages import configs, features, group_offsets, groups, topics
from kafkalite.protocol.messages import streams_groups as wire
from kafkalite.server.broker import Broker
from tests.unit.api.conftest import Asker

SETTINGS = {"group_streams_initial_rebalance_delay_ms": 0, "group_streams_assignment_interval_ms": 0}
GROUP_RESOURCE = 32
CHANGELOG = wire.StreamsTopicInfo(
    name="app-store-changelog", topic_configs=[wire.StreamsKeyValue(key="cleanup.policy", value="compact")]
)
REPARTITION = wire.StreamsTopicInfo(name="app-by-word-repartition")
TOPOLOGY = wire.StreamsTopology(
    subtopologies=[
        wire.StreamsSubtopology(
            subtopology_id="0", source_topics=["lines"], repartition_sink_topics=["app-by-word-repartition"]
        ),
        wire.StreamsSubtopology(
            subtopology_id="1", repartition_source_topics=[REPARTITION], state_changelog_topics=[CHANGELOG]
        ),
    ]
)


class Member:
    """One member of the group `app`, as Kafka Streams behaves."""

    def __init__(self, asker: Asker, member_id: str = "m") -> None:
        self.asker = asker
        self.member_id = member_id
        self.epoch = 0
        self.endpoint_epoch = 0

    async def beat(self, **fields: Any) -> Any:
        if self.epoch == 0:
            empty: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
            fields = {
                "topology": TOPOLOGY, "rebalance_timeout_ms": 60_000, "process_id": self.member_id, "client_tags": [],
            } | empty | fields  # fmt: skip
        request = wire.StreamsGroupHeartbeatRequest(
            group_id="app",
            member_id=self.member_id,
            member_epoch=fields.pop("member_epoch", self.epoch),
            endpoint_information_epoch=self.endpoint_epoch,
            **fields,
        )
        answer = await self.asker.ask(request, 0)
        if not answer.error_code:
            self.epoch, self.endpoint_epoch = answer.member_epoch, answer.endpoint_information_epoch
        return answer

    async def tasks(self) -> dict[str, list[int]]:
        """The active tasks of the member once it has some."""
        async with asyncio.timeout(20):
            while True:
                answer = await self.beat()
                assert answer.error_code == 0, answer.error_message
                if answer.active_tasks:
                    return {row.subtopology_id: list(row.partitions) for row in answer.active_tasks}


def statuses(answer: Any) -> list[tuple[int, str]]:
    return [(each.status_code, each.status_detail) for each in answer.status]


async def begin(broker: Broker, partitions: int = 2) -> Any:
    running: Any = broker._running
    await running.coordinators.offsets_topic.ensure()
    await running.topic_admin.create("lines", partitions, {})
    return running


async def describe(asker: Asker, group_id: str = "app", **fields: Any) -> Any:
    answer = await asker.ask(wire.StreamsGroupDescribeRequest(group_ids=[group_id], **fields), 0)
    return answer.groups[0]


def test_internal_topics_are_created_and_tasks_follow(tell: Callable[..., None]) -> None:
    async def story(asker: Asker, broker: Broker) -> None:
        running = await begin(broker)
        member = Member(asker)
        first = await member.beat()
        missing = "Internal topics are missing: "
        assert [code for code, _ in statuses(first)] == [3] and statuses(first)[0][1].startswith(missing)
        assert first.active_tasks == first.standby_tasks == first.warmup_tasks == []
        assert (await describe(asker)).group_state == "NotReady"
        assert await member.tasks() == {"0": [0, 1], "1": [0, 1]}
        made = running.metadata.topics
        assert len(made["app-by-word-repartition"].partitions) == len(made["app-store-changelog"].partitions) == 2
        assert made["app-store-changelog"].config == {"cleanup.policy": "compact"}
        quiet = await member.beat()
        assert (quiet.status, quiet.active_tasks, quiet.partitions_by_user_endpoint) == ([], None, None)
        assert quiet.heartbeat_interval_ms == 5_000 and quiet.member_id == "m"

    tell(story, **SETTINGS)


def test_a_creation_that_failed_is_shown(tell: Callable[..., None]) -> None:
    async def story(asker: Asker, broker: Broker) -> None:
        running = await begin(broker)
        member = Member(asker)
        wide = wire.StreamsTopicInfo(name="app-store-changelog", replication_factor=7)
        other = TOPOLOGY.subtopologies[1]
        stateful = wire.StreamsSubtopology(
            subtopology_id="1",
            repartition_source_topics=other.repartition_source_topics,
            state_changelog_topics=[wide],
        )
        topology = wire.StreamsTopology(subtopologies=[TOPOLOGY.subtopologies[0], stateful])
        await member.beat(topology=topology)
        await running.apis.close()
        answer = await member.beat()
        [(code, detail)] = statuses(answer)
        assert code == 3
        assert detail == (
            "Internal topics are missing: app-store-changelog; Creation failed: app-store-changelog (Replication "
            "factor: 7 larger than available brokers: 1.)."
        )

    tell(story, **SETTINGS)


def test_a_group_is_described_and_listed(tell: Callable[..., None]) -> None:
    async def story(asker: Asker, broker: Broker) -> None:
        running = await begin(broker)
        member = Member(asker)
        endpoint = wire.StreamsEndpoint(host="host", port=65_535)
        tags = [wire.StreamsKeyValue(key="zone", value="a")]
        first = await member.beat(user_endpoint=endpoint, client_tags=tags)
        assert first.partitions_by_user_endpoint[0].user_endpoint.port == 65_535
        await running.apis.close()  # both topics are there: one rebalance
        await member.tasks()
        found = await describe(asker, include_authorized_operations=True)
        assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", 3, 3)
        [one, two] = found.topology.subtopologies
        assert (one.source_topics, one.repartition_sink_topics) == (["lines"], ["app-by-word-repartition"])
        assert (two.state_changelog_topics[0].partitions, two.repartition_source_topics[0].partitions) == (2, 2)
        assert two.state_changelog_topics[0].topic_configs[0].value == "compact"
        [row] = found.members
        assert (row.member_id, row.member_epoch, row.process_id, row.topology_epoch) == ("m", 3, "m", 0)
        assert (row.user_endpoint.host, row.client_tags[0].key, row.is_classic) == ("host", "zone", False)
        assert [(each.subtopology_id, each.partitions) for each in row.assignment.active_tasks] == [
            ("0", [0, 1]),
            ("1", [0, 1]),
        ]
        assert len(row.target_assignment.active_tasks) == 2 and found.authorized_operations > 0
        listed = await asker.ask(groups.ListGroupsRequest(types_filter=["Streams"], states_filter=["stable"]), 5)
        assert [(each.group_id, each.protocol_type, each.group_state, each.group_type) for each in listed.groups] == [
            ("app", "streams", "Stable", "streams")
        ]
        older = await asker.ask(groups.DescribeGroupsRequest(groups=["app"]), 6)
        assert older.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert older.groups[0].error_message == "Group app is not a classic group."
        for group_id, code, message in (
            ("", ErrorCode.INVALID_GROUP_ID, None),
            ("none", ErrorCode.GROUP_ID_NOT_FOUND, "Group none not found."),
        ):
            refused = await describe(asker, group_id)
            assert (refused.error_code, refused.error_message) == (code, message)

    tell(story, **SETTINGS)


def test_topics_of_kafka_and_invalid_names_are_refused(tell: Callable[..., None]) -> None:
    async def story(asker: Asker, broker: Broker) -> None:
        await begin(broker)
        for name, message in (
            (
                "__consumer_offsets",
                "Use of Kafka internal topics __consumer_offsets in a Kafka Streams topology is prohibited.",
            ),
            ("a b", "Topic names a b are not valid topic names."),
        ):
            subtopology = wire.StreamsSubtopology(subtopology_id="0", source_topics=[name])
            answer = await Member(asker).beat(topology=wire.StreamsTopology(subtopologies=[subtopology]))
            assert (answer.error_code, answer.error_message) == (ErrorCode.STREAMS_INVALID_TOPOLOGY, message)

    tell(story, **SETTINGS)


def test_the_protocol_can_be_switched_off(tell: Callable[..., None]) -> None:
    async def story(asker: Asker, broker: Broker) -> None:
        await begin(broker)
        update = features.FeatureUpdateKey(feature="streams.version", max_version_level=0, upgrade_type=2)
        answer = await asker.ask(features.UpdateFeaturesRequest(feature_updates=[update]), 1)
        assert answer.error_code == 0
        assert (await Member(asker).beat()).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (await describe(asker)).error_code == ErrorCode.UNSUPPORTED_VERSION

    tell(story, **SETTINGS)


def test_the_protocol_may_be_missing_from_the_settings(tell: Callable[..., None]) -> None:
    async def story(asker: Asker, broker: Broker) -> None:
        assert (await Member(asker).beat()).error_code == ErrorCode.UNSUPPORTED_VERSION

    tell(story, group_coordinator_rebalance_protocols=("classic", "consumer"))


def test_a_group_has_settings_of_its_own(tell: Callable[..., None]) -> None:
    async def story(asker: Asker, broker: Broker) -> None:
        running = await begin(broker, 1)
        setting = configs.IncrementalAlterableConfig(
            name="streams.heartbeat.interval.ms", config_operation=0, value="6000"
        )
        copies = configs.IncrementalAlterableConfig(name="streams.num.standby.replicas", config_operation=0, value="1")
        resource = configs.IncrementalAlterConfigsResource(
            resource_type=GROUP_RESOURCE, resource_name="app", configs=[setting, copies]
        )
        answer = await asker.ask(configs.IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert answer.responses[0].error_code == 0
        one, two = Member(asker, "one"), Member(asker, "two")
        assert (await one.beat()).heartbeat_interval_ms == 6_000
        await running.apis.close()
        await two.beat()
        async with asyncio.timeout(20):
            while not (row := (await describe(asker)).members[1]).assignment.standby_tasks:
                for member in (one, two):
                    await member.beat(active_tasks=[], standby_tasks=[], warmup_tasks=[])
        assert [each.subtopology_id for each in row.assignment.standby_tasks] == ["1"]  # the one with state

    tell(story, **SETTINGS)


def test_offsets_are_committed_by_epoch(tell: Callable[..., None]) -> None:
    async def story(asker: Asker, broker: Broker) -> None:
        await begin(broker)
        member = Member(asker)
        await member.tasks()

        async def commit(epoch: int, version: int = 9) -> int:
            row = group_offsets.OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
            request = group_offsets.OffsetCommitRequest(
                group_id="app",
                member_id="m",
                generation_id_or_member_epoch=epoch,
                topics=[group_offsets.OffsetCommitRequestTopic(name="lines", partitions=[row])],
            )
            return int((await asker.ask(request, version)).topics[0].partitions[0].error_code)

        assert await commit(member.epoch) == 0
        assert await commit(member.epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
        assert await commit(member.epoch, 8) == ErrorCode.UNSUPPORTED_VERSION
        delete = group_offsets.OffsetDeleteRequest(
            group_id="app",
            topics=[
                group_offsets.OffsetDeleteRequestTopic(
                    name="lines", partitions=[group_offsets.OffsetDeleteRequestPartition(partition_index=0)]
                )
            ],
        )
        answer = await asker.ask(delete, 0)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        await member.beat(member_epoch=-1)
        answer = await asker.ask(delete, 0)
        assert answer.topics[0].partitions[0].error_code == 0

    tell(story, **SETTINGS)


def test_a_topic_that_comes_makes_the_group_ready(tell: Callable[..., None]) -> None:
    async def story(asker: Asker, broker: Broker) -> None:
        running: Any = broker._running
        await running.coordinators.offsets_topic.ensure()
        member = Member(asker)
        assert statuses(await member.beat()) == [(1, "Source topics lines are missing.")]
        request = topics.CreateTopicsRequest(
            topics=[topics.CreatableTopic(name="lines", num_partitions=3, replication_factor=1)]
        )
        assert (await asker.ask(request, 7)).topics[0].error_code == 0
        assert await member.tasks() == {"0": [0, 1, 2], "1": [0, 1, 2]}

    tell(story, **SETTINGS)
