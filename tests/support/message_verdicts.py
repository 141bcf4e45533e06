"""Messages in the words of Kafka's own message classes: schemas as text, values as the JSON of its converters.

`GOLDEN` holds, for each new API and version, what the classes of Kafka 4.3.0 made of random messages; it is written by
`tests/golden/protocol/make_golden_messages.py`, and tests read it without Java.
Source: org.apache.kafka.common.protocol.types.Schema; org.apache.kafka.message.JsonConverterGenerator.
"""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from pathlib import Path
from typing import Any, NamedTuple

from kafkalite.protocol.codec.schema import Field, Kind, Message
from kafkalite.protocol.codec.source_writer import travelling
from kafkalite.protocol.messages import (
    configs,
    consumer_groups,
    features,
    fetch,
    group_offsets,
    groups,
    list_offsets,
    metadata,
    produce,
    quorum,
    share_fetch,
    share_groups,
    share_state,
    streams_groups,
    telemetry,
    topic_partitions,
    transactions,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "protocol" / "kafka-4.3.0.tsv"


class NewApi(NamedTuple):
    """An API, or versions of one, that Kafka 3.9 with ZooKeeper does not serve."""

    key: int
    request: type[Message]
    response: type[Message]
    versions: range


# fmt: off
NEW_APIS = (
    NewApi(0, produce.ProduceRequest, produce.ProduceResponse, range(13, 14)),
    NewApi(1, fetch.FetchRequest, fetch.FetchResponse, range(17, 19)),
    NewApi(2, list_offsets.ListOffsetsRequest, list_offsets.ListOffsetsResponse, range(10, 12)),
    NewApi(3, metadata.MetadataRequest, metadata.MetadataResponse, range(13, 14)),
    NewApi(8, group_offsets.OffsetCommitRequest, group_offsets.OffsetCommitResponse, range(9, 11)),
    NewApi(9, group_offsets.OffsetFetchRequest, group_offsets.OffsetFetchResponse, range(9, 11)),
    NewApi(15, groups.DescribeGroupsRequest, groups.DescribeGroupsResponse, range(6, 7)),
    NewApi(16, groups.ListGroupsRequest, groups.ListGroupsResponse, range(5, 6)),
    NewApi(27, transactions.WriteTxnMarkersRequest, transactions.WriteTxnMarkersResponse, range(2, 3)),
    NewApi(55, quorum.DescribeQuorumRequest, quorum.DescribeQuorumResponse, range(3)),
    NewApi(57, features.UpdateFeaturesRequest, features.UpdateFeaturesResponse, range(3)),
    NewApi(60, metadata.DescribeClusterRequest, metadata.DescribeClusterResponse, range(2, 3)),
    NewApi(66, transactions.ListTransactionsRequest, transactions.ListTransactionsResponse, range(2, 3)),
    NewApi(68, consumer_groups.ConsumerGroupHeartbeatRequest, consumer_groups.ConsumerGroupHeartbeatResponse, range(2)),
    NewApi(69, consumer_groups.ConsumerGroupDescribeRequest, consumer_groups.ConsumerGroupDescribeResponse, range(2)),
    NewApi(71, telemetry.GetTelemetrySubscriptionsRequest, telemetry.GetTelemetrySubscriptionsResponse, range(1)),
    NewApi(72, telemetry.PushTelemetryRequest, telemetry.PushTelemetryResponse, range(1)),
    NewApi(74, configs.ListConfigResourcesRequest, configs.ListConfigResourcesResponse, range(2)),
    NewApi(75, topic_partitions.DescribeTopicPartitionsRequest, topic_partitions.DescribeTopicPartitionsResponse, range(1)),  # noqa: E501
    NewApi(76, share_groups.ShareGroupHeartbeatRequest, share_groups.ShareGroupHeartbeatResponse, range(1, 2)),
    NewApi(77, share_groups.ShareGroupDescribeRequest, share_groups.ShareGroupDescribeResponse, range(1, 2)),
    NewApi(78, share_fetch.ShareFetchRequest, share_fetch.ShareFetchResponse, range(1, 3)),
    NewApi(79, share_fetch.ShareAcknowledgeRequest, share_fetch.ShareAcknowledgeResponse, range(1, 3)),
    NewApi(83, share_state.InitializeShareGroupStateRequest, share_state.InitializeShareGroupStateResponse, range(1)),
    NewApi(84, share_state.ReadShareGroupStateRequest, share_state.ReadShareGroupStateResponse, range(1)),
    NewApi(85, share_state.WriteShareGroupStateRequest, share_state.WriteShareGroupStateResponse, range(2)),
    NewApi(86, share_state.DeleteShareGroupStateRequest, share_state.DeleteShareGroupStateResponse, range(1)),
    NewApi(87, share_state.ReadShareGroupStateSummaryRequest, share_state.ReadShareGroupStateSummaryResponse, range(2)),
    NewApi(88, streams_groups.StreamsGroupHeartbeatRequest, streams_groups.StreamsGroupHeartbeatResponse, range(1)),
    NewApi(89, streams_groups.StreamsGroupDescribeRequest, streams_groups.StreamsGroupDescribeResponse, range(1)),
    NewApi(90, share_groups.DescribeShareGroupOffsetsRequest, share_groups.DescribeShareGroupOffsetsResponse, range(2)),
    NewApi(91, share_groups.AlterShareGroupOffsetsRequest, share_groups.AlterShareGroupOffsetsResponse, range(1)),
    NewApi(92, share_groups.DeleteShareGroupOffsetsRequest, share_groups.DeleteShareGroupOffsetsResponse, range(1)),
)
# fmt: on
OWN_TAGS_FROM = 9000


def schema_text(message_type: type[Message], version: int) -> str:
    """The fields that travel in `version`, in order: `{name:TYPE,items:[TYPE]?,0=tagged:TYPE}`."""
    return _struct_text(message_type, version, version in message_type.flexible)


def _struct_text(message_type: type[Message], version: int, flexible: bool) -> str:
    plain, tagged = travelling(message_type, version)
    tagged = [(name, field) for name, field in tagged if (field.tag or 0) < OWN_TAGS_FROM]
    fields = [f"{name}:{_type_text(field, version, flexible)}" for name, field in plain]
    fields += [f"{field.tag}={name}:{_type_text(field, version, flexible)}" for name, field in tagged]
    return "{" + ",".join(fields) + "}"


def _type_text(field: Field, version: int, flexible: bool) -> str:
    nullable = version in field.nullable
    if not isinstance(field.kind, Kind):
        text = _struct_text(field.kind, version, flexible)
        nullable = nullable and (field.is_array or field.has_presence)
    elif field.kind.code is None:
        null = "NULLABLE_" if nullable and not field.is_array else ""
        text = f"{'COMPACT_' if flexible else ''}{null}{field.kind.name.upper()}"
        nullable = nullable and field.is_array
    else:
        text = "BOOLEAN" if field.kind.name == "bool" else field.kind.name.upper()
    return (f"[{text}]" if field.is_array else text) + "?" * nullable


def as_json(message: Message, version: int) -> dict[str, Any]:
    """The message as Kafka's converters write it; a tagged field at its default is left out."""
    plain, tagged = travelling(type(message), version)
    found = {}
    for name, field in plain + tagged:
        value = getattr(message, name)
        if field.tag is not None and (not value if field.is_array else value == field.default):
            continue
        camel = name[0] + "".join(word.capitalize() for word in name.split("_"))[1:]
        if isinstance(field.kind, Kind) and field.kind.name == "records" and value is not None:
            found[camel + "SizeInBytes"] = len(value)
        elif field.is_array and value is not None:
            found[camel] = [_value(field.kind, element, version) for element in value]
        else:
            found[camel] = _value(field.kind, value, version)
    return found


def _value(kind: Kind[Any] | type[Message], value: Any, version: int) -> Any:
    if value is None:
        return None
    if not isinstance(kind, Kind):
        return as_json(value, version)
    if kind.name == "uuid":
        return urlsafe_b64encode(value.bytes).decode().rstrip("=")
    return b64encode(value).decode() if kind.name == "bytes" else value
