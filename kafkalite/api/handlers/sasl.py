"""SaslHandshake and SaslAuthenticate where they may not be: on a connection that is authenticated, or need not be.

Source: kafka.server.KafkaApis (handleSaslHandshakeRequest, handleSaslAuthenticateRequest).
"""

from __future__ import annotations

from kafkalite.api.request.request_context import RequestContext
from kafkalite.api.request.services import Services
from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)


def sasl_handshake(services: Services, request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


def sasl_authenticate(
    services: Services, request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
