"""Hostile logins by the million, and handshakes that never end: nobody gets in, and nobody else is hurt."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

import kafkalite
from bench import wire
from kafkalite.cli.main import main
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.properties import read_properties
from tests.support.certificates import Authority
from tests.support.ports import free_port
from tests.support.tokens import TokenAuthority
from tests.support.wait import DEADLINE_S, until
from tests.system.hostile.conftest import OVERRIDES, Victim
from tests.system.hostile.fuzz_logins import (
    AUDIENCE,
    ISSUER,
    PASSWORD,
    USER,
    Logins,
    answered_token,
    authenticate,
    handshake,
)
from tests.system.hostile.fuzz_records import client_hello, endless_hello
from tests.system.hostile.login_attack import GotIn, LoginAttack, LoginOutcome, Unanswered

SEED = int(os.environ.get("KAFKALITE_HOSTILE_SEED", "1"))
FIRST = int(os.environ.get("KAFKALITE_HOSTILE_FIRST", "0"))
LONG = int(os.environ.get("KAFKALITE_HOSTILE_LOGINS", "1000000"))
MANY = pytest.param(LONG, marks=[pytest.mark.long, pytest.mark.timeout(7200)])
SHORT = 2_000
LINES = 512
LOG_BYTES_MAX = 256 * 1024
"""Of the log after all of it: a stranger may not fill the disk with lines."""
HELD_SECONDS = {False: 0.3, True: 3.0}
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


class Trap:
    """An address that tokens name. Nobody may come."""

    def __init__(self) -> None:
        self._sock = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._sock.getsockname()[1]}/keys"
        self.visitors = 0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            try:
                sock, _ = self._sock.accept()
            except OSError:
                return
            self.visitors += 1
            sock.close()

    def close(self) -> None:
        self._sock.close()


class Gate(Victim):
    """A broker with listeners for logins, and one without for whoever watches from inside."""

    def __init__(self, directory: Path, tokens: TokenAuthority) -> None:
        authority = Authority()
        authority.write(directory / "ca.pem")
        self.ca = str(directory / "ca.pem")
        self.plain_port, self.tls_port = free_port(), free_port()
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{free_port()},SASL_PLAINTEXT://127.0.0.1:{self.plain_port},"
            f"SASL_SSL://127.0.0.1:{self.tls_port}",
            "log.dirs": directory / "data",
            "ssl.keystore.location": authority.identify().write(directory / "broker.pem"),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": tokens.write(directory / "jwks.json"),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "connections.max.reauth.ms": 3_600_000,
        }
        for listener in ("sasl_plaintext", "sasl_ssl"):
            users = f'user_{USER}="{PASSWORD}" user_other="{PASSWORD}"'
            settings[f"listener.name.{listener}.plain.sasl.jaas.config"] = f"{_MODULE} required {users};"
            settings[f"listener.name.{listener}.oauthbearer.sasl.server.callback.handler.class"] = _HANDLER
        config = directory / "server.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        password = directory / "password"
        password.write_text(PASSWORD)
        mechanisms = ["--mechanism", "SCRAM-SHA-256", "--mechanism", "SCRAM-SHA-512"]
        for user in (USER, "other"):
            command = ["user", "add", user, *mechanisms, "--password-file", str(password), "--config", str(config)]
            assert main(command) == 0
        super().__init__(directory, *OVERRIDES, config=config)

    def dial_tls(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.tls_port), timeout=DEADLINE_S)

    def let_in(self) -> None:
        """A client of the usual kind logs in by TLS and SCRAM."""
        login = {"security.protocol": "SASL_SSL", "ssl.ca.location": self.ca, "sasl.mechanism": "SCRAM-SHA-512"}
        client = AdminClient(
            {
                "bootstrap.servers": f"127.0.0.1:{self.tls_port}",
                "sasl.username": USER,
                "sasl.password": PASSWORD,
                **login,
            }
        )
        assert client.list_topics(timeout=DEADLINE_S).topics


@pytest.fixture
def tokens() -> TokenAuthority:
    return TokenAuthority()


@pytest.fixture
def gate(tmp_path: Path, tokens: TokenAuthority) -> Iterator[Gate]:
    if not Path("/proc/self/status").exists():
        pytest.skip("needs /proc to watch the broker's memory and descriptors")
    gate = Gate(tmp_path, tokens)
    try:
        gate.furnish()
        yield gate
    finally:
        gate.stop()


@pytest.mark.parametrize("count", [SHORT, MANY], ids="{}-logins".format)
def test_hostile_logins_let_nobody_in_and_harm_nobody(gate: Gate, tokens: TokenAuthority, count: int) -> None:
    trap = Trap()
    logins = Logins(SEED, tokens, trap.url)
    neighbour = gate.neighbour()
    quiet = neighbour.observe(10.0 if count > SHORT else 0.5)
    attack = LoginAttack(
        gate.plain_port, gate.tls_port, ((n, logins.conversation(n)) for n in range(FIRST, FIRST + count)), LINES
    )
    try:
        outcome = attack.run()
    except* (GotIn, Unanswered, OSError) as failures:
        gate.assert_unharmed()
        pytest.fail(f"seed {SEED}: {failures.exceptions[0]}")
    attacked = neighbour.figures()
    neighbour.leave()
    _report(gate, outcome, quiet, attacked)
    gate.assert_unharmed()
    gate.let_in()
    assert outcome.count == count and outcome.repeated <= count // 1000
    assert outcome.honest > count // 100, "the honest ones show that the probe tells the difference"
    assert not trap.visitors, "a token named an address, and the broker asked it"
    said = gate.said()
    assert len(said) < LOG_BYTES_MAX, f"{len(said)} bytes of log: {said[:3000]}"
    assert PASSWORD not in said and "fake line" not in said
    trap.close()


def _report(gate: Gate, outcome: LoginOutcome, quiet: dict[str, float], attacked: dict[str, float]) -> None:
    """For docs/hostile.md; pytest shows it with -s."""
    print(
        f"\n{outcome.count} conversations of seed {SEED}, {outcome.over_tls} over TLS, {outcome.honest} honest, "
        f"{outcome.repeated} repeated, in "
        f"{outcome.seconds:.1f} s; at most {gate.above_idle_bytes / 2**20:.0f} MiB above idle; "
        f"{len(gate.said())} bytes of log\n{outcome.table()}\n"
        f"neighbour alone: {quiet}\nneighbour under attack: {attacked}\n"
        f"descriptors at rest {gate.descriptors_at_rest}, now {gate.descriptors()}"
    )


_HALF = {
    "silent": b"",
    "one byte": b"\x16",
    "half a hello": client_hello()[:100],
    "a hello that is to be as large as may be": endless_hello(),
    "a hello, and no more": client_hello(),
}


@pytest.mark.parametrize("count", [300, pytest.param(2000, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
@pytest.mark.parametrize("kind", _HALF)
def test_half_open_handshakes_keep_nobody_out(gate: Gate, kind: str, count: int) -> None:
    neighbour = gate.neighbour()
    quiet = neighbour.observe(0.5)
    with ExitStack() as stack:
        for _ in range(count):
            sock = stack.enter_context(gate.dial_tls())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
            sock.sendall(_HALF[kind])
        gate.let_in()
        threading.Event().wait(HELD_SECONDS[count > 300])
        attacked = neighbour.figures()
        gate.sample()
        print(
            f"\n{count} x {kind}: {gate.above_idle_bytes / 2**20:.1f} MiB above idle; alone {quiet}, beside {attacked}"
        )
        gate.assert_alive_below_ceiling()
    neighbour.leave()
    gate.assert_unharmed()


def test_those_who_never_log_in_are_closed_when_they_are_idle(gate: Gate) -> None:
    """... and what they had sent of a request is given back."""
    with ExitStack() as stack:
        for number in range(200):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", gate.plain_port), timeout=DEADLINE_S))
            sock.sendall(struct.pack(">i", 500_000) + bytes(1_000 * (number % 60)))
    until(
        lambda: gate.descriptors()["socket"] <= gate.descriptors_at_rest["socket"],
        lambda: f"sockets to be closed: {gate.descriptors()}",
    )
    gate.assert_unharmed()


def test_nobody_is_told_the_same_after_a_restart_and_like_a_user(tmp_path: Path) -> None:
    """Salt and iterations are asked for before anything is proven."""
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path / "data"),
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    }
    config = tmp_path / "server.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    (tmp_path / "password").write_text(PASSWORD)
    for user in (USER, "other"):
        command = ["user", "add", user, "--mechanism", "SCRAM-SHA-256", "--iterations", "8192"]
        assert main([*command, "--password-file", str(tmp_path / "password"), "--config", str(config)]) == 0
    told = []
    for _ in range(2):
        with kafkalite.Broker(BrokerConfig.load(read_properties(str(config)))) as broker:
            told.append([salt_and_iterations(broker.bootstrap_servers, name) for name in (USER, "nobody", "noone")])
    before, after = told
    assert before == after
    assert {count for _, count in before} == {b"i=8192"}
    assert len({len(salt) for salt, _ in before}) == 1 and len({salt for salt, _ in before}) == 3


def salt_and_iterations(bootstrap: str, name: str) -> tuple[bytes, bytes]:
    host, port = bootstrap.split(":")
    with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as sock:
        for frame in (handshake("SCRAM-SHA-256"), authenticate(f"n,,n={name},r=abc".encode())):
            sock.sendall(frame)
            answer = receive(sock, int.from_bytes(receive(sock, 4), "big"))
    _, salt, iterations = answered_token(answer).split(b",")
    return salt, iterations


def receive(sock: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    wire.receive_exactly(sock, memoryview(data))
    return bytes(data)
