"""ListPartitionReassignments: always empty, because partitions are never reassigned.

Topics and partitions that do not exist are no error: they are not being reassigned either.
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
