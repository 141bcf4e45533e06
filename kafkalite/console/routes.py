"""THE TABLE of the API: every address with its method, parameters and handler. It dispatches requests, checks them, and
is published to programs at /api/openapi.json."""

# ruff: noqa: E501
# The table is wide, so that one address stays one line.

from __future__ import annotations

from typing import Any

from kafkalite.client.acl_admin import OPERATIONS, PATTERNS, PERMISSIONS, RESOURCES
from kafkalite.client.group_admin import TARGETS
from kafkalite.client.user_admin import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISMS
from kafkalite.console.calls.route import Route
from kafkalite.console.handlers import access, cluster, copies, groups, messages, overview, placement, schemas, topics
from kafkalite.console.request.parameters import LIST_PARAMETERS, Parameter
from kafkalite.record.compression import CODEC_NAMES

_TOPIC = Parameter("topic", required=True, where="path", text_max=249)
_GROUP = Parameter("group_id", required=True, text_max=32_767, may_be_empty=True, doc="may be empty")
_MINUTES = Parameter("minutes", "integer", 60, at_least=1, at_most=60)
_PARTITION = Parameter("partition", "integer", 0, at_least=0, at_most=1 << 30)


def _field(name: str, kind: str = "string", default: object = None, **more: object) -> Parameter:
    return Parameter(name, kind, default, where="body", **more)  # type: ignore[arg-type]


_PARTITIONS = _field("partitions", "array", items="integer", at_least=0, doc="all if null")
_MESSAGE_PATH = (
    _TOPIC,
    Parameter("partition", "integer", required=True, where="path", at_least=0, at_most=1 << 30),
    Parameter("offset", "integer", required=True, where="path", at_least=0),
)
_NEW_TOPIC = (
    _field("name", required=True, text_max=500),
    _field("partitions", "integer", at_least=1, at_most=100_000, doc="the broker's default if null"),
    _field("replicas", "integer", at_least=1, at_most=32_767, doc="the broker's default if null"),
    _field("configs", "object"),
    _field("validate_only", "boolean", False),
)
_NEW_MESSAGE = (
    _field("partition", "integer", at_least=0, doc="by the key if null"),
    _field("key", text_max=16 << 20),
    _field("value", text_max=16 << 20, doc="null is a tombstone"),
    _field("key_encoding", default="text", one_of=("text", "base64")),
    _field("value_encoding", default="text", one_of=("text", "base64")),
    _field("headers", "array", items="object"),
    _field("timestamp_ms", "integer", at_least=0),
    _field("compression", default="none", one_of=CODEC_NAMES),
)
_RESET = (
    _field("group_id", required=True, text_max=32_767),
    _field("topics", "array"),
    _field("partitions", "array", items="object", doc="{topic, partition}"),
    _field("to", required=True, one_of=TARGETS),
    _field("offset", "integer", at_least=0),
    _field("time_ms", "integer"),
    _field("shift", "integer"),
    _field("preview", "boolean", True, doc="only return the new offsets, and a preview_id"),
    _field("preview_id", text_max=100, doc="that of a preview of the same request; needed for the change"),
)
_INTERNAL = Parameter("internal", "boolean", False, doc="internal topics, too")
_GROUP_TYPE = Parameter("type", one_of=groups.GROUP_TYPES, doc="only groups of this type")
_ONE_TOPIC = Parameter("topic", text_max=249)
_ONE_BROKER = Parameter("broker", "integer", at_least=0, at_most=(1 << 31) - 1)

_BROKER = Parameter("broker", "integer", required=True, where="path", at_least=0, at_most=(1 << 31) - 1)
_ACL = (
    _field("resource", required=True, one_of=RESOURCES),
    _field("name", required=True, text_max=1000),
    _field("pattern", default="literal", one_of=PATTERNS),
    _field("principal", required=True, text_max=1000),
    _field("host", default="*", text_max=1000),
    _field("operation", required=True, one_of=OPERATIONS),
    _field("permission", default="ALLOW", one_of=PERMISSIONS),
)
_USER = (
    _field("name", required=True, text_max=1000),
    _field("password", required=True, text_max=10_000),
    _field("mechanism", default="SCRAM-SHA-512", one_of=tuple(MECHANISMS)),
    _field("iterations", "integer", at_least=ITERATIONS_MIN, at_most=ITERATIONS_MAX),
)
_MOVE = (
    _field("topic", required=True, text_max=249),
    _field("partitions", "array", items="integer", required=True, at_least=0),
    _field("replicas", "array", items="integer", at_least=0, doc="the preferred leader first; null cancels"),
)
_COPY = (
    _field("to", required=True, text_max=249),
    _field("to_partition", "integer", at_least=0, doc="by the key if null"),
    _field("partition", "integer", required=True, at_least=0),
    _field("offset", "integer", required=True, at_least=0),
    _field("count", "integer", 1, at_least=1, at_most=copies.COPIED_MAX),
)
_ELECTION = (
    _field("topic", text_max=249, doc="all topics if null"),
    _PARTITIONS,
    _field("kind", default="preferred", one_of=tuple(placement.KINDS)),
)

# fmt: off
ROUTES: tuple[Route, ...] = (
    Route("GET", "/api/overview", overview.overview, "The cluster in numbers, its brokers, and present problems"),
    Route("GET", "/api/problems", overview.problems, "The present problems"),
    Route("GET", "/api/history", overview.history, "Rates of the last hour", (_ONE_BROKER, _MINUTES)),
    Route("GET", "/api/topics", topics.list_topics, "Topics", (_INTERNAL, *LIST_PARAMETERS)),
    Route("POST", "/api/topics", topics.create_topic, "Create a topic", _NEW_TOPIC),
    Route("GET", "/api/topics/{topic}", topics.describe_topic, "One topic", (_TOPIC,)),
    Route("DELETE", "/api/topics/{topic}", topics.delete_topic, "Delete a topic with all its records", (_TOPIC,)),
    Route("GET", "/api/topics/{topic}/partitions", topics.list_partitions, "Its partitions", (_TOPIC, *LIST_PARAMETERS)),
    Route("POST", "/api/topics/{topic}/partitions", topics.add_partitions, "Add partitions", (_TOPIC, _field("count", "integer", required=True, at_least=1, at_most=100_000, doc="the new number of partitions"))),
    Route("GET", "/api/topics/{topic}/config", topics.read_config, "Its settings, with the source of each value", (_TOPIC,)),
    Route("PATCH", "/api/topics/{topic}/config", topics.alter_config, "Change settings", (_TOPIC, _field("set", "object"), _field("reset", "array"), _field("validate_only", "boolean", False))),
    Route("POST", "/api/topics/{topic}/empty", topics.empty_topic, "Delete records", (_TOPIC, _PARTITIONS, _field("before_offset", "integer", at_least=0, doc="up to the end if null"))),
    Route("POST", "/api/topics/{topic}/compact", topics.compact_topic, "Compact it now", (_TOPIC, _PARTITIONS, _field("roll", "boolean", True, doc="seal active segments first"))),
    Route("GET", "/api/topics/{topic}/groups", groups.groups_of_topic, "The groups that read it", (_TOPIC,)),
    Route("GET", "/api/topics/{topic}/segments", cluster.segments, "The segments of a partition", (_TOPIC, _PARTITION)),
    Route("GET", "/api/topics/{topic}/producers", cluster.producers, "The producers of a partition", (_TOPIC, _PARTITION)),
    Route("GET", "/api/topics/{topic}/messages", messages.search_messages, "Search records; a stream of events", (_TOPIC, *messages.SEARCH_PARAMETERS), streams=True),
    Route("POST", "/api/topics/{topic}/messages", messages.produce_message, "Produce a record", (_TOPIC, *_NEW_MESSAGE)),
    Route("GET", "/api/topics/{topic}/messages/{partition}/{offset}", messages.read_message, "One whole record", (*_MESSAGE_PATH, Parameter("part", one_of=("key", "value"), doc="only its bytes"), *messages.FORMAT_PARAMETERS), downloads=True),
    Route("GET", "/api/topics/{topic}/export", messages.export_messages, "Records as a file", (_TOPIC, *messages.EXPORT_PARAMETERS), downloads=True),
    Route("POST", "/api/topics/{topic}/copy", copies.copy_messages, "Copy records to another topic", (_TOPIC, *_COPY)),
    Route("GET", "/api/topics/{topic}/analysis", copies.analyse_topic, "Keys, sizes, nulls and rate; a stream of events", (_TOPIC, *messages.LIMIT_PARAMETERS), streams=True),
    Route("GET", "/api/groups", groups.list_groups, "Groups", (_GROUP_TYPE, *LIST_PARAMETERS)),
    Route("GET", "/api/group", groups.describe_group, "One group", (_GROUP,)),
    Route("DELETE", "/api/group", groups.delete_group, "Delete a group without members", (_GROUP,)),
    Route("GET", "/api/group/lag", groups.lag_history, "Its lag over time", (_GROUP, _MINUTES)),
    Route("POST", "/api/group/reset", groups.reset_group, "Set the offsets of a group without members", _RESET),
    Route("GET", "/api/compaction", cluster.compaction, "Compacted partitions", (_ONE_TOPIC, _INTERNAL, *LIST_PARAMETERS)),
    Route("GET", "/api/storage", cluster.storage, "Log directories, and the largest partitions"),
    Route("GET", "/api/restart", overview.restart, "The effects of a restart of each broker"),
    Route("GET", "/api/cluster", cluster.cluster_map, "Leaders and replicas of all partitions, by broker", (_INTERNAL, *LIST_PARAMETERS)),
    Route("GET", "/api/clients", cluster.clients, "Connections", (_ONE_BROKER, *LIST_PARAMETERS)),
    Route("GET", "/api/requests", cluster.slow_requests, "Recent slow requests"),
    Route("GET", "/api/transactions", cluster.transactions, "Transactions", LIST_PARAMETERS),
    Route("POST", "/api/transactions/abort", cluster.abort_transaction, "Abort an open transaction and fence its producer", (_field("transactional_id", required=True, text_max=32_767),)),
    Route("GET", "/api/schemas", schemas.list_subjects, "Subjects of the schema registry", LIST_PARAMETERS),
    Route("GET", "/api/schema", schemas.describe_subject, "One schema of a subject", (Parameter("subject", required=True, text_max=2000), Parameter("version", "integer", at_least=1, at_most=(1 << 31) - 1, doc="the newest if missing"))),
    Route("GET", "/api/mirrors", cluster.mirrors, "Mirrors into the cluster: lag, rate and last error of each source", LIST_PARAMETERS),
    Route("GET", "/api/quotas", access.quotas, "Quotas"),
    Route("POST", "/api/quotas", access.alter_quota, "Set and remove quotas of an entity", (_field("entity", "object", required=True), _field("set", "object"), _field("reset", "array"))),
    Route("GET", "/api/acls", access.list_acls, "Entries of access control lists", LIST_PARAMETERS),
    Route("POST", "/api/acls", access.add_acl, "Add an entry", _ACL),
    Route("POST", "/api/acls/remove", access.remove_acl, "Remove an entry", _ACL),
    Route("GET", "/api/users", access.users, "SCRAM users", LIST_PARAMETERS),
    Route("POST", "/api/users", access.put_user, "Add a user, or set another password", _USER),
    Route("DELETE", "/api/users", access.delete_user, "Remove a user", (Parameter("name", required=True, text_max=1000),)),
    Route("GET", "/api/reassignments", placement.reassignments, "Partitions on their way to other brokers"),
    Route("POST", "/api/reassignments", placement.start_reassignment, "Move partitions to other brokers", _MOVE),
    Route("POST", "/api/elections", placement.elect, "Elect leaders", _ELECTION),
    Route("GET", "/api/brokers/{broker}/config", placement.broker_config, "The settings of a broker", (_BROKER,)),
    Route("PATCH", "/api/brokers/{broker}/config", placement.alter_broker_config, "Change settings of a broker, or of all", (_BROKER, _field("set", "object"), _field("reset", "array"), _field("all", "boolean", False, doc="of all brokers"), _field("validate_only", "boolean", False))),
)
# fmt: on


_ERROR = {
    "type": "object",
    "required": ["error", "message"],
    "properties": {"error": {"type": "string"}, "message": {"type": "string"}},
}
_STATUSES = ("400", "401", "403", "404", "409", "413", "429", "502", "504")
CSRF_HEADER = "X-CSRF-Token"


def document(routes: tuple[Route, ...], version: str) -> dict[str, Any]:
    """OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "kafkalite console", "version": version, "description": "Sizes in bytes, times in ms."},
        "paths": paths,
        "components": {"schemas": {"Error": _ERROR}},
    }


def _operation(route: Route) -> dict[str, Any]:
    fields = [one for one in route.parameters if one.where == "body"]
    parameters = [_parameter(one) for one in route.parameters if one.where != "body"]
    operation: dict[str, Any] = {"summary": route.summary, "operationId": route.handler.__name__}
    if route.is_change:
        parameters.append({"name": CSRF_HEADER, "in": "header", "required": True, "schema": {"type": "string"}})
    if parameters:
        operation["parameters"] = parameters
    if route.is_change:
        operation["requestBody"] = {
            "required": bool(fields),
            "content": {"application/json": {"schema": _body(fields)}},
        }
    error = {
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
        "description": "error",
    }
    operation["responses"] = {"200": _answer(route), **dict.fromkeys(_STATUSES, error)}
    return operation


def _parameter(one: Parameter) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": one.name,
        "in": one.where,
        "required": one.required,
        "schema": one.schema(),
    }
    if one.kind == "array":
        found.update(style="form", explode=False)
    if one.doc:
        found["description"] = one.doc
    return found


def _body(fields: list[Parameter]) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {one.name: {**one.schema(), **({"description": one.doc} if one.doc else {})} for one in fields},
        "additionalProperties": False,
    }
    if required := [one.name for one in fields if one.required]:
        schema["required"] = required
    return schema


def _answer(route: Route) -> dict[str, Any]:
    if route.streams:
        return {"description": "events", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
    content: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}
    if route.downloads:
        names = ("application/octet-stream", "application/jsonl", "application/vnd.apache.parquet")
        content.update({key: {"schema": {"type": "string", "format": "binary"}} for key in names})
    return {"description": "the answer", "content": content}
