"""InitProducerId: an id for an idempotent producer, or the id and the next epoch of a transactional one.

Source: kafka.coordinator.transaction.TransactionCoordinator.handleInitProducerId.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from kafkalite.api.handlers.transactions import known_error
from kafkalite.api.request.access import TOPIC, TRANSACTIONAL_ID
from kafkalite.api.request.pending_response import PendingResponse
from kafkalite.api.request.request_context import RequestContext
from kafkalite.api.request.services import Services
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.protocol.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from kafkalite.security.acl.acl import Operation

if TYPE_CHECKING:
    from kafkalite.coordinator.transaction.transaction_state import InitProducerIdResult

NONE = -1  # no producer id, or no epoch
FIRST_VERSION_WITH_FENCED = 4


def init_producer_id(
    services: Services, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    if (refused := _refusal(context, request.transactional_id)) is not None:
        return _refused(refused)
    has_id, has_epoch = request.producer_id != NONE, request.producer_epoch != NONE
    if request.transactional_id == "" or has_id != has_epoch:  # KIP-360: both or neither
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _transactional(services, request.transactional_id, request, context.api_version)
    producer_id = services.producer_ids.take()
    if producer_id is None:
        return _from_next_block(services)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refusal(context: RequestContext, transactional_id: str | None) -> ErrorCode | None:
    """The error for a client that may write neither with this id nor, without one, in some topic (KIP-679)."""
    if transactional_id is not None:
        is_allowed = context.may(Operation.WRITE, TRANSACTIONAL_ID, transactional_id)
        return None if is_allowed else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    access, idempotent = context.access, Operation.IDEMPOTENT_WRITE
    is_allowed = (
        access is None
        or context.may_cluster(idempotent, is_logged=False)
        or access.allows_any(context.connection, Operation.WRITE, TOPIC)
        or context.may_cluster(idempotent)  # logs the refusal
    )
    return None if is_allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _transactional(
    services: Services, transactional_id: str, request: InitProducerIdRequest, version: int
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    def render(result: InitProducerIdResult) -> InitProducerIdResponse:
        return InitProducerIdResponse(
            error_code=known_error(result.error, version, FIRST_VERSION_WITH_FENCED),
            producer_id=result.producer_id,
            producer_epoch=result.producer_epoch,
        )

    expected = (request.producer_id, request.producer_epoch) if request.producer_id != NONE else None
    pending = PendingResponse(render)
    services.transactions.init_producer_id(transactional_id, request.transaction_timeout_ms, expected, pending)
    return pending.outcome(services.runtime.loop)


async def _from_next_block(services: Services) -> InitProducerIdResponse:
    try:
        return InitProducerIdResponse(producer_id=await services.producer_ids.next(), producer_epoch=0)
    except KafkaError as error:
        services.error_log.about("producer ids", str(error), f"none can be given: {error}")
        return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _refused(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=NONE, producer_epoch=NONE)
