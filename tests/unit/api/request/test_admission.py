"""The rules that decide whether a client's batch may be appended, and the one place that appends it."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.api.request.admission import (
    ProduceAdmission,
    TopicAdmission,
    append_directly,
    append_for,
    append_transactional,
)
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.protocol.messages.produce import ProduceRequest
from tests.support.places import ROOT

BATCH = memoryview(b"batch")


def topic(*, internal: bool = False, min_insync_replicas: int = 1) -> Any:
    config = SimpleNamespace(min_insync_replicas=min_insync_replicas)
    return SimpleNamespace(name="t", internal=internal, config=config, admission=None)


class Log:
    """A partition that remembers the versions of its batches, and how they were appended."""

    index = 0

    def __init__(self, in_sync: int = 1) -> None:
        self.versions: list[int] = []
        self._in_sync = in_sync

    def check_in_sync(self) -> None:
        if self._in_sync < 2:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)

    def append(self, records: memoryview, now_ms: int, version: int) -> str:
        self.versions.append(version)
        return "appended"


def strict(topic: Any, acks: int, client_id: str | None, version: int = 9) -> TopicAdmission:
    return TopicAdmission(topic, acks, client_id, version, Log.append)  # type: ignore[arg-type]


def outcome(admitted: TopicAdmission, records: memoryview | None = BATCH, version: int = 9, *, in_sync: int = 1) -> Any:
    try:
        return admitted.check_and_append(Log(in_sync), records, 0, version)  # type: ignore[arg-type]
    except KafkaError as error:
        return error.code


@pytest.mark.parametrize(
    ("acks", "transactional_id", "expected"),
    [
        (2, None, ErrorCode.INVALID_REQUIRED_ACKS),
        (2, "id", ErrorCode.INVALID_REQUIRED_ACKS),
        (-1, "id", None),
        (0, None, None),
        (1, None, None),
        (-1, None, None),
    ],
)
def test_a_request_is_refused_as_a_whole(acks: int, transactional_id: str | None, expected: ErrorCode | None) -> None:
    admission = ProduceAdmission(SimpleNamespace(by_name={}))  # type: ignore[arg-type]
    assert admission.request_error(ProduceRequest(acks=acks, transactional_id=transactional_id)) is expected
    assert admission.topic("t", acks, None, 9) is None


def test_the_rules_are_evaluated_in_order() -> None:
    wide = {"min_insync_replicas": 2}
    assert outcome(strict(topic(internal=True, **wide), -1, "c"), None) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert outcome(strict(topic(**wide), -1, "c"), None) == ErrorCode.INVALID_RECORD
    assert outcome(strict(topic(**wide), -1, "c")) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert outcome(strict(topic(**wide), -1, "c"), in_sync=2) == "appended"
    assert outcome(strict(topic(**wide), 1, "c")) == "appended"
    assert outcome(strict(topic(internal=True), -1, "__admin_client")) == "appended"


def test_a_batch_goes_straight_to_the_partition_where_no_rule_depends_on_it() -> None:
    def is_direct(topic: Any, acks: int = -1, version: int = 9) -> bool:
        return TopicAdmission(topic, acks, None, version).append is append_directly

    assert is_direct(topic())
    assert is_direct(topic(min_insync_replicas=2), acks=1)
    assert not is_direct(topic(min_insync_replicas=2))
    assert not is_direct(topic(internal=True))
    assert not is_direct(topic(), version=2)


def test_a_request_with_a_transactional_id_may_bring_transactional_batches() -> None:
    plain = topic()
    admission = ProduceAdmission(SimpleNamespace(by_name={"t": plain}))  # type: ignore[arg-type]
    assert append_for(None) is append_directly
    admitted = admission.topic("t", -1, "a", 9, append_for("x"))
    assert admitted is not None and admitted.append is append_transactional and plain.admission is None
    calls: list[Any] = []

    class Recorder:
        def append(self, *batch: Any, **how: Any) -> None:
            calls.append((*batch, how))

    admitted.append(Recorder(), BATCH, 5, 9)  # type: ignore[arg-type]
    plain.internal = True
    admitted = admission.topic("t", -1, "__admin_client", 9, append_for("x"))
    assert admitted is not None
    admitted.append(Recorder(), BATCH, 6, 9)  # type: ignore[arg-type]
    assert calls == [(BATCH, now_ms, 9, {"transactional": True, "guard": None}) for now_ms in (5, 6)]


def test_requests_that_no_rule_depends_on_share_one_admission() -> None:
    plain = topic()
    admission = ProduceAdmission(SimpleNamespace(by_name={"t": plain}))  # type: ignore[arg-type]
    shared = admission.topic("t", -1, "a", 9)
    assert shared is not None and shared.append is append_directly
    assert admission.topic("t", 1, "b", 7) is shared and admission.topic("t", -1, "a", 2) is not shared
    plain.config.min_insync_replicas = 2
    conditional = admission.topic("t", -1, "a", 9)
    assert conditional is not None and outcome(conditional) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert admission.topic("t", 1, "a", 9) is shared and outcome(shared, None) == ErrorCode.INVALID_RECORD


def test_nothing_else_in_the_api_appends_to_a_partition() -> None:
    """A function of the class would pass over what a partition with several replicas does besides."""
    appends = re.compile(r"\bpartition\.append\(|\blog\.append\(")
    of_class = re.compile(r"\bPartition\.append\b")
    texts = {path.name: path.read_text() for path in (ROOT / "kafkalite/api").rglob("*.py")}
    assert {name for name, text in texts.items() if appends.search(text)} == {
        "admission.py",
        "produce_fast_path.py",
        "wide_produce.py",
    }
    assert not [name for name, text in texts.items() if of_class.search(text)]
