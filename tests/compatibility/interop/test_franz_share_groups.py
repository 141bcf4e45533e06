"""franz-go's own tests of share groups, which it runs at Kafka 4.2 and later: chains of groups with members that come,
go, release and reject; acknowledgements at the end of a client; offsets set by an administrator."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compatibility.interop.conftest import BrokerProcess
from tests.compatibility.interop.golang import FIRST_BUILD_S, Go, pinned

pytestmark = [pytest.mark.long, pytest.mark.timeout(FIRST_BUILD_S)]
ECOSYSTEM = "Go"
VERSION = pinned("franz", "github.com/twmb/franz-go")
RECORDS = 20_000
BROKER_SETTINGS = {
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
}
EXPECTED = {"TestShareGroupETL", "TestShareGroupAckOnClose", "TestShareGroupOffsetsAdmin"}


def test_its_own_tests(
    broker: BrokerProcess,
    proved: Callable[[str, str, str], None],
    need: Callable[[str], str],
    cache: Callable[[str], Path],
) -> None:
    proved("franz-go", VERSION, "its own tests of share groups")
    settings = {"KGO_SEEDS": broker.bootstrap, "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": str(RECORDS)}
    said = Go(need("go"), cache("go")).test_library("franz", "github.com/twmb/franz-go/pkg/kgo", "Share", settings)
    passed = set(re.findall(r"^--- PASS: (\w+)", said, re.MULTILINE))
    assert passed >= EXPECTED, said[-4_000:]
