"""A ZooKeeper with TLS and SASL."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from kafkalite.zk.client.zookeeper_config import TlsConfig
from tests.support.ports import free_port
from tests.support.zookeeper import ZooKeeper

JAAS = 'Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_kafka="secret"; };'


def certificate(directory: Path, name: str) -> Path:
    """A PEM file with a key and the certificate that it has signed for itself, for 127.0.0.1."""
    path, key = directory / f"{name}.pem", directory / f"{name}.key"
    subject = ("-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1")
    made = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", key, "-out", path)
    subprocess.run([*made, *subject], check=True, capture_output=True)
    path.write_text(key.read_text() + path.read_text())
    return path


class Fortress:
    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.server_pem, self.client_pem, self.stranger_pem = (
            certificate(directory, name) for name in ("server", "client", "stranger")
        )
        jaas = directory / "jaas.conf"
        jaas.write_text(JAAS)
        self.tls_port = free_port()
        trusted = directory / "trusted.pem"
        trusted.write_text(self.client_pem.read_text().partition("-----END PRIVATE KEY-----\n")[2])
        self.server = ZooKeeper(
            directory / "server",
            options={
                "secureClientPort": self.tls_port,
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "ssl.keyStore.location": self.server_pem,
                "ssl.keyStore.type": "PEM",
                "ssl.trustStore.location": trusted,
                "ssl.trustStore.type": "PEM",
                "ssl.protocol": "TLSv1.3",
                "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
                "authProvider.x509": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
            },
            properties={"java.security.auth.login.config": jaas},
        )

    def tls(self, **others: Any) -> TlsConfig:
        return TlsConfig(**{"keystore": str(self.client_pem), "truststore": str(self.server_pem), **others})
