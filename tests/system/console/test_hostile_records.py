"""Hostile records against a console of its own process, the commands and the test kit.

Bombs of every format, schemas that refer to themselves, counts of 2^40: each record is shown, the console's memory
stays, and its other pages answer meanwhile.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from google.protobuf import descriptor_pb2

from kafkalite.testing import Broker
from tests.support.broker_process import environment
from tests.support.console_process import ConsoleProcess
from tests.support.hostile_records import hostile_records
from tests.support.schema_registry import Registry, schema_registry
from tests.support.wait import DEADLINE_S

MORE_BYTES_MAX = 64 << 20  # of the console and its decoders; of 20,000 records ten have 10 MB
PAGE_S_MAX = 1.0
WARM = 200
SELF = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
HOLDS = {"type": "record", "name": "H", "fields": [{"name": "always", "type": "H"}]}
SCHEMAS = (
    SELF,
    HOLDS,
    {"type": "array", "items": "null"},
    {"type": "map", "values": {"type": "array", "items": "null"}},
    "string",
    {"type": "bytes", "logicalType": "decimal", "precision": 10_000, "scale": 9_000},
    {"type": "array", "items": SELF},
    {"type": "enum", "name": "E", "symbols": ["A"]},
)


def fill(registry: Registry) -> None:
    for number, schema in enumerate(SCHEMAS):
        registry.register(f"s{number}", json.dumps(schema))
    registry.register("refers-to-itself", '"string"', references=[{"name": "x", "subject": "r", "version": 1}])
    registry.register("r", '"x"', references=[{"name": "y", "subject": "refers-to-itself", "version": 1}])
    file = descriptor_pb2.FileDescriptorProto(name="x", syntax="proto3")
    message = file.message_type.add(name="M")
    message.field.add(name="m", number=1, type=11, type_name=".M", label=3)
    text = base64.b64encode(file.SerializeToString()).decode()
    registry.register("protobuf", "message M {}", "PROTOBUF", serialized=text)


@pytest.fixture(
    scope="module",
    params=[500, pytest.param(20_000, marks=pytest.mark.long)],
    ids=["some", "many"],
)
def count(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def broker(count: int) -> Iterator[Broker]:
    with Broker(message_max_bytes=20_000_000) as broker:
        broker.create_topic("hostile", max_message_bytes=20_000_000)
        for one in hostile_records(count, seed=3):
            broker.produce("hostile", key=one.key, value=one.value, headers=[one.header])
        yield broker


@pytest.fixture(scope="module")
def process(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    with schema_registry() as registry:
        fill(registry)
        options = ("--schema-registry", registry.url)
        with ConsoleProcess(broker.bootstrap_servers, tmp_path_factory.mktemp("hostile"), *options) as process:
            yield process


def offsets(client: httpx.Client, at: int, **query: str) -> list[int]:
    """The offsets of a page of records, whose answer is whole."""
    place = {"from": "offset", "offset": str(at), "limit": "1000", "max_bytes": str(1 << 32)}
    text = client.get("/api/topics/hostile/messages", params={**place, **query}).text
    events = [block.split("\n") for block in text.split("\n\n") if block]
    assert events[-1][0] == "event: done", events[-1]
    found = [json.loads(data.removeprefix("data: ")) for name, data in events if name == "event: record"]
    assert all(len(one["value"]["text"]) <= 2 * 10_240 for one in found)
    return [one["offset"] for one in found]


def resident_bytes(pid: int) -> int:
    """The resident memory of a process and its children."""
    found = 0
    for one in (pid, *children(pid)):
        with suppress(FileNotFoundError):  # a decoder that has ended meanwhile
            fields = dict(line.split(":", 1) for line in Path(f"/proc/{one}/status").read_text().splitlines())
            found += int(fields.get("VmRSS", "0").split()[0]) << 10
    return found


def cpu_s(pid: int) -> float:
    """The processor time of a process, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    return [int(one) for task in Path(f"/proc/{pid}/task").glob("*/children") for one in task.read_text().split()]


QUERIES = {
    "registry": {},
    "msgpack": {"value_format": "msgpack"},
    "cbor": {"value_format": "cbor"},
    "integer": {"value_format": "integer", "key_format": "uuid"},
    "avro": {"value_format": "avro", "value_schema": json.dumps(SELF)},
}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", QUERIES)
def test_every_record_is_shown_and_memory_stays(process: ConsoleProcess, count: int, name: str) -> None:
    with httpx.Client(base_url=process.url, timeout=DEADLINE_S) as client, Visits(process) as visits:
        offsets(client, 0, limit=str(WARM), **QUERIES[name])  # the process has loaded what it needs
        before, found = resident_bytes(process.pid), list[int]()
        while len(found) < count:
            found += offsets(client, len(found), **QUERIES[name])
        more = resident_bytes(process.pid) - before
    assert found == list(range(count))
    assert more <= MORE_BYTES_MAX, more
    assert visits.count and visits.longest_s < DEADLINE_S / 4, visits
    assert visits.longest_cpu_s < PAGE_S_MAX, visits
    print(f"{name}: {more / (1 << 20):.1f} MiB more, {visits}")


@pytest.mark.timeout(1800)
def test_expressions_go_through_any_record(process: ConsoleProcess, count: int) -> None:
    query = {"from": "beginning", "filter": "value.all(a, a.all(b, b == 1)) || key == 'x'"}
    query |= {"max_records": "1000000", "max_bytes": str(1 << 32)}
    with httpx.Client(base_url=process.url, timeout=DEADLINE_S) as client, Visits(process) as visits:
        client.get("/api/topics/hostile/messages", params={**query, "max_records": str(WARM)})
        before = resident_bytes(process.pid)
        text = client.get("/api/topics/hostile/messages", params=query).text
        more = resident_bytes(process.pid) - before
    done = json.loads(text.rsplit("data: ", 1)[1])
    assert done["scanned"] >= min(count, 50) and done["reason"] in ("end", "limit", "max_ms"), done
    assert more <= MORE_BYTES_MAX, more
    assert visits.longest_cpu_s < PAGE_S_MAX, visits
    print(f"expressions: {more / (1 << 20):.1f} MiB more, {visits}")


class Visits:
    """Other pages, asked one after the other until the end of the block, one at least. A page takes the time that the
    console's process computes meanwhile, and on a busy machine any time more."""

    def __init__(self, process: ConsoleProcess) -> None:
        self._url, self._pid = process.url, process.pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.count, self.longest_s, self.longest_cpu_s = 0, 0.0, 0.0

    def __str__(self) -> str:
        slowest = f"the slowest took {self.longest_s:.2f} s, {self.longest_cpu_s:.2f} s of the console's processor time"
        return f"{self.count} other pages, {slowest}"

    def __enter__(self) -> Visits:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(DEADLINE_S)

    def _run(self) -> None:
        with httpx.Client(base_url=self._url, timeout=DEADLINE_S) as client:
            while not (self.count and self._over.wait(0.05)):
                began_s, began_cpu_s = time.monotonic(), cpu_s(self._pid)
                assert client.get("/api/topics").status_code == 200
                self.longest_s = max(self.longest_s, time.monotonic() - began_s)
                self.longest_cpu_s = max(self.longest_cpu_s, cpu_s(self._pid) - began_cpu_s)
                self.count += 1


COMMAND = """
import sys
from kafkalite.cli.main import main
code = main(sys.argv[1:])
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")), file=sys.stderr)
sys.exit(code)
"""
"""A command that ends with the KiB of memory that it had at most: what the system counts for it begins with the size
of the process that has started it."""


def told(*words: str) -> tuple[bytes, int]:
    """The output of a command that ends well, and the most memory that it had."""
    command = [sys.executable, "-c", COMMAND, *words]
    done = subprocess.run(command, capture_output=True, env=environment(), timeout=DEADLINE_S, check=False)
    assert done.returncode == 0 and b"Traceback" not in done.stderr, done.stderr[-2000:]
    return done.stdout, int(done.stderr.split()[-1]) << 10


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
def test_consume_prints_every_record(broker: Broker, count: int, options: list[str]) -> None:
    words = ["consume", "hostile", "-b", broker.bootstrap_servers, *options]
    _, usual_bytes = told(*words, "--count", str(WARM))
    out, bytes_max = told(*words)
    if options:  # as text, values go into a pipe as they are
        assert [json.loads(line)["offset"] for line in out.splitlines()] == list(range(count))
    print(f"consume {options}: {(bytes_max - usual_bytes) / (1 << 20):.1f} MiB more")
    assert bytes_max - usual_bytes <= MORE_BYTES_MAX


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_read_writes_every_record(broker: Broker, count: int, form: str) -> None:
    words = ["read", "hostile", "--data-dir", str(broker.data_dir), "-f", form, "--columns", "offset,key,value"]
    _, usual_bytes = told(*words, "--ending-offsets", json.dumps({"hostile": {"0": WARM}}))
    out, bytes_max = told(*words)
    if form == "jsonl":
        assert [json.loads(line)["offset"] for line in out.splitlines()] == list(range(count))
    print(f"read {form}: {(bytes_max - usual_bytes) / (1 << 20):.1f} MiB more")
    assert bytes_max - usual_bytes <= MORE_BYTES_MAX


def test_the_test_kit_reads_every_record(broker: Broker, count: int) -> None:
    found = broker.records("hostile")
    assert len(found) == count
    assert [one.value for one in found] == [one.value for one in hostile_records(count, seed=3)]
