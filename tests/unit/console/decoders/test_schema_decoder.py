"""A record that harms its decoder costs that record only; the console and the other records live."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalite.console.decoders import schema_decoder
from kafkalite.console.decoders.schema_decoder import DecoderPool, SchemaDecoder, SchemaRefused
from kafkalite.console.decoders.wire import AVRO, DATA_BYTES_MAX, ENDS_MAX, PROTOBUF, Schema
from tests.support.wait import until

LIST = Schema(
    AVRO,
    json.dumps({"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}),
)
NULLS = Schema(AVRO, json.dumps({"type": "array", "items": "null"}))
DEEP = b"\2" * 400_000 + b"\0"
ENDLESS = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"  # a block of 2^62 - 1 nulls
NUMBER = Schema(AVRO, '"long"')


def told(decode: SchemaDecoder, *records: bytes) -> list[str]:
    """The text for each record, in one exchange as far as that is possible."""
    decode.expect(records)
    found = []
    for data in records:
        try:
            found.append(decode(data))
        except ValueError as fault:
            found.append(f"! {fault}")
    return found


def test_a_record_that_overflows_the_stack_costs_itself(pool: DecoderPool) -> None:
    whole = '{"next": {"next": null}}'
    found = told(SchemaDecoder(pool, LIST), b"\2\0", DEEP, b"\2\2\0", b"\0")
    assert found == [whole, "! it is nested too deeply", '{"next": {"next": {"next": null}}}', '{"next": null}']
    assert told(SchemaDecoder(pool, LIST), b"\2\0") == [whole]  # the next search


@pytest.mark.thorough
def test_a_few_bytes_that_fill_memory_cost_themselves(pool: DecoderPool) -> None:
    found = told(SchemaDecoder(pool, NULLS), b"\4\0", ENDLESS, b"\2\0")
    assert found[0] == "[null, null]" and found[2] == "[null]"
    assert found[1].startswith(("! it needs more than", "! it takes more than"))


@pytest.mark.thorough
def test_a_record_that_takes_too_long_costs_itself(pool: DecoderPool) -> None:
    """A map gets the same key again and again, each time with an array of 8 million nulls in place of the last."""
    schema = Schema(AVRO, json.dumps({"type": "map", "values": {"type": "array", "items": "null"}}))
    again = b"\0" + b"\x80\x80\x80\x08" + b"\0"
    found = told(SchemaDecoder(pool, schema), b"\0", b"\xa0\x1f" + again * 2_000 + b"\0", b"\2\2k\2\0\0")
    assert found == ["{}", "! it takes more than 1 s", '{"k": [null]}']


@pytest.mark.thorough
def test_a_search_gives_up_after_some_ends(pool: DecoderPool) -> None:
    deep = [DEEP + bytes([each]) for each in range(ENDS_MAX + 3)]
    found = told(SchemaDecoder(pool, LIST), *deep, b"\2\0")
    assert found[:ENDS_MAX] == ["! it is nested too deeply"] * ENDS_MAX
    assert all(each.startswith("! not decoded") for each in found[ENDS_MAX:])


def test_a_search_gives_up_when_records_take_too_long(pool: DecoderPool) -> None:
    now_s = iter(range(0, 10_000, 20))
    decode = SchemaDecoder(pool, NUMBER, monotonic_s=lambda: float(next(now_s)))
    found = []
    for record in (b"\2", b"\4", b"\6"):  # each takes 20 s
        found += told(decode, record)
    assert found == ["1", "2", "! not decoded: earlier records have taken too long"]


def test_a_schema_that_ends_the_process_is_refused(pool: DecoderPool) -> None:
    itself = json.dumps({"type": "record", "name": "L", "fields": [{"name": "next", "type": "L"}]})
    for text in (itself, "nonsense", '"L"', "[" * 100_000, '{"type": "array", "items":' * 3_000, ""):
        with pytest.raises(SchemaRefused):
            SchemaDecoder(pool, Schema(AVRO, text))
    assert told(SchemaDecoder(pool, NUMBER), b"\2") == ["1"]


@pytest.mark.parametrize("text", ["", "?", "aGFsbG8=", "CgVhYmM="])
def test_a_set_of_descriptors_that_is_none_is_refused(pool: DecoderPool, text: str) -> None:
    with pytest.raises(SchemaRefused):
        SchemaDecoder(pool, Schema(PROTOBUF, text, "a.B"))


def test_what_is_larger_than_the_limit_is_not_sent(pool: DecoderPool) -> None:
    found = told(SchemaDecoder(pool, NUMBER), b"\2", bytes(DATA_BYTES_MAX + 1), b"\4")
    assert found == ["1", "! more than 32 MiB are not decoded", "2"]


def test_many_records_need_few_exchanges(pool: DecoderPool, monkeypatch: pytest.MonkeyPatch) -> None:
    exchanges: list[int] = []
    submit = pool.submit
    monkeypatch.setattr(
        pool, "submit", lambda schema, records: exchanges.append(len(records)) or submit(schema, records)
    )
    records = [bytes([0x80 | number & 0x7F, number >> 7]) for number in range(0, 10_000, 2)]
    assert told(SchemaDecoder(pool, NUMBER), *records)[-1] == "4999"
    assert sum(exchanges) == len(records) and len(exchanges) < 10


def test_what_was_not_expected_is_decoded_all_the_same(pool: DecoderPool) -> None:
    decode = SchemaDecoder(pool, NUMBER)
    decode.expect([b"\2", None, b"\4"])
    assert [decode(b"\6"), decode(b"\4"), decode(b"\2"), decode(b"\2")] == ["3", "2", "1", "1"]


def test_found_records_are_forgotten_when_they_are_many(pool: DecoderPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_decoder, "KEPT_BYTES_MAX", 3)
    decode = SchemaDecoder(pool, NUMBER)
    told(decode, b"\2", b"\4")
    decode.expect([])
    assert decode._found == {}


def test_no_process_runs_before_a_schema_is_given_and_none_behind_the_pool() -> None:
    pool = DecoderPool()
    assert pool.pids == []
    told(SchemaDecoder(pool, NUMBER), b"\2")
    (pid,) = pool.pids
    pool.close()
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(OSError, match="ends"):
        SchemaDecoder(pool, NUMBER)


def test_a_process_that_was_killed_meanwhile_is_replaced(pool: DecoderPool) -> None:
    decode = SchemaDecoder(pool, NUMBER)
    (pid,) = pool.pids
    os.kill(pid, signal.SIGKILL)
    assert told(decode, b"\2", b"\4", b"\6") == ["1", "2", "3"]


_CONSOLE = """
import sys, time
from kafkalite.console.decoders.schema_decoder import DecoderPool, SchemaDecoder
from kafkalite.console.decoders.wire import AVRO, Schema
pool = DecoderPool()
SchemaDecoder(pool, Schema(AVRO, '"long"'))
print(*pool.pids, flush=True)
time.sleep(600)
"""


def test_the_process_ends_with_the_console_even_if_that_is_killed() -> None:
    console = subprocess.Popen([sys.executable, "-c", _CONSOLE], stdout=subprocess.PIPE, text=True)
    assert console.stdout is not None
    try:
        pid = int(console.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
    finally:
        console.kill()
        console.wait()
        console.stdout.close()
    until(lambda: not _runs(pid), "the end of the decoder")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
