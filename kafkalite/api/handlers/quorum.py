"""DescribeQuorum: refused, since the metadata of the cluster stand in ZooKeeper or in a journal, not in a Raft quorum.

The API is listed, as Kafka 4 lists it: a tool that asks reads the reason.
Source: org.apache.kafka.common.requests.DescribeQuorumResponse, KIP-595.
"""

from __future__ import annotations

from kafkalite.api.request.request_context import RequestContext
from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.messages import quorum as wire


def describe_quorum(request: wire.DescribeQuorumRequest, context: RequestContext) -> wire.DescribeQuorumResponse:
    message = "kafkalite has no Raft quorum: its metadata stand in ZooKeeper, those of a single broker in a journal"
    return wire.DescribeQuorumResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=message)
