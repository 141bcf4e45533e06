"""`python -m bench tls`: kafkalite and Apache Kafka behind TLS, by turns, beside their own PLAINTEXT listeners.

    produce-16x1KB    Produce requests of 16 records of 1,000 bytes, five in flight over one connection
    fetch-1MiB        a reader that discards everything, one request of 1 MiB in flight

The generators are those of `vs-kafka` (`bench.replay`, `bench.discard`); OpenSSL encrypts for them in the same process,
outside of the interpreter's lock. TLS 1.3 with the suite that both sides choose, a certificate of RSA 2048.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from bench.discard import Reader
from bench.java_perf import VERSION as KAFKA_VERSION
from bench.records import frame_cycle
from bench.reference import ReferenceUnavailable
from bench.reference.kafka import command_line, free_port, prepare, server_properties
from bench.replay import blocking_socket, fill, pump
from bench.report import machine
from bench.session import Session
from bench.startup import Launch, Launcher
from bench.versus import COMMON, KAFKA, KAFKA_ONLY, KAFKALITE, Side, order
from bench.wire import BrokerError, split_host

_FETCH_BYTES = 1 << 20
_RECORDS, _VALUE_BYTES = 16, 1000


class TlsReader(Reader):
    """A reader over TLS, whose sockets know no MSG_WAITALL."""

    def _receive(self, buffer: bytearray, count: int) -> None:
        view, received = memoryview(buffer)[:count], 0
        while received < count:
            more = self.sock.recv_into(view[received:])
            if not more:
                raise BrokerError("the broker closed the connection")
            received += more


def make_key_store(directory: Path) -> Path:
    """Key and certificate of localhost, in one file of PEM."""
    key, certificate, both = (directory / name for name in ("key.pem", "certificate.pem", "broker.pem"))
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1")
    command = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject)
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    both.write_text(key.read_text() + certificate.read_text())
    return both


def settings(key_store: Path, listeners: str, more: Mapping[str, str]) -> dict[str, str]:
    return {
        "listeners": listeners,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(key_store),
        **COMMON,
        **more,
    }


def launchers(
    key_store: Path, addresses: dict[str, str], more: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Launcher]:
    """Of both brokers with the settings `more`. Notes the address of each SSL listener in `addresses`."""

    def ours(directory: Path) -> Launch:
        plain, tls = free_port(), free_port()
        addresses[KAFKALITE] = f"127.0.0.1:{tls}"
        told = settings(key_store, f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{tls}", more) | {
            "log.dirs": str(directory)
        }
        words = [word for name, value in told.items() for word in ("--override", f"{name}={value}")]
        return Launch([sys.executable, "-m", "kafkalite", "serve", *words], f"127.0.0.1:{plain}")

    def theirs(directory: Path) -> Launch:
        plain, tls, controller = free_port(), free_port(), free_port()
        addresses[KAFKA] = f"127.0.0.1:{tls}"
        outside = f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{tls}"
        told = settings(key_store, f"{outside},CONTROLLER://127.0.0.1:{controller}", more) | KAFKA_ONLY
        told["advertised.listeners"] = outside
        told["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT"
        path = prepare(directory, KAFKA_VERSION, server_properties(directory, plain, controller, 0, told))
        return Launch(command_line(KAFKA_VERSION, directory, "1g", "kafka.Kafka", str(path)), f"127.0.0.1:{plain}")

    return {KAFKALITE: ours, KAFKA: theirs}


@contextlib.contextmanager
def connected(address: str, *, tls: bool) -> Iterator[socket.socket]:
    if not tls:
        with blocking_socket(address) as sock:
            yield sock
        return
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # authentication is not measured
    host, _ = split_host(address)
    with context.wrap_socket(blocking_socket(address), server_hostname=host) as sock:
        yield sock


def produce(session: Session, address: str, *, tls: bool) -> float:
    """Bytes of values a second."""
    with session.topic("tls-produce") as topic, connected(address, tls=tls) as sock:
        cycle = frame_cycle(topic, _RECORDS, _VALUE_BYTES, acks=session.acks)
        most = max(1, session.max_bytes // cycle.batch_bytes)
        warm = session.warm_up(lambda seconds: pump(sock, cycle, seconds, most))
        with session.metered() as measure:
            requests = pump(sock, cycle, session.seconds, most)
        session.expect_end(topic, (warm + requests) * _RECORDS)
    return requests * _RECORDS * _VALUE_BYTES / measure.seconds


def fetch(session: Session, address: str, *, tls: bool) -> float:
    """Bytes of batches a second."""
    with session.topic("tls-fetch") as topic:
        cycle = fill(session, topic, 150, 100, session.fill_bytes)
        end_offset = session.fill_bytes // cycle.batch_bytes * cycle.record_count
        with connected(address, tls=tls) as sock:
            reader = (TlsReader if tls else Reader)(sock, cycle, _FETCH_BYTES)
            session.warm_up(lambda seconds: reader.read_for(seconds, end_offset))
            with session.metered() as measure:
                read_bytes = reader.read_for(session.seconds, end_offset)
    return read_bytes / measure.seconds


WORKS: dict[str, tuple[Callable[..., float], bool]] = {
    "produce-16x1KB over TLS": (produce, True),
    "produce-16x1KB": (produce, False),
    "fetch-1MiB over TLS": (fetch, True),
    "fetch-1MiB": (fetch, False),
}


def measure(pairs: int, seconds: float, fill_mb: int) -> dict[str, dict[str, list[float]]]:
    """MB/s of each work, by broker."""
    addresses: dict[str, str] = {}
    found: dict[str, dict[str, list[float]]] = {name: {KAFKALITE: [], KAFKA: []} for name in WORKS}
    template = Session("", None, seconds, fill_bytes=fill_mb * 10**6, warm_up_limit_s=8.0)
    with tempfile.TemporaryDirectory(prefix="bench-tls-") as directory, contextlib.ExitStack() as stack:
        made = launchers(make_key_store(Path(directory)), addresses)
        sides = tuple(Side(name, launcher) for name, launcher in made.items())
        for side in sides:
            stack.enter_context(side.running(template))
        for name, (work, tls) in WORKS.items():
            for which in order(pairs):
                side = sides[which]
                with side.turn() as session:
                    rate = work(session, addresses[side.name] if tls else session.bootstrap, tls=tls)
                found[name][side.name].append(rate / 1e6)
                print(f"{name}, {side.name}: {rate / 1e6:,.0f} MB/s", file=sys.stderr, flush=True)
    return found


def lines(found: dict[str, dict[str, list[float]]]) -> Iterator[str]:
    yield f"| work | {KAFKALITE}, MB/s | {KAFKA}, MB/s | ratio |"
    yield "| --- | ---: | ---: | ---: |"
    for name, by_side in found.items():
        ours, theirs = (statistics.median(by_side[side]) for side in (KAFKALITE, KAFKA))
        yield f"| {name} | {ours:,.0f} | {theirs:,.0f} | {ours / theirs:.2f} |"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench tls", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=5, help="samples of each work on each broker (default 5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long a sample is measured (default 2)")
    parser.add_argument("--fill-mb", type=int, default=256, help="log that the readers read (default 256)")
    options = parser.parse_args(arguments)
    try:
        found = measure(options.pairs, options.seconds, options.fill_mb)
    except (BrokerError, ReferenceUnavailable, OSError, subprocess.CalledProcessError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    print(machine())
    for line in lines(found):
        print(line)
    return 0
