"""The answer of an API with an error at each place where it has one, made from the request by the two schemas.

A response repeats the lists of its request: for each topic, partition, group or resource it has an element that names
it. So a list of the response is made from the list of the request that goes with it (`_SOURCES`), and what is named in
an element by what its source names. The error stands in the innermost elements; one that is about the whole request
(`_WHOLE`), of a group or of a fetch session, stands above them, as Kafka's handlers give it.
Source: kafka.server.KafkaApis; the handlers of answers in org.apache.kafka.clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.codec.schema import Message

_SOURCES = {
    "AddPartitionsToTxnResponse.results_by_transaction": ("transactions",),
    "AddPartitionsToTxnResponse.results_by_topic_v3_and_below": ("v3_and_below_topics",),
    "topic_results": ("topics",),
    "results_by_partition": ("partitions",),
    "AlterClientQuotasResponse.entries": ("entries",),
    "AlterConfigsResponse.responses": ("resources",),
    "AlterPartitionReassignmentsResponse.responses": ("topics",),
    "AlterShareGroupOffsetsResponse.responses": ("topics",),
    "AlterUserScramCredentialsResponse.results": ("upsertions", "deletions"),
    "AlterReplicaLogDirsResponse.results": ("dirs",),
    "CreateAclsResponse.results": ("creations",),
    "CreatePartitionsResponse.results": ("topics",),
    "DeleteAclsResponse.filter_results": ("filters",),
    "DeleteGroupsResponse.results": ("groups_names",),
    "DeleteShareGroupOffsetsResponse.responses": ("topics",),
    "DeleteTopicsResponse.responses": ("topics", "topic_names"),
    "DescribeConfigsResponse.results": ("resources",),
    "DescribeTransactionsResponse.transaction_states": ("transactional_ids",),
    "ElectLeadersResponse.replica_election_results": ("topic_partitions",),
    "partition_result": ("partitions",),
    "FetchResponse.responses": ("topics",),
    "ShareAcknowledgeResponse.responses": ("topics",),
    "ShareFetchResponse.responses": ("topics",),
    "FindCoordinatorResponse.coordinators": ("coordinator_keys",),
    "IncrementalAlterConfigsResponse.responses": ("resources",),
    "LeaveGroupResponse.members": ("members",),
    "InitializeShareGroupStateResponse.results": ("topics",),
    "ReadShareGroupStateResponse.results": ("topics",),
    "WriteShareGroupStateResponse.results": ("topics",),
    "DeleteShareGroupStateResponse.results": ("topics",),
    "ReadShareGroupStateSummaryResponse.results": ("topics",),
    "ProduceResponse.responses": ("topic_data",),
    "partition_responses": ("partition_data",),
    "entity": ("entity",),
    "groups": ("groups", "group_ids"),
    "markers": ("markers",),
    "partitions": ("partitions", "partition_indexes"),
    "topics": ("topics",),
}
"""List of a response (of that response, or any) -> the lists of its request that it may be made from."""

_NO_MIRROR = (
    "JoinGroupResponse",
    "ListGroupsResponse",
    "ListTransactionsResponse",
    "ListPartitionReassignmentsResponse",
)
_NAMES = (
    "name", "topic", "topic_name", "topic_id", "index", "partition", "partition_index", "partition_id", "key",
    "group_id", "member_id", "group_instance_id", "transactional_id", "producer_id", "resource_type", "resource_name",
    "user", "entity_type", "entity_name",
)  # fmt: skip
_SAME = (
    ("topic_name", "name", "topic"),
    ("partition_index", "index", "partition", "partition_id"),
    ("user", "name"),
)
_CODES = ("error_code", "partition_error_code")
_UNKNOWN = dict.fromkeys(
    (
        "base_offset", "log_append_time_ms", "log_start_offset", "high_watermark", "offset", "timestamp",
        "end_offset", "leader_epoch", "committed_offset", "low_watermark", "producer_epoch", "generation_id",
        "preferred_read_replica", "node_id", "last_stable_offset",
    ),
    -1,
)  # fmt: skip


_OF_PARTITIONS = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
_OF_CLUSTER = {ErrorCode.NOT_CONTROLLER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.REQUEST_TIMED_OUT}
_OF_SHARE_REQUESTS = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.UNSUPPORTED_VERSION,
}
_EVERY = set(ErrorCode)
_WHOLE: Mapping[str, set[ErrorCode]] = {
    "FetchResponse": {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    },
    "OffsetFetchResponse": _EVERY - _OF_PARTITIONS - {ErrorCode.UNSTABLE_OFFSET_COMMIT},
    "LeaveGroupResponse": _EVERY - {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID},
    "OffsetDeleteResponse": _EVERY - _OF_PARTITIONS - {ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC},
    "ShareFetchResponse": _OF_SHARE_REQUESTS,
    "ShareAcknowledgeResponse": _OF_SHARE_REQUESTS,
    "DescribeShareGroupOffsetsResponse": _EVERY - _OF_PARTITIONS,
    "AlterShareGroupOffsetsResponse": _EVERY - _OF_PARTITIONS,
    "DeleteShareGroupOffsetsResponse": _EVERY - _OF_PARTITIONS,
    "AddPartitionsToTxnResponse": {ErrorCode.CLUSTER_AUTHORIZATION_FAILED},
    "ElectLeadersResponse": _OF_CLUSTER,
    "AlterPartitionReassignmentsResponse": _OF_CLUSTER,
}
_GROUPS = "groups"
_ENTITY = "entity"  # a name in several parts, not elements that could fail


def is_of_request(response_type: type[Message], code: ErrorCode) -> bool:
    """Whether the error is about the whole request, where answers have such errors and those of elements."""
    return code in _WHOLE.get(response_type.__name__, ())


def error_answer(response_type: type[Message], request: Message, code: ErrorCode, version: int) -> Message:
    """The response in which everything that the request is about has failed."""
    name = response_type.__name__
    is_whole = code in _WHOLE.get(name, ()) and any(
        field in response_type.__fields__ and version in response_type.__fields__[field].versions
        for field in ("error_code", _GROUPS)
    )
    return _answer(response_type, request, code, name, is_whole)


def _answer(kind: type[Message], source: object, code: ErrorCode, response: str, is_whole: bool) -> Message:
    """`source` is a struct of the request, or a plain value that names the element."""
    values: dict[str, Any] = {}
    has_elements = False
    for name, field in kind.__fields__.items():
        if field.is_array and isinstance(field.kind, type) and issubclass(field.kind, Message):
            sources = _sources(source, name, response) if not is_whole or name == _GROUPS else []
            values[name] = [_answer(field.kind, each, code, response, is_whole) for each in sources]
            has_elements = has_elements or (bool(sources) and name != _ENTITY)
        elif name in _NAMES and (found := _named(source, name, field.default)) is not None:
            values[name] = found
        elif name in _UNKNOWN:
            values[name] = _UNKNOWN[name]
    for name in _CODES:
        if name in kind.__fields__:
            values[name] = int(code) if is_whole or not has_elements else 0
    return kind(**values)


def _sources(source: object, name: str, response: str) -> list[Any]:
    if response in _NO_MIRROR or not isinstance(source, Message):
        return []
    for one in _SOURCES.get(f"{response}.{name}") or _SOURCES.get(name, ()):
        found = getattr(source, one, None)
        if found:
            return (
                _below_directories(found) if response == "AlterReplicaLogDirsResponse" and name == "results" else found
            )
    return []


def _below_directories(directories: list[Any]) -> list[Any]:
    return [topic for directory in directories for topic in directory.topics]


def _named(source: object, name: str, default: object) -> object:
    if not isinstance(source, Message):
        return source if isinstance(source, type(default)) else None
    for same in _SAME:
        if name in same:
            return next((getattr(source, one) for one in same if one in source.__fields__), None)
    return getattr(source, name, None)


def merged(answer: Message, faulty: Message) -> Message:
    """`answer` with the elements of `faulty` instead of those that name the same, or besides them."""
    for name, field in faulty.__fields__.items():
        if not (field.is_array and isinstance(field.kind, type) and issubclass(field.kind, Message)):
            continue
        there, more = getattr(answer, name), getattr(faulty, name)
        if not more:
            continue
        there = list(there or [])
        for each in more:
            same = next((one for one in there if _name_of(one) == _name_of(each)), None)
            if same is None:
                there.append(each)
            elif any(code in each.__fields__ for code in _CODES):
                there[there.index(same)] = each
            else:
                merged(same, each)
        setattr(answer, name, there)
    return answer


def _name_of(element: Message) -> tuple[Any, ...]:
    return tuple(getattr(element, name) for name in _NAMES if name in element.__fields__)
