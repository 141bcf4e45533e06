"""The program that does the least of a broker answers the generators as a broker does."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from bench import ceiling
from bench.ceiling import ROWS, NoCompiler, Served, compile_to, limit, row
from bench.records import record_batch
from bench.wire import produce_frame
from kafkalite.record.batch import HEADER_BYTES, iter_batches


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return compile_to(tmp_path_factory.mktemp("ceiling"))
    except NoCompiler as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", ROWS)
def test_each_row_is_served(program: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceiling, "FILE_BYTES", 16 << 20)
    found = limit(program, tmp_path, name, 0.02)
    assert found.per_second > 0
    assert (found.p50_us is not None) == (name == "closed-loop-1x100B")
    assert row(name, found._replace(cpu_us=2.0), Served(1.0, 1.0)).endswith("50%")


def test_batches_are_stored_with_their_offsets(program: Path, tmp_path: Path) -> None:
    batch = record_batch(3, 100)
    frame = produce_frame("orders", 0, batch, acks=1)
    with ceiling.served(program, tmp_path / "log", 0) as sock:
        for number in range(2):
            sock.sendall(frame * 2)
            answers = sock.recv(4096)
            size = struct.unpack(">i", answers[:4])[0] + 4
            while len(answers) < 2 * size:
                answers += sock.recv(4096)
            codes = [struct.unpack_from(">hqq", answers, at + size - 30) for at in (0, size)]
            assert codes == [(0, 6 * number, -1), (0, 6 * number + 3, -1)]
    stored = list(iter_batches((tmp_path / "log").read_bytes()))
    assert [header.base_offset for header, _ in stored] == [0, 3, 6, 9]
    assert all(bytes(data[HEADER_BYTES:]) == batch[HEADER_BYTES:] for _, data in stored)


def test_nonsense_is_refused(program: Path, tmp_path: Path) -> None:
    spoiled = bytearray(produce_frame("orders", 0, record_batch(1, 10), acks=1))
    spoiled[-1] ^= 1
    with pytest.raises(ConnectionError), ceiling.served(program, tmp_path / "log", 0) as sock:
        sock.sendall(spoiled)
        assert not sock.recv(1)


def test_without_a_compiler_nothing_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoCompiler):
        compile_to(tmp_path)
