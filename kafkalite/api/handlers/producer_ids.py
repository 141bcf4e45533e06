"""InitProducerId: allocates an id for an idempotent producer. Transactional ids are refused until transactions exist.

Source: kafka.coordinator.transaction.TransactionCoordinator.handleInitProducerId.
"""

from __future__ import annotations

from collections.abc import Awaitable

from kafkalite.api.request.request_context import RequestContext
from kafkalite.api.request.services import Services
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.protocol.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse

NONE = -1  # no producer id, or no epoch


def init_producer_id(
    services: Services, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    if request.transactional_id:
        return _refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    has_id, has_epoch = request.producer_id != NONE, request.producer_epoch != NONE
    if request.transactional_id is not None or has_id != has_epoch:  # KIP-360: both or neither
        return _refused(ErrorCode.INVALID_REQUEST)
    producer_id = services.producer_ids.take()
    if producer_id is None:
        return _from_next_block(services)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


async def _from_next_block(services: Services) -> InitProducerIdResponse:
    try:
        return InitProducerIdResponse(producer_id=await services.producer_ids.next(), producer_epoch=0)
    except KafkaError as error:
        services.error_log.about("producer ids", str(error), f"none can be given: {error}")
        return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _refused(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=NONE, producer_epoch=NONE)
