"""The part of an answer that is recorded: all fields of its version but those in which two brokers must differ.

Masked: ids that a broker draws (topic, cluster, member, producer, session: the first seen is `<member 1>`, so that the
same id is the same mask), times of the broker's clock, hosts and ports, its directory and the room on its disk, and the
wording of messages and documentation (whether there is any is noted). Arrays whose order is that of a hash table at
Kafka are noted by key. Of a new topic's settings those that are not the default are noted: the stories of
DescribeConfigs look at all of them.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator
from typing import Any

from kafkalite.common.errors import Malformed
from kafkalite.common.names import TRANSACTION_STATE_TOPIC
from kafkalite.config.settings import ConfigSource
from kafkalite.protocol.apis import APIS
from kafkalite.protocol.codec.schema import RECORDS, Message
from kafkalite.record.batch import MAGIC, parse_header
from kafkalite.record.message_set import HEAD_BYTES, entry_header, read_messages
from kafkalite.record.record import read_records

# Answers that name topics by their ids, from this version on.
BY_ID_SINCE = {
    ("FetchResponse", "responses"): 13,
    ("ProduceResponse", "responses"): 13,
    ("OffsetCommitResponse", "topics"): 10,
    ("OffsetFetchResponseGroup", "topics"): 10,
}
STEM = "d-"  # begins every name that a story makes up
NEAR_NOW_MS = 86_400_000
_DRAWN_MEMBER = re.compile(r"[0-9A-Za-z_-]{22}")  # of a consumer group
_DRAWN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

# Arrays in the order of a hash table, or of no meaning, and the field that tells their elements apart.
KEYED = {
    ("ApiVersionsResponse", "api_keys"): "api_key",
    ("ApiVersionsResponse", "supported_features"): "name",
    ("ApiVersionsResponse", "finalized_features"): "name",
    ("MetadataResponse", "topics"): "name",
    ("MetadataResponseTopic", "partitions"): "partition_index",
    ("DescribeConfigsResult", "configs"): "name",
    ("DescribeConfigsResponse", "results"): "resource_name",
    ("AlterConfigsResponse", "responses"): "resource_name",
    ("IncrementalAlterConfigsResponse", "responses"): "resource_name",
    ("CreatableTopicResult", "configs"): "name",
    ("CreateTopicsResponse", "topics"): "name",
    ("DeleteTopicsResponse", "responses"): "name",
    ("CreatePartitionsResponse", "results"): "name",
    ("ProduceResponse", "responses"): "name",
    ("TopicProduceResponse", "partition_responses"): "index",
    ("ListOffsetsResponse", "topics"): "name",
    ("ListOffsetsTopicResponse", "partitions"): "partition_index",
    ("OffsetForLeaderEpochResponse", "topics"): "topic",
    ("OffsetForLeaderTopicResult", "partitions"): "partition",
    ("DeleteRecordsResponse", "topics"): "name",
    ("DeleteRecordsTopicResult", "partitions"): "partition_index",
    ("OffsetCommitResponse", "topics"): "name",
    ("OffsetCommitResponseTopic", "partitions"): "partition_index",
    ("OffsetFetchResponse", "topics"): "name",
    ("OffsetFetchResponseTopic", "partitions"): "partition_index",
    ("OffsetFetchResponseGroup", "topics"): "name",
    ("OffsetDeleteResponse", "topics"): "name",
    ("OffsetDeleteResponseTopic", "partitions"): "partition_index",
    ("DescribeLogDirsResult", "topics"): "name",
    ("DescribeLogDirsTopic", "partitions"): "partition_index",
    ("ElectLeadersResponse", "replica_election_results"): "topic",
    ("ReplicaElectionResult", "partition_result"): "partition_id",
    ("AlterReplicaLogDirsResponse", "results"): "topic_name",
    ("AlterReplicaLogDirTopicResult", "partitions"): "partition_index",
    ("ListGroupsResponse", "groups"): "group_id",
    ("DeleteGroupsResponse", "results"): "group_id",
    ("DescribeGroupsResponse", "groups"): "group_id",
    ("JoinGroupResponse", "members"): "member_id",
    ("DescribedGroup", "members"): "member_id",
    ("FetchResponse", "responses"): "topic",
    ("FetchableTopicResponse", "partitions"): "partition_index",
    ("AddPartitionsToTxnResponse", "results_by_transaction"): "transactional_id",
    ("AddPartitionsToTxnResponse", "results_by_topic_v3_and_below"): "name",
    ("AddPartitionsToTxnResult", "topic_results"): "name",
    ("AddPartitionsToTxnTopicResult", "results_by_partition"): "partition_index",
    ("WriteTxnMarkersResponse", "markers"): "producer_id",
    ("WritableTxnMarkerResult", "topics"): "name",
    ("WritableTxnMarkerTopicResult", "partitions"): "partition_index",
    ("TxnOffsetCommitResponse", "topics"): "name",
    ("TxnOffsetCommitResponseTopic", "partitions"): "partition_index",
    ("DescribedTransaction", "topics"): "topic",
    ("ListTransactionsResponse", "transaction_states"): "transactional_id",
    ("DescribeProducersResponse", "topics"): "name",
    ("DescribeProducersTopic", "partitions"): "partition_index",
    ("DescribeProducersPartition", "active_producers"): "producer_id",
    ("HeartbeatAssignment", "topic_partitions"): "topic_id",
    ("ConsumerGroupDescribeResponse", "groups"): "group_id",
    ("DescribedConsumerGroup", "members"): "member_id",
    ("DescribedAssignment", "topic_partitions"): "topic_name",
    ("ListConfigResourcesResponse", "config_resources"): "resource_name",
    ("StreamsGroupDescribeResponse", "groups"): "group_id",
    ("DescribedStreamsGroup", "members"): "member_id",
}
# The same where no one field tells them apart.
SORTED = {
    ("DescribeAclsResponse", "resources"),
    ("DescribeAclsResource", "acls"),
    ("DeleteAclsFilterResult", "matching_acls"),
    ("DescribeClientQuotasResponse", "entries"),
    ("DescribedQuotas", "entity"),
    ("DescribedQuotas", "values"),
    ("AlterClientQuotasResponse", "entries"),
    ("AlterClientQuotasResult", "entity"),
    ("StreamsGroupHeartbeatResponse", "active_tasks"),
    ("StreamsGroupHeartbeatResponse", "standby_tasks"),
    ("StreamsGroupHeartbeatResponse", "partitions_by_user_endpoint"),
    ("EndpointToPartitions", "active_partitions"),
    ("EndpointToPartitions", "standby_partitions"),
    ("StreamsTopicInfo", "topic_configs"),
    ("DescribedStreamsGroupMember", "client_tags"),
}
# Arrays of plain values in the order of a hash table.
UNORDERED = {
    ("DescribedTransactionTopic", "partitions"),
    ("ListTransactionsResponse", "unknown_state_filters"),
    ("HeartbeatTopicPartitions", "partitions"),
    ("DescribedTopicPartitions", "partitions"),
    ("DescribedConsumerGroupMember", "subscribed_topic_names"),
    ("GetTelemetrySubscriptionsResponse", "requested_metrics"),
    ("StreamsTopicPartitions", "partitions"),
}
# Lists of all there is: of them only what belongs to the story is noted.
ALL_THERE_IS = {
    ("MetadataResponse", "topics"): "name",
    ("ListGroupsResponse", "groups"): "group_id",
    ("ListTransactionsResponse", "transaction_states"): "transactional_id",
    ("ElectLeadersResponse", "replica_election_results"): "topic",
    ("DescribeTopicPartitionsResponse", "topics"): "name",
    ("ListConfigResourcesResponse", "config_resources"): "resource_name",
}
# Settings of a broker with the addresses and directories of one run.
PLACES = {"listeners", "log.dirs", "zookeeper.connect"}
_TEXTS = {"error_message", "documentation", "batch_index_error_message"}


class Masks:
    """The masks of one story: they remember which id they have seen as which."""

    def __init__(self, stem: str, *, is_worded: bool = False) -> None:
        self._stem = stem
        self._is_worded = is_worded  # messages are noted as they are
        self._seen: dict[tuple[str, object], str] = {}
        self._kinds: dict[str, int] = {}

    def know(self, topic_id: uuid.UUID, shown: str) -> None:
        """Show this topic's id so, whichever the broker drew."""
        self._seen["topic id", topic_id] = f"<id of {shown}>"

    def show(self, message: Message, version: int) -> Any:
        """The message as JSON's types."""
        return self._struct(message, version)

    def _struct(self, message: Message, version: int) -> dict[str, Any]:
        kind = type(message).__name__
        shown: dict[str, Any] = {}
        for name, field in message.__fields__.items():
            value = getattr(message, name)
            if version not in field.versions or (field.tag is not None and value == field.default):
                continue
            if field.is_array and value is not None:
                shown[name] = self._array(kind, name, value, version)
            elif field.kind is RECORDS:
                shown[name] = self._records(value)
            else:
                shown[name] = self._struct(value, version) if isinstance(value, Message) else self._value(name, value)
        return shown

    def _array(self, kind: str, name: str, values: list[Any], version: int) -> Any:
        if (kind, name) == ("CreatableTopicResult", "configs"):
            values = [one for one in values if one.config_source != ConfigSource.DEFAULT_CONFIG]
        if (kind, name) in ALL_THERE_IS:
            key = ALL_THERE_IS[kind, name]
            values = [one for one in values if self._is_ours(getattr(one, key))]
        if (kind, name) == ("DescribeLogDirsResult", "topics"):  # the internal ones are as large as what was told
            values = [one for one in values if one.name.startswith(self._stem)]
        key = KEYED.get((kind, name))
        if (kind, name) in UNORDERED:
            return sorted(values)
        if (kind, name) in SORTED:
            return sorted((self._struct(one, version) for one in values), key=repr)
        if key is None:
            return [self._struct(one, version) if isinstance(one, Message) else one for one in values]
        if version >= BY_ID_SINCE.get((kind, name), version + 1):
            key = "topic_id"
        keyed: dict[str, Any] = {}
        for one in sorted(values, key=lambda one: self._order(one, key)):
            shown = self._struct(one, version)
            label = shown.pop(key, None)
            if label is None:  # a topic that is known by its id only
                label = shown.get("topic_id")
            text = APIS[label].name if key == "api_key" and label in APIS else str(label)
            if (kind, name) == ("DescribeConfigsResult", "configs") and label in PLACES:
                _hide(shown)
            while text in keyed:
                text += " again"
            keyed[text] = shown
        return keyed

    def _order(self, one: Any, key: str) -> tuple[Any, ...]:
        """By key, and then by topic; ids that the story knows count as what they are shown as."""
        label, topic_id = getattr(one, key), getattr(one, "topic_id", None)
        shown = self._seen.get(("topic id", topic_id), "")
        if label is None or label is topic_id:
            label = shown
        return isinstance(label, str), label, shown, getattr(one, "resource_type", 0)

    def _is_ours(self, name: str | None) -> bool:
        """Whether it is no other story's; that __transaction_state is there depends on what was told before."""
        if name is None or name.startswith(self._stem):
            return True
        return not (name.startswith(STEM) or name == TRANSACTION_STATE_TOPIC)

    def _value(self, name: str, value: Any) -> Any:
        if name in _TEXTS and not (self._is_worded and name == "error_message"):
            return f"<{name.rpartition('_')[2]}>" if value else value
        if name == "host":
            return "<host>" if value else value
        if name == "port":
            return "<port>" if value > 0 else value
        if name == "cluster_id":
            return "<cluster id>" if value else value
        if name == "producer_id" and value >= 0:
            return self._numbered("producer", value)
        if name == "finalized_features_epoch" and value >= 0:
            return "<epoch>"
        if name == "log_dir":
            return "<directory>" if value else value
        if name in ("total_bytes", "usable_bytes") and value > 0:
            return "<bytes>"
        if name == "session_id" and value > 0:
            return "<session>"
        if name == "subscription_id" and value != 0:  # a checksum of metrics in the order of a hash table
            return self._numbered("subscription", value)
        if isinstance(value, uuid.UUID):
            return "none" if value.int == 0 else self._numbered("topic id", value)
        if name == "member_id" and isinstance(value, str) and _DRAWN_MEMBER.fullmatch(value):
            return self._numbered("drawn", value)
        if isinstance(value, str):
            return _DRAWN.sub(lambda found: self._numbered("drawn", found.group()), value)
        if isinstance(value, int) and "time" in name and abs(value - time.time() * 1000) < NEAR_NOW_MS:
            return "<now>"
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value).decode("latin-1")
        return value

    def _numbered(self, kind: str, value: object) -> str:
        if (kind, value) not in self._seen:
            self._kinds[kind] = self._kinds.get(kind, 0) + 1
            self._seen[kind, value] = f"<{kind} {self._kinds[kind]}>"
        return self._seen[kind, value]

    def _records(self, value: Any) -> Any:
        """One line per batch: all of its header but what depends on a producer id that was drawn.

        Of a message set v0 or v1 every message with its content: how small its codec made it depends on the library.
        A part of a message at its end means nothing, unless there is nothing else.
        """
        if value is None:
            return None
        lines, position, data = [], 0, memoryview(value)
        while position < len(data):
            if position + HEAD_BYTES <= len(data) and data[position + 16] < MAGIC:
                size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
                if position + size > len(data):
                    break
                lines += self._messages(data[position : position + size])
                position += size
                continue
            if lines and lines[-1].startswith("v"):
                break
            try:
                header = parse_header(data, position)
            except Malformed:
                lines.append(f"{len(data) - position} bytes more")
                break
            line = (
                f"{header.base_offset}..{header.last_offset} epoch {header.leader_epoch} magic {header.magic} "
                f"attributes {header.attributes} {header.record_count} records {header.size_bytes} bytes"
            )
            if header.producer_id >= 0:
                drawn = self._value("producer_id", header.producer_id)
                line += f" {drawn} epoch {header.producer_epoch} sequence {header.base_sequence}"
                if header.is_control and position + header.size_bytes <= len(data):
                    line += self._control_records(data[position : position + header.size_bytes])
            elif header.timestamp_type == 0:
                line += f" crc {header.crc:08x} until {header.max_timestamp}"
            lines.append(line)
            position += max(header.size_bytes, 1)
        return lines or ["a part of a message"] * (len(data) > 0)

    def _control_records(self, batch: memoryview) -> str:
        """Their keys and values; their time is that of the broker."""
        return "".join(
            f", {(record.key or b'').hex()} {(record.value or b'').hex()} at {self._value('time', record.timestamp)}"
            for record in read_records(batch)
        )

    def _messages(self, entry: memoryview) -> Iterator[str]:
        header = entry_header(entry)
        what = f"v{header.magic} attributes {header.attributes}"
        if header.codec:
            what += f" in a wrapper at {header.base_offset} until {self._value('time', header.max_timestamp)}"
        for record in read_messages(entry):
            time = self._value("time", record.timestamp)
            yield f"{what}: {record.offset} at {time} {record.key!r} {record.value!r}"


def _hide(setting: dict[str, Any]) -> None:
    for each in (setting, *setting.get("synonyms", ())):
        each["value"] = "<place>" if each["value"] else each["value"]
