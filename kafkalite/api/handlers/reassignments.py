"""ListPartitionReassignments: with one broker no partition is ever on its way to another.

Topics and partitions that do not exist are not on their way either: that is no error.
Source: org.apache.kafka.controller.ReplicationControlManager.listPartitionReassignments, KIP-455.
"""

from __future__ import annotations

from kafkalite.api.request.request_context import RequestContext
from kafkalite.api.request.services import Services
from kafkalite.protocol.messages.reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def list_partition_reassignments(
    services: Services, request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(topics=[])
