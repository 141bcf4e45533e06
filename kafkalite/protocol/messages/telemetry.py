"""GetTelemetrySubscriptions (71) and PushTelemetry (72): metrics of clients, which the broker asks for (KIP-714)."""

from __future__ import annotations

from uuid import UUID

from kafkalite.protocol.codec.schema import INT8, STRING, Message, array, blob, boolean, int8, int16, int32, uuid


class GetTelemetrySubscriptionsRequest(Message, flexible="0+"):
    client_instance_id: UUID = uuid("0+")  # zero: the client has none yet


class GetTelemetrySubscriptionsResponse(Message, flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    client_instance_id: UUID = uuid("0+")
    subscription_id: int = int32("0+")
    accepted_compression_types: list[int] = array(INT8, "0+")
    push_interval_ms: int = int32("0+")
    telemetry_max_bytes: int = int32("0+")
    delta_temporality: bool = boolean("0+")
    requested_metrics: list[str] = array(STRING, "0+")  # prefixes; none: no metrics; "*" or "": all


class PushTelemetryRequest(Message, flexible="0+"):
    client_instance_id: UUID = uuid("0+")
    subscription_id: int = int32("0+")
    terminating: bool = boolean("0+")
    compression_type: int = int8("0+")
    metrics: bytes = blob("0+")  # MetricsData of OpenTelemetry, version 1


class PushTelemetryResponse(Message, flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
