"""A follower that was away catches up: how fast, beside a bare loop of sendfile, and the latency of the leader's
clients.

The third of three brokers is stopped in order and records are written meanwhile; then it is started again. From the
first byte that its log grows until it is in sync again, one-record requests go to the leader, for a topic of two other
replicas. The bare loop is two processes: one sends the leader's segments with sendfile over loopback, the other one
receives them into a file of its own, as a follower does.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Protocol

from bench.records import frame_cycle
from bench.replay import blocking_socket, closed_loop, pump
from bench.wire import BrokerError

IDS = (0, 1, 2)
_LIMIT_S = 300.0
_SLICE_S = 0.2
_QUIET_S = 3.0
_SAMPLES_MAX = 100_000
_PIECE_BYTES = 1 << 20
_VALUE_BYTES = 1024
_RECORDS = 64  # of a batch: about 64 KB, as a busy producer sends


class Cluster(Protocol):
    """Three brokers, on either side of the comparison."""

    bootstraps: list[str]

    def data_dir(self, broker_id: int) -> Path: ...
    def create(self, topic: str, placed_on: Sequence[int] = ...) -> None: ...
    def delete(self, topic: str) -> None: ...
    def isr_size(self, topic: str) -> int: ...
    def stop(self, broker_id: int) -> None: ...
    def restart(self, broker_id: int) -> None: ...


def catch_up(cluster: Cluster, topic: str, size_mb: int) -> dict[str, float]:
    leader, other, follower = IDS
    beside = f"{topic}-beside"
    cluster.create(topic, (leader, other, follower))
    cluster.create(beside, (leader, other))
    with contextlib.closing(blocking_socket(cluster.bootstraps[leader])) as sock:
        quiet = _p99_us(_one_by_one(sock, beside, _QUIET_S))
        cluster.stop(follower)
        cycle = frame_cycle(topic, _RECORDS, _VALUE_BYTES, acks=-1)
        pump(sock, cycle, _LIMIT_S, size_mb * 1_000_000 // cycle.batch_bytes)
        log, grown = cluster.data_dir(leader) / f"{topic}-0", cluster.data_dir(follower) / f"{topic}-0"
        wanted, before = _log_bytes(log), _log_bytes(grown)
        os.sync()
        starting = threading.Thread(target=cluster.restart, args=(follower,))
        starting.start()
        deadline = time.monotonic() + _LIMIT_S
        while _log_bytes(grown) == before:
            time.sleep(0.001)
            _check(deadline)
        began = time.perf_counter()
        samples: list[int] = []
        while _log_bytes(grown) < wanted:
            samples += _one_by_one(sock, beside, _SLICE_S)
            _check(deadline)
        took_s = time.perf_counter() - began
        starting.join()
        while cluster.isr_size(topic) < len(IDS):
            _check(deadline)
        os.sync()
        with bare_loop(sorted(log.glob("*.log")), cluster.data_dir(follower) / "bare") as (copying, bare_s):
            beside_bare: list[int] = []
            while copying.is_alive():
                beside_bare += _one_by_one(sock, beside, _SLICE_S)
    cluster.delete(topic)  # the other side needs the room
    rate, bare = (wanted - before) / took_s, wanted / bare_s.value
    beside_us = _p99_us(samples)
    return {
        "MB/s": rate / 1e6,
        "of a bare sendfile loop": rate / bare,
        "p99 us of one record, quiet": quiet,
        "p99 us of one record, beside": beside_us,
        "p99 us of one record, beside the bare loop": _p99_us(beside_bare),
        "beside : quiet": beside_us / quiet,
    }


@contextlib.contextmanager
def bare_loop(paths: Sequence[Path], copy: Path) -> Iterator[tuple[BaseProcess, Synchronized[float]]]:
    """Copies files by sendfile over loopback; yields the receiver, which has the duration at its end."""
    spawn = get_context("spawn")  # the clients have threads, and a fork of them may wait for one that it has not got
    took_s: Synchronized[float] = spawn.Value("d", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        sending = spawn.Process(target=_send_all, args=(listening, paths), daemon=True)
        receiving = spawn.Process(target=_receive_all, args=(listening.getsockname(), copy, took_s), daemon=True)
        for process in (sending, receiving):
            process.start()
        try:
            yield receiving, took_s
        finally:
            for process in (sending, receiving):
                process.join(_LIMIT_S)
            copy.unlink(missing_ok=True)


def _receive_all(address: tuple[str, int], copy: Path, took_s: Synchronized[float]) -> None:
    sink = memoryview(bytearray(_PIECE_BYTES))
    with socket.create_connection(address) as sock, copy.open("wb", buffering=0) as file:
        sock.recv(1, socket.MSG_PEEK)  # the sender listens
        began = time.perf_counter()
        while count := sock.recv_into(sink, 0, socket.MSG_WAITALL):
            file.write(sink[:count])
    took_s.value = time.perf_counter() - began


def _send_all(listening: socket.socket, paths: Sequence[Path]) -> None:
    sock, _ = listening.accept()
    with sock:
        for path in paths:
            with path.open("rb") as file:
                position, end = 0, os.fstat(file.fileno()).st_size
                while position < end:
                    position += os.sendfile(sock.fileno(), file.fileno(), position, end - position)


def _one_by_one(sock: socket.socket, topic: str, seconds: float) -> list[int]:
    """Round trips of records of 100 bytes, in nanoseconds."""
    return list(closed_loop(sock, frame_cycle(topic, 1, 100, window=1, acks=-1), seconds, _SAMPLES_MAX))


def _p99_us(samples: Sequence[int]) -> float:
    if not samples:
        raise BrokerError("the follower had caught up before a record was sent: write more (--size-mb)")
    return sorted(samples)[len(samples) * 99 // 100] / 1e3


def _log_bytes(directory: Path) -> int:
    try:
        return sum(path.stat().st_size for path in directory.glob("*.log"))
    except FileNotFoundError:  # deleted meanwhile
        return 0


def _check(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise BrokerError(f"the follower has not caught up in {_LIMIT_S:g} s")
