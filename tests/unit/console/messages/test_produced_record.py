"""Records that a form writes: the bytes of keys, values and headers, and the record that a broker gets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite import Broker
from kafkalite.client.cluster_client import ClusterClient, WriteFailed
from kafkalite.console.handlers.messages import produce_message
from kafkalite.console.request.parameters import ApiError, of_client

_BODY = {
    "key": None, "key_encoding": "text", "value": "v", "value_encoding": "text", "partition": None, "headers": None,
    "timestamp_ms": 1_000, "compression": "none",
}  # fmt: skip


def produce(cluster: Any, **body: Any) -> Any:
    call: Any = SimpleNamespace(path={"topic": "t"}, body={**_BODY, **body}, cluster=cluster, timeout_s=5.0)
    return produce_message(call)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"value": "?", "value_encoding": "base64"}, "value is no base64"),
        ({"key": "a", "key_encoding": "base64"}, "key is no base64"),
        ({"headers": [{"name": 7}]}, "a header is"),
        ({"headers": [{"name": "h", "value": "\ud800"}]}, "not valid Unicode"),
        ({"partition": 9}, "has the partitions 0 to 1"),
    ],
)
def test_a_form_that_makes_no_record_is_refused(body: dict[str, Any], why: str) -> None:
    cluster = SimpleNamespace(places={("t", 0): None, ("t", 1): None})
    with pytest.raises(ApiError, match=why):
        produce(cluster, **body)


def test_a_record_is_written_once_where_a_producer_would_write_it() -> None:
    with Broker() as broker:
        broker.create_topic("t", 2)
        with ClusterClient(broker.bootstrap_servers, 5) as cluster:
            first = produce(cluster, key="k", value="/w==", value_encoding="base64", headers=[{"name": "h"}])
            second = produce(cluster, key="k", compression="zstd")
        assert first == {"ok": True, "partition": second["partition"], "offset": 0, "timestamp_ms": 1_000}
        assert second["offset"] == 1
        found = broker.records("t")
        assert [(one.key, one.value, one.timestamp) for one in found] == [(b"k", b"\xff", 1000), (b"k", b"v", 1000)]
        assert list(found[0].headers) == [("h", None)]


def test_a_retriable_refusal_is_tried_again() -> None:
    with Broker() as broker:
        broker.create_topic("t")
        with (
            ClusterClient(broker.bootstrap_servers, 5) as cluster,
            broker.faults.error("PRODUCE", "NOT_ENOUGH_REPLICAS", times=2),
        ):
            assert produce(cluster)["offset"] == 0


def test_faults_of_a_writer_are_answers() -> None:
    refused = of_client(WriteFailed("t-0 refuses records: MESSAGE_TOO_LARGE"))
    assert (refused.status, refused.name) == (409, "REFUSED")
    denied = of_client(WriteFailed("t-0 refuses records: TOPIC_AUTHORIZATION_FAILED"))
    assert (denied.status, denied.name) == (403, "NOT_PERMITTED")
