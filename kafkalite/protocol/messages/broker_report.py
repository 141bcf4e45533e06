"""BrokerReport (27501): reports for the console that Kafka's protocol has no request for. Read-only.

Not an API of Apache Kafka, as RunCleaner beside it (see `cleaner`). Arguments and contents are JSON: a report is for
people, its fields change with the pages that show them, and an unused old field is harmless.
"""

from __future__ import annotations

from kafkalite.protocol.codec.schema import Message, blob, int16, int32, string

BROKER_REPORT_KEY = 0x6B6D


class BrokerReportRequest(Message, flexible="0+"):
    """`kind` names the report; `arguments` is a JSON object."""

    kind: str = string("0+")
    arguments: str = string("0+")


class BrokerReportResponse(Message, flexible="0+"):
    """`content` is JSON in UTF-8, empty with an error code."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    content: bytes = blob("0+")
