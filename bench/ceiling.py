"""`python -m bench.ceiling`: what a request costs at least on this machine, and the share of Python in a broker's time.

A program in C (`ceiling.c`) does nothing but the system calls that a broker cannot do without: receive, compare the
checksum, write, answer; or sendfile. The generators of `bench.replay` and `bench.discard` drive it as they drive a
broker, and a broker of this tree after it, in a directory beside it. A row has the rate and the CPU of one request of
both, and `limit`: the CPU of the C program by the broker's. The rest of the broker's CPU is Python, and what else the
program leaves out: parsing, checks of the records, indexes, the state of producers, the event loop. The program's
socket blocks: where the reader is slower than sendfile, it wakes up for less each time than an event loop does, and may
take more CPU.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.discard import SINK_BYTES
from bench.records import frame_cycle
from bench.replay import blocking_socket, closed_loop, pump
from bench.report import latency
from bench.session import Session
from bench.startup import kafkalite_launcher, started
from bench.works import WORKS

FILE_BYTES = 512 << 20
_HEAD_BYTES = 90  # about what stands before the records in an answer
_ASK_BYTES = 108  # and a request's size
_PRODUCES = {"replay-150x100B": (150, 100), "replay-16x1KB": (16, 1000), "replay-1x100B": (1, 100)}
_CLOSED_LOOP = "closed-loop-1x100B"
_PIECES = {"fetch-1MiB": 1 << 20, "fetch-8MiB": 8 << 20}
ROWS = (*_PRODUCES, _CLOSED_LOOP, *_PIECES)


class Served(NamedTuple):
    """Requests a second, CPU of the server for one of them in us, and the median round trip in us, if it was taken."""

    per_second: float
    cpu_us: float
    p50_us: float | None = None


class NoCompiler(Exception):
    """There is no C compiler, or it fails."""


def compile_to(directory: Path) -> Path:
    """The program, compiled. Raises NoCompiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise NoCompiler("there is no C compiler (cc)")
    program = directory / "ceiling"
    source = Path(__file__).with_name("ceiling.c")
    done = subprocess.run([compiler, "-O2", "-o", program, source], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoCompiler(done.stderr)
    return program


@contextmanager
def served(program: Path, path: Path, piece_bytes: int) -> Iterator[socket.socket]:
    """A connection to the program, which ends with it."""
    with subprocess.Popen([program, path, str(piece_bytes)], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        with blocking_socket(f"127.0.0.1:{int(server.stdout.readline())}") as sock:
            yield sock
        if server.wait():
            raise ConnectionError("the program failed")


def _measured(work: Callable[[], int]) -> Served:
    """`work` returns the number of its requests; the program has ended when it returns."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    count = work()
    passed, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Served(count / passed, cpu_s / count * 1e6)


def limit(program: Path, directory: Path, name: str, seconds: float) -> Served:
    """The C program's figures for one row."""
    path = directory / "log"
    if name in _PIECES:
        _fill(path)
        piece_bytes = _PIECES[name]

        def read() -> int:
            with served(program, path, piece_bytes) as sock:
                return read_pieces(sock, piece_bytes, seconds)

        return _measured(read)
    record_count, value_bytes = _PRODUCES.get(name, (1, 100))
    cycle = frame_cycle("bench-limit", record_count, value_bytes, window=1 if name == _CLOSED_LOOP else 5)
    samples: list[int] = []

    def produce() -> int:
        with served(program, path, 0) as sock:
            if name == _CLOSED_LOOP:
                samples.extend(closed_loop(sock, cycle, seconds, 1_000_000))
                return len(samples)
            return pump(sock, cycle, seconds, 1 << 40)

    found = _measured(produce)
    return found._replace(p50_us=latency(samples).p50_us) if samples else found


def _fill(path: Path) -> None:
    if not path.exists() or path.stat().st_size < FILE_BYTES:
        with path.open("wb") as file:
            for _ in range(FILE_BYTES >> 20):
                file.write(os.urandom(1 << 20))


def read_pieces(sock: socket.socket, piece_bytes: int, seconds: float) -> int:
    """Ask again and again for `seconds`; the number of pieces."""
    head, sink, ask = bytearray(_HEAD_BYTES), bytearray(SINK_BYTES), bytes(_ASK_BYTES)
    count, deadline = 0, time.perf_counter() + seconds
    while not count or time.perf_counter() < deadline:
        sock.sendall(ask)
        sock.recv_into(head, _HEAD_BYTES, socket.MSG_WAITALL)
        left = piece_bytes
        while left:
            part = min(left, SINK_BYTES)
            if sock.recv_into(sink, part, socket.MSG_WAITALL) != part:
                raise ConnectionError("the program is gone")
            left -= part
        count += 1
    return count


def row(name: str, ours: Served, least: Served) -> str:
    """One line of the table."""

    def cells(served: Served) -> str:
        p50 = "" if served.p50_us is None else f"{served.p50_us:.0f}"
        return f"{served.per_second:9,.0f} {served.cpu_us:8.1f} {p50:>5}"

    return f"{name:20} {cells(ours)}   {cells(least)}   {least.cpu_us / ours.cpu_us:6.0%}"


def of_broker(session: Session, name: str) -> Served:
    """A broker's figures for one row."""
    result = WORKS[name](session, name)
    rate, cpu_us = result.requests_per_s, result.cpu_us_per_request
    assert rate is not None and cpu_us is not None
    return Served(rate, cpu_us, result.latency.p50_us if result.latency is not None else None)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.ceiling", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="for each sample (default: 2)")
    parser.add_argument("--pairs", type=int, default=3, help="samples of each row, of which the least CPU counts")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kafkalite-bench-") as home, started(kafkalite_launcher()) as broker:
        try:
            program = compile_to(Path(home))
        except NoCompiler as error:
            sys.exit(str(error))
        session = Session(broker.bootstrap, broker.process, options.seconds)
        print(
            f"{'':20} {'broker/s':>9} {'CPU us':>8} {'p50':>5}   {'in C/s':>9} {'CPU us':>8} {'p50':>5}   {'limit':>6}"
        )
        for name in ROWS:
            if options.only in name:
                ours, least = [], []
                for _ in range(options.pairs):
                    ours.append(of_broker(session, name))
                    least.append(limit(program, Path(home), name, options.seconds))
                print(row(name, *(min(each, key=lambda one: one.cpu_us) for each in (ours, least))), flush=True)


if __name__ == "__main__":
    main()
