"""Listeners with TLS, as stock clients, openssl and those who do harm meet them."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

import kafkalite
from kafkalite.cli.main import main
from kafkalite.network.tls_handshake import HANDSHAKES_MAX
from kafkalite.testing import Cluster
from tests.support.certificates import DAY, Authority
from tests.support.wait import DEADLINE_S, until

QUIET = logging.getLogger("librdkafka")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False

AUTHORITY = Authority()
LOCATION = "listener.name.ssl.ssl.keystore.location"


class Place:
    """A directory with the files of an authority, a broker and a client."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ca = AUTHORITY.write(path / "ca.pem")
        self.broker_pem = AUTHORITY.identify().write(path / "broker.pem")
        self.alice = AUTHORITY.identify("alice", ()).write(path / "alice.pem")

    def broker(self, **settings: Any) -> Any:
        return kafkalite.Broker(
            data_dir=self.path / "data",
            listeners="SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
            ssl_keystore_location=self.broker_pem,
            ssl_truststore_location=self.ca,
            group_initial_rebalance_delay_ms=0,
            **settings,
        )

    def rdkafka(self, bootstrap: str, **settings: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": bootstrap,
            "security.protocol": "ssl",
            "ssl.ca.location": self.ca,
            "logger": QUIET,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.ca)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def bootstrap(place: Place) -> Iterator[str]:
    with place.broker() as broker:
        yield broker.bootstrap_servers


def fault_of(settings: dict[str, Any]) -> str:
    """The words of librdkafka for why it cannot connect."""
    faults: list[str] = []
    client = AdminClient({**settings, "error_cb": lambda error: faults.append(str(error))})
    return until(lambda: client.poll(0.05) is None or next((f for f in faults if "SSL" in f or "ssl" in f), None), "it")


def refusals(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(record.getMessage() for record in caplog.records)


def test_librdkafka_writes_and_reads(place: Place, bootstrap: str) -> None:
    settings = place.rdkafka(bootstrap)
    producer = confluent_kafka.Producer(settings)
    for i in range(3000):
        producer.produce("t", b"%d" % i + bytes(1000))
    producer.produce("t", os.urandom(900_000))
    assert producer.flush(DEADLINE_S) == 0
    consumer = confluent_kafka.Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    found: list[bytes] = []
    until(lambda: found.extend(m.value() for m in consumer.consume(1000, 0.2)) or len(found) >= 3001, "all records")
    consumer.close()
    assert [int(value.rstrip(b"\0")) for value in found[:3000]] == list(range(3000)) and len(found[3000]) == 900_000


def test_kafka_python_writes_and_reads(place: Place, bootstrap: str) -> None:
    settings = {"bootstrap_servers": bootstrap, "security_protocol": "SSL", "ssl_cafile": place.ca}
    producer = kafka.KafkaProducer(**settings)
    sent = [producer.send("t", b"%d" % i) for i in range(500)] + [producer.send("t", bytes(900_000))]
    assert [each.get(DEADLINE_S).offset for each in sent] == list(range(501))
    producer.close()
    consumer = kafka.KafkaConsumer(auto_offset_reset="earliest", consumer_timeout_ms=DEADLINE_S * 1000, **settings)
    consumer.assign([kafka.TopicPartition("t", 0)])
    assert sum(len(next(consumer).value) > 0 for _ in range(501)) == 501
    consumer.close()


def test_aiokafka_writes_and_reads(place: Place, bootstrap: str) -> None:
    async def story() -> None:
        settings = {"bootstrap_servers": bootstrap, "security_protocol": "SSL", "ssl_context": place.context()}
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            for i in range(300):
                await producer.send("t", b"%d" % i)
        async with aiokafka.AIOKafkaConsumer("t", auto_offset_reset="earliest", **settings) as consumer:
            found = [(await asyncio.wait_for(consumer.getone(), DEADLINE_S)).value for _ in range(300)]
        assert found == [b"%d" % i for i in range(300)]

    asyncio.run(story())


def test_a_client_without_a_certificate_is_refused(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    with place.broker(ssl_client_auth="required") as broker:
        fault_of(place.rdkafka(broker.bootstrap_servers))
        until(lambda: "the client sends no certificate, and ssl.client.auth=required" in refusals(caplog), "the log")
        shown = place.rdkafka(
            broker.bootstrap_servers, ssl_certificate_location=place.alice, ssl_key_location=place.alice
        )
        assert AdminClient(shown).list_topics(timeout=DEADLINE_S).brokers


def test_a_certificate_of_another_authority_is_refused(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    stranger = Authority("strangers").identify("alice", ()).write(place.path / "stranger.pem")
    with place.broker(ssl_client_auth="requested") as broker:
        shown = place.rdkafka(broker.bootstrap_servers, ssl_certificate_location=stranger, ssl_key_location=stranger)
        fault_of(shown)
        until(lambda: "the client's certificate is refused (unable to get local issuer" in refusals(caplog), "the log")
        assert AdminClient(place.rdkafka(broker.bootstrap_servers)).list_topics(timeout=DEADLINE_S).brokers


def test_a_client_refuses_an_expired_certificate_and_a_wrong_name(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    AUTHORITY.identify(valid=(-2 * DAY, -DAY)).write(Path(place.broker_pem))
    with place.broker() as broker:
        assert "certificate verify failed" in fault_of(place.rdkafka(broker.bootstrap_servers))
        until(lambda: "the client does not accept this broker's certificate" in refusals(caplog), "the log")
    AUTHORITY.identify("elsewhere", ("elsewhere.example",)).write(Path(place.broker_pem))
    with place.broker() as broker:
        assert "certificate verify failed" in fault_of(place.rdkafka(broker.bootstrap_servers))
        tolerant = place.rdkafka(broker.bootstrap_servers, ssl_endpoint_identification_algorithm="none")
        assert AdminClient(tolerant).list_topics(timeout=DEADLINE_S).brokers


def test_a_protocol_that_does_not_fit_is_named(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    with place.broker() as broker:
        tls, plain = (broker.server.server.ports[name] for name in ("SSL", "PLAINTEXT"))
        with socket.create_connection(("127.0.0.1", tls)) as client:
            client.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\0\0")
            assert client.recv(1) == b""
        with socket.create_connection(("127.0.0.1", tls)) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert client.recv(1) == b""
        with socket.create_connection(("127.0.0.1", plain)) as client, pytest.raises(OSError):
            place.context().wrap_socket(client, server_hostname="localhost")
        for words in ("set security.protocol=SSL in the client", "speaks HTTP", "set security.protocol=PLAINTEXT"):
            until(lambda words=words: words in refusals(caplog), words)


def test_damaged_records_end_their_connection_alone(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    with place.broker() as broker:
        port = broker.server.server.ports["SSL"]
        for garbage in (b"\x16\x03\x01\xff\xff" + bytes(70_000), b"\x16" * 4000, b"\x16\x03\x01\x00\x04\x01\0\0\0"):
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.settimeout(DEADLINE_S)
                client.sendall(garbage)
                client.shutdown(socket.SHUT_WR)
                while client.recv(4096):
                    pass
        raw = socket.create_connection(("127.0.0.1", port))
        with place.context().wrap_socket(raw, server_hostname="localhost") as client:
            os.write(client.fileno(), b"\x17\x03\x03\x00\x40" + bytes(64))  # behind the back of TLS
            client.settimeout(DEADLINE_S)
            with pytest.raises(OSError):
                client.recv(1)
                raise OSError  # an end of the stream will do as well
        assert AdminClient(place.rdkafka(broker.bootstrap_servers)).list_topics(timeout=DEADLINE_S).brokers


def test_half_open_handshakes_keep_nobody_out(place: Place) -> None:
    with place.broker() as broker:
        port = broker.server.server.ports["SSL"]
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
        begun = []
        for _ in range(HANDSHAKES_MAX + 50):
            one = socket.create_connection(("127.0.0.1", port))
            one.sendall(b"\x16\x03\x01")  # and no more
            begun.append(one)
        until(lambda: broker.server.server.connection_count <= HANDSHAKES_MAX, "the oldest to be closed")
        assert AdminClient(place.rdkafka(broker.bootstrap_servers)).list_topics(timeout=DEADLINE_S).brokers
        for each in silent + begun:
            each.close()
        until(lambda: broker.server.server.connection_count < 50, "all to be closed")


def test_frames_of_every_shape_are_answered(place: Place, bootstrap: str) -> None:
    """Many requests in a record, a request in many records, and requests that wait in OpenSSL's memory."""
    host, _, port = bootstrap.rpartition(":")
    frame = b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff"  # ApiVersions 0
    raw = socket.create_connection((host, int(port)))
    with place.context().wrap_socket(raw, server_hostname="localhost") as client:
        client.settimeout(DEADLINE_S)
        count = 500
        client.sendall(frame * (count - 1))
        for i in range(len(frame)):
            client.sendall(frame[i : i + 1])
        with client.makefile("rb") as answers:
            sizes = {len(answers.read(int.from_bytes(answers.read(4), "big"))) for _ in range(count)}
        assert len(sizes) == 1


def serial_at(place: Place, port: int) -> int:
    """Of the certificate that is shown there."""
    raw = socket.create_connection(("127.0.0.1", port))
    with place.context().wrap_socket(raw, server_hostname="localhost") as tls:
        return int(tls.getpeercert()["serialNumber"], 16)  # type: ignore[index]


def test_new_certificates_need_no_restart(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    with place.broker() as broker:
        port = broker.server.server.ports["SSL"]
        admin = AdminClient(place.rdkafka(broker.bootstrap_servers))
        admin.list_topics(timeout=DEADLINE_S)

        def serial() -> int:
            return serial_at(place, port)

        def change(path: str) -> None:
            entry = ConfigEntry(LOCATION, path, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=[entry])
            (changed,) = admin.incremental_alter_configs([resource]).values()
            changed.result(DEADLINE_S)

        new = AUTHORITY.identify()
        change(new.write(place.path / "new.pem"))
        assert serial() == new.certificate.serial_number
        with pytest.raises(confluent_kafka.KafkaException, match=r"nowhere\.pem cannot be read: No such file"):
            change(str(place.path / "nowhere.pem"))
        assert serial() == new.certificate.serial_number
        newer = AUTHORITY.identify()
        newer.write(place.path / "new.pem")
        change(str(place.path / "new.pem"))  # the same path: Kafka's way to have a file read again
        until(lambda: serial() == newer.certificate.serial_number, "the new certificate")
        assert admin.list_topics(timeout=DEADLINE_S).brokers, "an older connection goes on"


@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize(
    ("subject", "hosts", "setting", "fault"),
    [
        ("other", ("localhost", "127.0.0.1"), "ssl_allow_dn_changes", "is for 'CN=other', and the one before for"),
        ("localhost", ("localhost",), "ssl_allow_san_changes", "lacks 1 of the host names of the one before"),
    ],
)
def test_a_certificate_for_others_is_no_renewal(
    place: Place, subject: str, hosts: tuple[str, ...], setting: str, fault: str, allowed: bool
) -> None:
    with place.broker(**{setting: allowed}) as broker:
        port = broker.server.server.ports["SSL"]
        admin = AdminClient(place.rdkafka(broker.bootstrap_servers))
        before, other = serial_at(place, port), AUTHORITY.identify(subject, hosts)
        path = other.write(place.path / "other.pem")
        entry = ConfigEntry(LOCATION, path, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=[entry])
        (changed,) = admin.incremental_alter_configs([resource]).values()
        if allowed:
            changed.result(DEADLINE_S)
            assert serial_at(place, port) == other.certificate.serial_number
        else:
            with pytest.raises(confluent_kafka.KafkaException, match=fault):
                changed.result(DEADLINE_S)
            assert serial_at(place, port) == before


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not here")
@pytest.mark.parametrize(("version", "works"), [("-tls1_2", False), ("-tls1_3", True)])
def test_openssl_gets_the_versions_that_are_enabled(place: Place, version: str, works: bool) -> None:
    with place.broker(ssl_enabled_protocols="TLSv1.3") as broker:
        command = ["openssl", "s_client", version, "-connect", broker.bootstrap_servers, "-CAfile", place.ca, "-brief"]
        done = subprocess.run(command, input=b"", capture_output=True, timeout=DEADLINE_S)
        assert (b"Verification: OK" in done.stderr) is works


def principals(broker: Any) -> set[str]:
    """The principals of the open connections."""
    processors = broker.server.server.processors
    return {connection.client.principal for processor in processors for connection in list(processor.connections)}


def test_principals_are_names_of_certificates(place: Place) -> None:
    rules = r"RULE:^CN=(a[^,]*)$/$1/U,RULE:^CN=b.*$/bob/"
    with place.broker(ssl_client_auth="requested", ssl_principal_mapping_rules=rules) as broker:
        port = broker.server.server.ports["SSL"]
        for name, principal in (("alice", "User:ALICE"), ("bert", "User:bob"), (None, "User:ANONYMOUS")):
            context = place.context()
            if name is not None:
                context.load_cert_chain(AUTHORITY.identify(name, ()).write(place.path / "client.pem"))
            raw = socket.create_connection(("127.0.0.1", port))
            with context.wrap_socket(raw, server_hostname="localhost"):
                until(lambda principal=principal: principal in principals(broker), principal)
        context = place.context()
        context.load_cert_chain(AUTHORITY.identify("carol", ()).write(place.path / "client.pem"))
        raw = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
        with pytest.raises(OSError), context.wrap_socket(raw, server_hostname="localhost") as tls:
            if not tls.recv(1):
                raise ConnectionResetError


def test_brokers_of_a_cluster_speak_tls(place: Place) -> None:
    settings = {
        "listener_security_protocol_map": "PLAINTEXT:SSL",
        "inter_broker_listener_name": "PLAINTEXT",
        "ssl_keystore_location": place.broker_pem,
        "ssl_truststore_location": place.ca,
        "ssl_client_auth": "required",
        "default_replication_factor": 3,
        "min_insync_replicas": 2,
    }
    with Cluster(3, data_dir=place.path / "cluster", **settings) as cluster:
        mine = place.rdkafka(
            cluster.bootstrap_servers, ssl_certificate_location=place.alice, ssl_key_location=place.alice
        )
        producer = confluent_kafka.Producer({**mine, "transactional.id": "t", "acks": "all"})
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
        for i in range(200):
            producer.produce("t", b"%d" % i)
        producer.commit_transaction(DEADLINE_S)
        cluster.kill(cluster.leader_of("t", 0))
        consumer = confluent_kafka.Consumer({**mine, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        found: list[bytes] = []
        until(lambda: found.extend(m.value() for m in consumer.consume(500, 0.2)) or len(found) >= 200, "all records")
        consumer.close()
        assert found == [b"%d" % i for i in range(200)]


def test_our_own_commands_speak_tls(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    properties = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": place.ca,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": place.alice,
    }
    file = place.path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    with place.broker(ssl_client_auth="required") as broker:
        there = ["--bootstrap-server", broker.bootstrap_servers]
        for command in (["topic", "describe"], ["cleaner", "status"], ["txn", "list"], ["health"]):
            assert main([*command, *there, "--command-config", str(file)]) == 0
        assert main(["health", *there]) == 1
        strangers = Authority("strangers").pem.decode().replace("\n", "\\n")
        file.write_text(f"security.protocol=SSL\nssl.truststore.certificates={strangers}\n")
        assert main(["health", *there, "--command-config", str(file)]) == 1
        assert "its certificate is not accepted (" in capsys.readouterr().err
        mine = place.path / "server.properties"
        mine.write_text(f"listeners=SSL://{broker.bootstrap_servers}\nssl.keystore.location={place.broker_pem}\n")
        assert main(["health", str(mine)]) == 0
