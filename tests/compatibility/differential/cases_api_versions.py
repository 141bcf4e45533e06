"""ApiVersions: which table, and what becomes of a version that is too new."""

from __future__ import annotations

from kafkalite.protocol.header import decode_response, request_frame
from kafkalite.protocol.messages.metadata import ApiVersionsRequest
from tests.compatibility.differential.engine import Explained, Teller, every_version, in_versions, once

OWN_TABLE = Explained(
    "the table of APIs is kafkalite's own",
    "it lists what works here, with APIs of Kafka 4.3; those of client metrics (KIP-714) while metrics.listener is set",
    "api_keys.**",
)
OWN_FEATURES = Explained(
    "the features are group.version and transaction.version, finalized at their highest levels",
    "Kafka 4 offers them so, and the clients of transactions of version 2 look for the latter",
    "supported_features",
    "supported_features.**",
    "finalized_features",
    "finalized_features.**",
    "finalized_features_epoch",
)


@every_version("ApiVersions")
def what_is_listed(t: Teller) -> None:
    request = ApiVersionsRequest(client_software_name="differ", client_software_version="1.0")
    t.ask("the table", request, but=(OWN_TABLE, OWN_FEATURES) if t.v >= 3 else OWN_TABLE)


@in_versions(3, 4)
def who_asks(t: Teller) -> None:
    but = (OWN_TABLE, OWN_FEATURES)
    for name, version in (
        ("apache-kafka-java", "3.9.1"),
        ("librdkafka", "v2.6.0-RC1"),
        ("a", "1"),
    ):
        t.ask(
            f"{name} {version}", ApiVersionsRequest(client_software_name=name, client_software_version=version), but=but
        )
    for name, version in (
        ("", ""),
        ("differ", ""),
        ("", "1.0"),
        ("my client", "1.0"),
        ("-differ", "1.0"),
        ("differ", "1.0-"),
    ):
        t.ask(f"{name!r} {version!r}", ApiVersionsRequest(client_software_name=name, client_software_version=version))


@once
def newer_than_known(t: Teller) -> None:
    """Answered in version 0, with what to ask in instead."""
    request = ApiVersionsRequest(client_software_name="differ", client_software_version="1.0")
    for version in (5, 99, -1):
        asked = bytearray(request_frame(request, 3, 7, "differ"))
        asked[6:8] = version.to_bytes(2, "big", signed=True)
        answer = t.say(f"version {version}", bytes(asked))
        if answer is not None:
            _, response = decode_response(ApiVersionsRequest, 0, memoryview(answer))
            t.note(f"what it says to {version}", response, 0)


@once
def twice_on_one_connection(t: Teller) -> None:
    t.ask("first", ApiVersionsRequest(), 0, but=OWN_TABLE)
    t.ask("again", ApiVersionsRequest(), 2, but=OWN_TABLE)
