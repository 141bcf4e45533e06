"""Dispatches request frames to their handlers and encodes the responses.

The table of handlers corresponds to the table of APIs. A request is decoded by its version, handled, and its response
encoded by the same version. All of this is synchronous unless a handler returns an awaitable.
Source: kafka.network.RequestChannel, kafka.server.KafkaApis.handle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from kafkalite.api.fast_path import fetch_fast_path, produce_fast_path
from kafkalite.api.handlers import fetch, metadata, produce
from kafkalite.api.request.request_context import RequestContext
from kafkalite.api.request.services import Services
from kafkalite.common.errors import Disconnect
from kafkalite.network.client_connection import Pending, ignore
from kafkalite.protocol.apis import SERVED
from kafkalite.protocol.codec.codec import decoder
from kafkalite.protocol.header import decode_request_header, response_frame

if TYPE_CHECKING:
    from kafkalite.api.request.request_context import Access
    from kafkalite.common.region import Part
    from kafkalite.network.client_connection import Answer, ClientConnection


Handler = Callable[[Services, Any, RequestContext], Any]
"""(services, request, context) -> response | awaitable of it | None (no response). Types agree with the row in APIS."""

_FIRST_HANDLERS: Mapping[str, Handler] = {
    "Produce": produce.produce,
    "Fetch": fetch.fetch,
    "Metadata": metadata.metadata,
    "ApiVersions": metadata.api_versions,
    "DescribeCluster": metadata.describe_cluster,
}


@cache
def _client_handlers() -> Mapping[str, Handler]:
    """Handlers of consumers and producers, imported when one of them is first used: a broker is ready without them."""
    from kafkalite.api.handlers import group_offsets, groups, list_offsets, transactions

    return {
        "ListOffsets": list_offsets.list_offsets,
        "OffsetForLeaderEpoch": list_offsets.offset_for_leader_epoch,
        "OffsetCommit": group_offsets.offset_commit,
        "OffsetFetch": group_offsets.offset_fetch,
        "TxnOffsetCommit": group_offsets.txn_offset_commit,
        "OffsetDelete": group_offsets.offset_delete,
        "FindCoordinator": groups.find_coordinator,
        "JoinGroup": groups.join_group,
        "Heartbeat": groups.heartbeat,
        "LeaveGroup": groups.leave_group,
        "SyncGroup": groups.sync_group,
        "DescribeGroups": groups.describe_groups,
        "ListGroups": groups.list_groups,
        "DeleteGroups": groups.delete_groups,
        "InitProducerId": transactions.init_producer_id,
        "AddPartitionsToTxn": transactions.add_partitions_to_txn,
        "AddOffsetsToTxn": transactions.add_offsets_to_txn,
        "EndTxn": transactions.end_txn,
        "WriteTxnMarkers": transactions.write_txn_markers,
        "DescribeProducers": transactions.describe_producers,
        "DescribeTransactions": transactions.describe_transactions,
        "ListTransactions": transactions.list_transactions,
    }


@cache
def _admin_handlers() -> Mapping[str, Handler]:
    """Handlers of all other requests, imported when one of them is first used."""
    from kafkalite.api import sasl_authenticator
    from kafkalite.api.handlers import (
        acls,
        broker_report,
        cleaner,
        configs,
        delegation_tokens,
        delete_records,
        entity_configs,
        log_dirs,
        partition_admin,
        topics,
    )

    return {
        "SaslHandshake": sasl_authenticator.sasl_handshake,
        "SaslAuthenticate": sasl_authenticator.sasl_authenticate,
        "DescribeUserScramCredentials": entity_configs.describe_user_scram_credentials,
        "AlterUserScramCredentials": entity_configs.alter_user_scram_credentials,
        "DescribeClientQuotas": entity_configs.describe_client_quotas,
        "AlterClientQuotas": entity_configs.alter_client_quotas,
        "CreateTopics": topics.create_topics,
        "DeleteTopics": topics.delete_topics,
        "CreatePartitions": topics.create_partitions,
        "DeleteRecords": delete_records.delete_records,
        "DescribeAcls": acls.describe_acls,
        "CreateAcls": acls.create_acls,
        "DeleteAcls": acls.delete_acls,
        "DescribeConfigs": configs.describe_configs,
        "AlterConfigs": configs.alter_configs,
        "IncrementalAlterConfigs": configs.incremental_alter_configs,
        "AlterReplicaLogDirs": log_dirs.alter_replica_log_dirs,
        "DescribeLogDirs": log_dirs.describe_log_dirs,
        "CreateDelegationToken": delegation_tokens.create_delegation_token,
        "RenewDelegationToken": delegation_tokens.renew_delegation_token,
        "ExpireDelegationToken": delegation_tokens.expire_delegation_token,
        "DescribeDelegationToken": delegation_tokens.describe_delegation_token,
        "ElectLeaders": partition_admin.elect_leaders,
        "AlterPartitionReassignments": partition_admin.alter_partition_reassignments,
        "ListPartitionReassignments": partition_admin.list_partition_reassignments,
        "RunCleaner": cleaner.run_cleaner,
        "BrokerReport": broker_report.broker_report,
    }


def handlers() -> Mapping[str, Handler]:
    """The handlers of all APIs by their names."""
    return {**_FIRST_HANDLERS, **_client_handlers(), **_admin_handlers()}


def handler_of(api: str) -> Handler:
    return _FIRST_HANDLERS.get(api) or _client_handlers().get(api) or _admin_handlers()[api]


PRODUCE_KEY = 0
FETCH_KEY = 1
REQUEST_BYTES_MAX = 16 * 1024 * 1024
"""Limit of any request but Produce, whose bytes are mostly records. Other requests are decoded to objects of some 35
times the size of the smallest element, so a request of socket.request.max.bytes would take gigabytes of memory."""

Encode = Callable[[Any, int, int], "list[Part]"]
"""(response, version, correlation id) -> the parts of its frame"""
Decode = Callable[[memoryview, int], tuple[Any, int]]


class Dispatcher:
    """Handles every request of every connection. Raises Malformed or Disconnect for requests without a response.

    A `Pending` or future that a handler returns is cancelled when its client disconnects. A coroutine, such as
    the creation of a topic, is run to its end even if its client disconnects.
    """

    __slots__ = ("_access", "_routes", "_services", "_tasks")

    def __init__(self, services: Services, access: Access | None = None) -> None:
        """`access` is None without an authorizer."""
        self._services = services
        self._access = access
        # (key, version) -> (decoder, handler, type); a decoder is compiled at the first request of its version
        self._routes: dict[tuple[int, int], tuple[Decode, Handler, type[Any]]] = {}
        self._tasks: set[asyncio.Future[Any]] = set()

    def __call__(self, connection: ClientConnection, frame: memoryview) -> Answer:
        answer = connection.fast_answer(frame)
        return self.handle(connection, frame) if answer is None else answer

    def handle(self, connection: ClientConnection, frame: memoryview, encode: Encode = response_frame) -> Answer:
        """The answer without a fast path. `encode` makes the frame of the response, now or when there is one."""
        (key, version, correlation_id, client_id), position = decode_request_header(frame)
        route = self._routes.get((key, version)) or self._route(key, version)
        if route is None:
            if key == metadata.API_VERSIONS_KEY:
                return response_frame(metadata.unsupported_version(), 0, correlation_id)
            raise Disconnect(f"version {version} of API {key} is not served")
        decode, handle, response_type = route
        if len(frame) > REQUEST_BYTES_MAX and key != PRODUCE_KEY:
            raise Disconnect(f"a request of {len(frame)} bytes for API {key}: more than {REQUEST_BYTES_MAX}")
        request, _ = decode(frame, position)
        context = RequestContext(connection, version, client_id, self._access)
        if key == FETCH_KEY:
            fetch_fast_path.learn(self._services, context, frame, request)
        response = handle(self._services, request, context)
        if type(response) is response_type:
            if key == PRODUCE_KEY:
                produce_fast_path.learn(self._services, context, frame, position, request, response)
            return encode(response, version, correlation_id)
        if response is None:
            return None
        pending = response if isinstance(response, Pending) else self._carry_out(response)
        if pending is response and key == PRODUCE_KEY:
            produce_fast_path.learn(self._services, context, frame, position, request, None)
        pending.change(partial(_encoded, encode, version, correlation_id))
        return pending

    async def settled(self) -> None:
        """Return when no work is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _carry_out(self, work: Awaitable[Any]) -> Pending:
        """The answer of a handler's coroutine, which a client that leaves does not stop, or of its future."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return Pending.of(task, None if task is work else ignore)

    def _route(self, key: int, version: int) -> tuple[Decode, Handler, type[Any]] | None:
        api = SERVED.get(key)
        if api is None or not api.min_version <= version <= api.max_version:
            return None
        handler = handler_of(api.name)
        if self._access is not None:
            from kafkalite.api.permissions import guarded

            handler = guarded(api, handler)
        route = decoder(api.request, version), handler, api.response
        self._routes[(key, version)] = route
        return route


def _encoded(encode: Encode, version: int, correlation_id: int, response: Any) -> list[Part] | None:
    return None if response is None else encode(response, version, correlation_id)
