"""Apache Kafka's tools over TLS, with the stores that keytool makes: PKCS12 for the broker, JKS for the client."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import kafkalite
from tests.compatibility.interop.java_tools import JavaTools, java_command
from tests.support.certificates import Authority
from tests.support.wait import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
PASSWORD = "sesame1"


def keytool(*arguments: object) -> None:
    command = ["keytool", *map(str, arguments), "-storepass", PASSWORD, "-noprompt"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def run(command: list[str], seconds: float, typed: str = "", check: bool = True) -> str:
    done = subprocess.run(command, input=typed, capture_output=True, text=True, timeout=seconds)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done.stdout + ("" if check else done.stderr)


@pytest.mark.skipif(not shutil.which("keytool"), reason="keytool is not here")
@pytest.mark.parametrize("version", ["3.9.1", "4.1.0"])
def test_tools_speak_tls_with_certificates_on_both_sides(tmp_path: Path, version: str) -> None:
    java_command(version)
    authority = Authority()
    ca = authority.write(tmp_path / "ca.pem")
    (tmp_path / "broker.p12").write_bytes(authority.identify().pkcs12(PASSWORD, authority.identity.certificate))
    (tmp_path / "alice.p12").write_bytes(authority.identify("alice", ()).pkcs12(PASSWORD))
    keytool("-importcert", "-alias", "ca", "-file", ca, "-keystore", tmp_path / "trust.jks", "-storetype", "JKS")
    keytool("-importcert", "-alias", "ca", "-file", ca, "-keystore", tmp_path / "trust.p12", "-storetype", "PKCS12")
    properties = {
        "security.protocol": "SSL",
        "ssl.truststore.location": tmp_path / "trust.jks",
        "ssl.truststore.password": PASSWORD,
        "ssl.keystore.location": tmp_path / "alice.p12",
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
    }
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    with kafkalite.Broker(
        data_dir=tmp_path / "data",
        listeners="SSL://127.0.0.1:0",
        ssl_keystore_location=str(tmp_path / "broker.p12"),
        ssl_keystore_password=PASSWORD,
        ssl_truststore_location=str(tmp_path / "trust.p12"),
        ssl_truststore_password=PASSWORD,
        ssl_client_auth="required",
        group_initial_rebalance_delay_ms=0,
    ) as broker:
        tools = JavaTools(version, broker.bootstrap_servers, run)
        tools("TopicCommand", "--command-config", file, "--create", "--topic", "t", "--partitions", 1)
        tools(
            "ConsoleProducer", "--topic", "t", "--producer.config", file, typed="".join(f"{n}\n" for n in range(2000))
        )
        limits = ["--from-beginning", "--max-messages", 2000, "--timeout-ms", 60_000]
        printed = tools("ConsoleConsumer", "--topic", "t", "--consumer.config", file, *limits)
        assert printed.split() == [str(n) for n in range(2000)]
        name = "listener.name.ssl.ssl.keystore.location"
        entity = ["--command-config", file, "--entity-type", "brokers", "--entity-name", 0]
        new = authority.identify().pkcs12(PASSWORD, authority.identity.certificate)
        (tmp_path / "new.p12").write_bytes(new)
        tools("ConfigCommand", *entity, "--alter", "--add-config", f"{name}={tmp_path / 'new.p12'}")
        assert f"{name}={tmp_path / 'new.p12'}" in tools("ConfigCommand", *entity, "--describe")
        file.write_text(file.read_text().replace("alice.p12", "nobody.p12"))
        (tmp_path / "nobody.p12").write_bytes(Authority("strangers").identify("alice", ()).pkcs12(PASSWORD))
        refused = tools("TopicCommand", "--command-config", file, "--list", check=False)
        assert "SSL handshake failed" in refused or "SslAuthenticationException" in refused


@pytest.mark.parametrize("version", ["3.9.1", "4.1.0"])
def test_kafka_configs_adds_a_listener_with_tls_and_removes_it(tmp_path: Path, version: str) -> None:
    java_command(version)
    authority = Authority()
    pem, ca = authority.identify().write(tmp_path / "broker.pem"), authority.write(tmp_path / "ca.pem")
    file = tmp_path / "client.properties"
    file.write_text(f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={ca}\n")
    entity = ["--entity-type", "brokers", "--entity-name", 0]
    with kafkalite.Broker(data_dir=tmp_path / "data", listeners="PLAINTEXT://127.0.0.1:0") as broker:
        plain = f"PLAINTEXT://127.0.0.1:{broker.port}"
        tools = JavaTools(version, broker.bootstrap_servers, run)
        store = f"listener.name.ssl.ssl.keystore.location={pem},listener.name.ssl.ssl.keystore.type=PEM"
        tools("ConfigCommand", *entity, "--alter", "--add-config", f"listeners=[{plain},SSL://127.0.0.1:0],{store}")
        until(lambda: "SSL" in broker.server.server.ports, "the listener")
        assert f"listeners={plain},SSL://127.0.0.1:0" in tools("ConfigCommand", *entity, "--describe")
        safe = JavaTools(version, f"127.0.0.1:{broker.server.server.ports['SSL']}", run)
        safe("TopicCommand", "--command-config", file, "--create", "--topic", "t")
        assert broker.topics == {"t": 1}
        tools("ConfigCommand", *entity, "--alter", "--delete-config", "listeners")
        until(lambda: "SSL" not in broker.server.server.ports, "the end of the listener")
