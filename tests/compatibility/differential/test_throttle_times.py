"""Which answers tell a client over its quota of request time to wait: those that do so at Apache Kafka.

pytest -m long tests/compatibility/differential/test_throttle_times.py
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.reference import ReferenceUnavailable
from kafkalite.protocol.apis import API_OF_REQUEST
from kafkalite.protocol.header import decode_response, request_frame
from kafkalite.protocol.messages.entity_configs import AlterClientQuotasRequest
from tests.compatibility.differential import brokers
from tests.compatibility.differential.cases_quotas import alter, altered
from tests.compatibility.differential.engine import OLDER, Story, Teller
from tests.support.authorization_cases import CASES, NEWER, OWN, Names
from tests.support.wait import DEADLINE_S

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
CLIENT = "over-its-quota"
ONE_WINDOW_MS = 1_000
NOT_ASKED = (*OWN, *NEWER)


def throttle_time(address: tuple[str, int], title: str, names: Names) -> int | None:
    """The throttle time in the answer to a client whose quota is used up; None if it has no such field."""
    make, version, _ = CASES[title]
    request = make(names)
    with socket.create_connection(address, timeout=DEADLINE_S) as sock:
        sock.sendall(request_frame(request, version, 1, CLIENT))
        with sock.makefile("rb") as stream:
            frame = stream.read(int.from_bytes(stream.read(4), "big"))
    _, answer = decode_response(type(request), version, memoryview(frame))
    return getattr(answer, "throttle_time_ms", None)


def quota(t: Teller, percentage: float | None) -> AlterClientQuotasRequest:
    request = alter(altered({"client-id": CLIENT}, request_percentage=percentage))
    assert t.aside(request, 1).entries[0].error_code == 0
    return request


def throttled(address: tuple[str, int]) -> dict[str, bool | None]:
    """For each case, whether the client is told to wait."""
    t = Teller(address, "throttle_times", Story(throttle_time, (0,)), 0)
    told: dict[str, bool | None] = {}
    try:
        names = Names(t.topic(), t.group(), t.transactional_id(), "1")
        quota(t, 1e-6)
        while not throttle_time(address, "coordinator", names):
            pass  # a broker learns of a quota a moment after it is answered
        for title in CASES:
            if title not in NOT_ASKED:
                waits_ms = throttle_time(address, title, names)
                told[title] = None if waits_ms is None else waits_ms > 0
                assert waits_ms is None or waits_ms <= ONE_WINDOW_MS
        quota(t, None)
    finally:
        t.close()
    return told


def test_the_same_answers_tell_clients_to_wait(
    kafkalites: Callable[[str], tuple[str, int]], kafkas: Callable[[str, bool], tuple[str, int]], tmp_path: Path
) -> None:
    try:
        theirs = throttled(kafkas(OLDER, True))
    except ReferenceUnavailable as reason:
        pytest.skip(str(reason))
    ours = throttled(kafkalites(brokers.SECURED[0]))
    apis = {API_OF_REQUEST[type(CASES[title][0](Names()))].name for title in ours}
    assert len(apis) > 40
    assert ours == theirs
    assert sum(told is True for told in theirs.values()) > 40
