"""Stock clients that log in by tickets of Kerberos (GSSAPI), given by a real key distribution centre."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafkalite.cli.main import main
from kafkalite.client.kerberos_login import KerberosSettings, KerberosTickets
from kafkalite.testing import Cluster
from tests.compatibility.interop.java_tools import JavaTools, java_command
from tests.support.broker_process import environment
from tests.support.kerberos import REALM, Kerberos, kerberos, missing_requirement
from tests.support.ports import free_port
from tests.support.wait import DEADLINE_S, until

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("kerberos"),
    pytest.mark.skipif(missing_requirement() is not None, reason=f"{missing_requirement()}"),
    pytest.mark.skipif(importlib.util.find_spec("gssapi") is None, reason="gssapi is missing: pip install gssapi"),
]
KRB5 = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
FETCHED = "hello"
PYTHON_CLIENT = """
import sys
from kafka import KafkaConsumer, KafkaProducer
settings = dict(bootstrap_servers=sys.argv[1], security_protocol="SASL_PLAINTEXT", sasl_mechanism="GSSAPI",
    sasl_kerberos_domain_name="localhost")
producer = KafkaProducer(**settings, acks="all")
producer.send("t", b"hello").get(60)
consumer = KafkaConsumer("t", **settings, auto_offset_reset="earliest", consumer_timeout_ms=60000)
print(next(consumer).value.decode())
"""
ASYNC_CLIENT = """
import asyncio, sys
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
async def main():
    settings = dict(bootstrap_servers=sys.argv[1], security_protocol="SASL_PLAINTEXT", sasl_mechanism="GSSAPI",
        sasl_kerberos_domain_name="localhost")
    async with AIOKafkaProducer(**settings) as producer:
        await producer.send_and_wait("t", b"hello")
    async with AIOKafkaConsumer("t", **settings, auto_offset_reset="earliest") as consumer:
        print((await consumer.getone()).value.decode())
asyncio.run(main())
"""


class Served(NamedTuple):
    """A broker that is running."""

    bootstrap: str
    errors: Path


@pytest.fixture(scope="module")
def centre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kerberos]:
    with kerberos(tmp_path_factory.mktemp("kerberos")) as made:
        for principal in ("kafka/localhost", "alice", "bob/admin", "stranger"):
            made.keytab(principal)
        yield made


@pytest.fixture(scope="module")
def broker(centre: Kerberos, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("broker")
    keytab = centre.home / "kafka_localhost.keytab"
    port = free_port()
    address = f"SASL_PLAINTEXT://localhost:{port}"  # tickets are for a name, which clients are told
    settings = {
        "listeners": address,
        "advertised.listeners": address,
        "sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": (
            f'{KRB5} keyTab="{keytab}" principal="kafka/localhost@{REALM}";'
        ),
        "sasl.kerberos.principal.to.local.rules": "RULE:[2:$1-$2](bob-.*)s/-/_/g/U,DEFAULT",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:alice;User:BOB_ADMIN",
        "group.initial.rebalance.delay.ms": "0",
    }
    file = home / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    errors = home / "errors.txt"
    with errors.open("w") as sink:
        command = [sys.executable, "-m", "kafkalite", "serve", str(file), "--data-dir", str(home / "data")]
        env = environment() | {name: centre.environment[name] for name in ("KRB5_CONFIG", "KRB5RCACHENAME")}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sink, text=True, env=env)
    assert process.stdout is not None
    try:
        assert "is ready" in process.stdout.readline(), errors.read_text()
        yield Served(f"localhost:{port}", errors)
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def run(command: list[str], seconds: float, typed: str = "", check: bool = True) -> str:
    done = subprocess.run(command, input=typed, capture_output=True, text=True, timeout=seconds)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done.stdout + ("" if check else done.stderr)


def java_tools(version: str, broker: Served, centre: Kerberos, principal: str, file: Path) -> JavaTools:
    java_command(version)
    keytab = centre.home / f"{principal.replace('/', '_')}.keytab"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        f'sasl.jaas.config={KRB5} keyTab="{keytab}" principal="{principal}@{REALM}";\n'
    )

    def with_realm(command: list[str], seconds: float, **how: object) -> str:
        return run([command[0], f"-Djava.security.krb5.conf={centre.conf}", *command[1:]], seconds, **how)  # type: ignore[arg-type]

    return JavaTools(version, broker.bootstrap, with_realm)


@pytest.mark.parametrize("version", ["2.7.2", "3.9.1", "4.1.0"])
@pytest.mark.parametrize("principal", ["alice", "bob/admin"])
def test_javas_clients(version: str, principal: str, broker: Served, centre: Kerberos, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    tools = java_tools(version, broker, centre, principal, file)
    topic = f"java-{version}-{principal.replace('/', '-')}"
    tools("TopicCommand", "--command-config", file, "--create", "--topic", topic, "--partitions", 1)
    tools("ConsoleProducer", "--topic", topic, "--producer.config", file, typed="one\ntwo\n")
    limits = ["--from-beginning", "--max-messages", 2, "--timeout-ms", 60_000]
    assert tools("ConsoleConsumer", "--topic", topic, "--consumer.config", file, *limits).split() == ["one", "two"]


def test_the_name_is_that_of_the_ticket_and_lists_decide(broker: Served, centre: Kerberos, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    tools = java_tools("3.9.1", broker, centre, "stranger", file)
    refused = tools("TopicCommand", "--command-config", file, "--create", "--topic", "no", check=False)
    assert "AuthorizationException" in refused
    until(lambda: "User:stranger" in broker.errors.read_text(), "the refusal in the log")


@pytest.mark.parametrize("program", [PYTHON_CLIENT, ASYNC_CLIENT], ids=["kafka-python", "aiokafka"])
def test_pythons_clients(program: str, broker: Served, centre: Kerberos) -> None:
    command = [sys.executable, "-c", program, broker.bootstrap]
    done = subprocess.run(command, env=centre.tickets("alice"), capture_output=True, text=True, timeout=DEADLINE_S * 2)
    assert done.stdout.strip() == FETCHED, done.stderr


@pytest.mark.skipif(not shutil.which("kcat"), reason="kcat is not here")
def test_librdkafka(broker: Served, centre: Kerberos) -> None:
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.kinit.cmd": "true",
    }
    options = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
    env = centre.tickets("alice")

    def kcat(*words: str, typed: str = "") -> str:
        done = subprocess.run(
            ["kcat", *options, *words], input=typed, env=env, capture_output=True, text=True, timeout=DEADLINE_S
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    kcat("-P", "-t", "by-kcat", typed="one\ntwo\n")
    assert kcat("-C", "-t", "by-kcat", "-e", "-q").split() == ["one", "two"]


def test_a_ticket_for_another_service_gets_nobody_in(broker: Served, centre: Kerberos) -> None:
    centre.keytab("other/localhost")
    env = centre.tickets("alice")
    program = PYTHON_CLIENT.replace(
        'domain_name="localhost"', 'domain_name="localhost", sasl_kerberos_service_name="other"'
    ).replace("get(60)", "get(5)")
    done = subprocess.run(
        [sys.executable, "-c", program, broker.bootstrap],
        env=env,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S * 2,
    )
    assert done.returncode != 0 and FETCHED not in done.stdout
    until(lambda: "a ticket of Kerberos is refused" in broker.errors.read_text(), "the log")
    assert "Traceback" not in broker.errors.read_text()


def client_file(path: Path, options: str) -> str:
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        f"sasl.jaas.config={KRB5.partition(' ')[0]} required {options};\n"
    )
    return str(path)


def by_keytab(centre: Kerberos, principal: str) -> str:
    keytab = centre.home / f"{principal.replace('/', '_')}.keytab"
    return f'useKeyTab=true keyTab="{keytab}" principal="{principal}@{REALM}"'


@pytest.fixture
def in_realm(centre: Kerberos, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KRB5_CONFIG", "KRB5RCACHENAME"):
        monkeypatch.setenv(name, centre.environment[name])


@pytest.mark.usefixtures("in_realm")
def test_our_commands(
    broker: Served,
    centre: Kerberos,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def told(file: str, *command: str, code: int = 0) -> str:
        assert main([*command, "--bootstrap-server", broker.bootstrap, "--command-config", file]) == code
        said = capsys.readouterr()
        return said.out + said.err

    keytab = client_file(tmp_path / "keytab.properties", by_keytab(centre, "alice"))
    told(keytab, "topic", "create", "ours")
    lines = tmp_path / "lines"
    lines.write_text("one\ntwo\n")
    told(keytab, "produce", "ours", "--file", str(lines))
    cache = centre.tickets("alice")["KRB5CCNAME"]
    named = client_file(tmp_path / "cache.properties", f'useTicketCache=true ticketCache="{cache}"')
    assert told(named, "consume", "ours").split() == ["one", "two"]
    own = client_file(tmp_path / "own.properties", "useTicketCache=true")
    monkeypatch.setenv("KRB5CCNAME", cache)
    assert "ours" in told(own, "topic", "list")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/none")
    refused = told(own, "topic", "list", code=1)
    assert "there is no credential for GSSAPI: the ticket cache: " in refused
    strange = client_file(tmp_path / "strange.properties", by_keytab(centre, "stranger"))
    assert "Authorization failed" in told(strange, "topic", "create", "no", code=1)
    other = Path(keytab).read_text().replace("service.name=kafka", "service.name=nobody")
    (tmp_path / "other.properties").write_text(other)
    assert "not found in Kerberos database" in told(str(tmp_path / "other.properties"), "topic", "list", code=1)


@pytest.mark.usefixtures("in_realm")
def test_tickets_of_a_cache_are_renewed(broker: Served, centre: Kerberos, tmp_path: Path) -> None:
    cache = centre.tickets("alice", "-l", "1000s", "-r", "2000s")["KRB5CCNAME"]
    renewed = tmp_path / "renewed"
    kinit = tmp_path / "kinit"
    program = shutil.which("kinit", path=centre.environment["PATH"])
    kinit.write_text(f'#!/bin/sh\necho "$@" >> {renewed}\nexec {program} "$@"\n')
    kinit.chmod(0o755)
    options = {"useTicketCache": "true", "ticketCache": cache}
    now_ms = [1e9]
    settings = KerberosSettings("kafka", str(kinit), renew_factor=0.8, renew_pause_ms=60_000)
    tickets = KerberosTickets(options, settings, lambda: now_ms[0])
    assert tickets.exchange("localhost").first() and not renewed.exists()
    tickets._lifetime_s = 6_000  # as if most of their time were over
    assert tickets.exchange("localhost").first()
    assert renewed.read_text() == f"-R -c {cache}\n"
    tickets._lifetime_s = 6_000
    tickets.exchange("localhost")
    assert renewed.read_text().count("-R") == 1  # not more often than sasl.kerberos.min.time.before.relogin
    now_ms[0] += 60_000
    tickets.exchange("localhost")
    assert renewed.read_text().count("-R") == 2


@pytest.mark.usefixtures("in_realm")
def test_brokers_log_in_to_each_other(centre: Kerberos, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tickets last for five seconds, sessions for two: both are renewed while records are replicated."""
    keytab = centre.keytab("kafka/127.0.0.1", "5 seconds")
    settings: dict[str, Any] = {
        "listener_security_protocol_map": "PLAINTEXT:SASL_PLAINTEXT",
        "inter_broker_listener_name": "PLAINTEXT",
        "sasl_enabled_mechanisms": "GSSAPI",
        "sasl_mechanism_inter_broker_protocol": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
        "listener_name_plaintext_gssapi_sasl_jaas_config": (
            f'{KRB5} keyTab="{keytab}" principal="kafka/127.0.0.1@{REALM}";'
        ),
        "connections_max_reauth_ms": 2_000,
        "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
        "super_users": "User:kafka;User:alice",
        "default_replication_factor": 3,
        "min_insync_replicas": 3,
        "replica_lag_time_max_ms": 3_000,
    }
    login = client_file(tmp_path / "client.properties", by_keytab(centre, "alice"))
    lines = tmp_path / "lines"
    lines.write_text("one\ntwo\n")
    with Cluster(3, data_dir=tmp_path / "cluster", **settings) as cluster:
        there = ["--bootstrap-server", cluster.bootstrap_servers, "--command-config", login]
        assert main(["topic", "create", "orders", *there]) == 0
        log = centre.home / "kdc.log"

        def given() -> int:
            return sum("AS_REQ" in line and "kafka/127.0.0.1" in line for line in log.read_text().splitlines())

        before, count = given(), 0

        def goes_on() -> bool:
            nonlocal count
            assert main(["produce", "orders", "--file", str(lines), *there]) == 0
            count += 2
            return given() >= before + 6

        until(goes_on, "every broker to get two more tickets")
        assert cluster.isr("orders", 0) == {0, 1, 2}
        capsys.readouterr()
        assert main(["consume", "orders", *there]) == 0
        assert len(capsys.readouterr().out.split()) == count
