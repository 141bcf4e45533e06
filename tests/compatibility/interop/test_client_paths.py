"""Java's clients of 3.9.1 and 4.3.0 ask in the same versions here as of the Kafka of their own version, and find the
same: paged descriptions, records by topic ids, and all that they choose by the list of APIs."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from bench.reference import ReferenceUnavailable, reference_kafka
from bench.reference.jars import java
from kafkalite import Broker
from tests.compatibility.interop.conftest import CACHE

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
PROGRAMS = Path(__file__).parent / "java"
NEWEST = {
    "3.9.1": {"PRODUCE": {11}, "FETCH": {17}, "METADATA": {12}, "LIST_OFFSETS": {9}, "END_TXN": {4}},
    "4.3.0": {"PRODUCE": {13}, "FETCH": {18}, "METADATA": {13}, "LIST_OFFSETS": {11}, "END_TXN": {5}},
}
SETTINGS = {"offsets.topic.num.partitions": "5", "transaction.state.log.num.partitions": "2"}
_SENT = re.compile(r"Sending (\w+) request with header RequestHeader\(apiKey=\w+, apiVersion=(\d+)")
_LOG = "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.clients.NetworkClient=debug"
_SECONDS = 180


def paths(version: str, bootstrap: str) -> tuple[str, dict[str, set[int]]]:
    """The program's output with the clients of `version`, and the versions that it asked in, by API."""
    command = [java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", _LOG, "-cp", f"{clients(version)}/*"]
    command += [str(PROGRAMS / "EveryPath.java"), bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    assert done.returncode == 0, done.stderr[-3000:]
    asked = defaultdict(set)
    for api, api_version in _SENT.findall(done.stderr):
        asked[api].add(int(api_version))
    return done.stdout, dict(asked)


def clients(version: str) -> Path:
    jars = CACHE / "java" / f"clients-{version}"
    if not jars.is_dir():
        maven = shutil.which("mvn") or pytest.skip("no mvn on this machine")
        partial = jars.with_name(f"{jars.name}.partial")
        command = [maven, "-q", "-B", "-f", str(PROGRAMS / "pom-clients.xml"), f"-Dkafka.version={version}"]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={partial}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
        if done.returncode != 0:
            pytest.skip(f"Maven cannot fetch the clients of Kafka {version}: {done.stdout[-300:]}")
        partial.rename(jars)
    return jars


@pytest.mark.parametrize("version", sorted(NEWEST))
def test_the_same_paths_as_at_kafka(version: str) -> None:
    with Broker(port=0) as broker:
        said, asked = paths(version, f"127.0.0.1:{broker.port}")
    assert "partitions 7" in said and "records 80" in said, said
    assert {api: asked[api] for api in NEWEST[version]} == NEWEST[version]
    try:
        with reference_kafka(version, heap="512m", properties=SETTINGS) as kafka:
            assert (said, asked) == paths(version, kafka.bootstrap)
    except ReferenceUnavailable as reason:
        pytest.skip(str(reason))
