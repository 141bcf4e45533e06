"""GetTelemetrySubscriptions and PushTelemetry: a client asks which metrics it is to send, and sends them.

Both are listed by ApiVersions if this broker shows metrics (metrics.listener); else clients send none.
Source: kafka.server.KafkaApis (handleGetTelemetrySubscriptionsRequest, handlePushTelemetryRequest), KIP-714.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkalite.api.request.client_telemetry import CODECS, ClientTelemetry
from kafkalite.api.request.request_context import RequestContext
from kafkalite.common.errors import KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.protocol.messages import telemetry as wire


class TelemetryApi(NamedTuple):
    """The APIs of metrics of clients."""

    config: Callable[[], BrokerConfig]
    telemetry: ClientTelemetry

    def get_telemetry_subscriptions(
        self, request: wire.GetTelemetrySubscriptionsRequest, context: RequestContext
    ) -> wire.GetTelemetrySubscriptionsResponse:
        try:
            instance = self.telemetry.subscription(request.client_instance_id, _client(context))
        except KafkaError as error:
            return wire.GetTelemetrySubscriptionsResponse(error_code=error.code)
        return wire.GetTelemetrySubscriptionsResponse(
            client_instance_id=instance.instance_id,
            subscription_id=instance.subscription_id,
            accepted_compression_types=list(CODECS),
            push_interval_ms=instance.interval_ms,
            telemetry_max_bytes=self.config().telemetry_max_bytes,
            delta_temporality=True,
            requested_metrics=list(instance.metrics),
        )

    def push_telemetry(self, request: wire.PushTelemetryRequest, context: RequestContext) -> wire.PushTelemetryResponse:
        try:
            self.telemetry.push(
                request.client_instance_id,
                _client(context),
                request.subscription_id,
                request.compression_type,
                request.metrics,
                bytes_max=self.config().telemetry_max_bytes,
                is_last=request.terminating,
            )
        except KafkaError as error:
            return wire.PushTelemetryResponse(error_code=error.code)
        return wire.PushTelemetryResponse()


def _client(context: RequestContext) -> dict[str, str]:
    """The properties that subscriptions match, besides the client's instance id."""
    connection = context.connection
    return {
        "client_id": context.client_id or "",
        "client_software_name": connection.client_software_name or "unknown",
        "client_software_version": connection.client_software_version or "unknown",
        "client_source_address": connection.host,
        "client_source_port": str(connection.port),
    }
