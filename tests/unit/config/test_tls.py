"""Contexts from ssl.* settings: every kind of store, and a clear word about every mistake."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.tls import TlsSettings, choose_suites, client_context, file_states, server_context
from tests.support.certificates import Authority, Identity

AUTHORITY = Authority()
BROKER = AUTHORITY.identify()
PASSWORD = "sesame"


def settings(**given: object) -> TlsSettings:
    defaults = BrokerConfig()
    return TlsSettings.read(lambda name: getattr(defaults, name.replace(".", "_")))._replace(**given)  # type: ignore[arg-type]


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost") -> ssl.SSLObject:
    """Both sides in memory; returns the server's. Raises ssl.SSLError."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours, theirs = server.wrap_bio(up, down, server_side=True), client.wrap_bio(down, up, server_hostname=host)
    pending = [theirs, ours]
    for side in pending * 4:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return ours


def trusting() -> ssl.SSLContext:
    return client_context(settings(truststore_certificates=AUTHORITY.pem.decode()))


def stored(path: Path, kind: str, identity: Identity = BROKER) -> TlsSettings:
    """The settings for an identity that is stored in this way."""
    file = path / kind.replace(" ", "-")
    if kind == "inline":
        return settings(
            keystore_type="PEM",
            keystore_key=identity.key_pem().decode(),
            keystore_certificate_chain=identity.chain_pem.decode(),
        )
    if kind.startswith("PKCS12"):
        file.write_bytes(identity.pkcs12(PASSWORD, AUTHORITY.identity.certificate))
        return settings(keystore_location=str(file), keystore_type=kind.split()[-1], keystore_password=PASSWORD)
    password = PASSWORD if kind == "encrypted PEM" else None
    return settings(keystore_type="PEM", keystore_location=identity.write(file, password), key_password=password)


@pytest.mark.parametrize("kind", ["PEM", "encrypted PEM", "inline", "PKCS12 PKCS12", "PKCS12 called JKS"])
def test_a_key_store_of_every_kind(tmp_path: Path, kind: str) -> None:
    assert handshake(server_context(stored(tmp_path, kind)), trusting()).version() == "TLSv1.3"


def test_a_client_shows_the_certificate_of_its_key_store(tmp_path: Path) -> None:
    (tmp_path / "trust.p12").write_bytes(AUTHORITY.identity.pkcs12(PASSWORD))
    trust = settings(truststore_location=str(tmp_path / "trust.p12"), truststore_password=PASSWORD)
    server = server_context(
        stored(tmp_path, "PEM")._replace(
            client_auth="required",
            truststore_location=trust.truststore_location,
            truststore_password=PASSWORD,
            truststore_type="PKCS12",
        )
    )
    alice = AUTHORITY.identify("alice", ())
    client = client_context(
        stored(tmp_path, "PKCS12 JKS", alice)._replace(truststore_certificates=AUTHORITY.pem.decode())
    )
    assert handshake(server, client).getpeercert(binary_form=True) == alice.der
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        handshake(server, trusting())


def test_the_name_of_the_host_counts_unless_it_is_switched_off(tmp_path: Path) -> None:
    server = server_context(stored(tmp_path, "PEM"))
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(server, trusting(), "elsewhere")
    lenient = settings(truststore_certificates=AUTHORITY.pem.decode(), endpoint_identification_algorithm="")
    handshake(server, client_context(lenient), "elsewhere")


@pytest.mark.parametrize(
    ("given", "version", "suite"),
    [
        ({"enabled_protocols": ("TLSv1.2",)}, "TLSv1.2", None),
        ({"cipher_suites": ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",)}, "TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ({"cipher_suites": ("TLS_AES_256_GCM_SHA384",)}, "TLSv1.3", None),
    ],
)
def test_versions_and_suites(
    tmp_path: Path, given: dict[str, tuple[str, ...]], version: str, suite: str | None
) -> None:
    done = handshake(server_context(stored(tmp_path, "PEM")._replace(**given)), trusting())  # type: ignore[arg-type]
    cipher = done.cipher()
    assert done.version() == version and cipher is not None and (suite is None or cipher[0] == suite)


def test_iana_names_have_openssl_names() -> None:
    found = choose_suites(
        [
            "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
            "TLS_RSA_WITH_AES_128_CBC_SHA",
            "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256",
            "TLS_AES_128_GCM_SHA256",
        ]
    )
    assert found.has_tls_13 and found.up_to_tls_12 == (
        "ECDHE-RSA-AES256-GCM-SHA384",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        "AES128-SHA",
        "DHE-RSA-AES256-SHA256",
    )


def test_mistakes_are_named(tmp_path: Path) -> None:
    pem, other = BROKER.write(tmp_path / "b.pem"), AUTHORITY.identify()
    (tmp_path / "mixed.pem").write_bytes(BROKER.key_pem() + other.chain_pem)
    (tmp_path / "old.jks").write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    (tmp_path / "text").write_text("hello")
    (tmp_path / "no-key.pem").write_bytes(BROKER.chain_pem)
    locked = BROKER.write(tmp_path / "locked.pem", PASSWORD)
    (tmp_path / "b.p12").write_bytes(BROKER.pkcs12(PASSWORD))
    for given, words in (
        ({}, "ssl.keystore.location is not set: a listener with TLS needs a key"),
        ({"keystore_location": "/nowhere"}, "ssl.keystore.location=/nowhere cannot be read: No such file"),
        ({"keystore_location": str(tmp_path / "old.jks")}, "convert it with: keytool -importkeystore"),
        ({"keystore_location": str(tmp_path / "text")}, "is neither PEM nor PKCS12"),
        ({"keystore_location": str(tmp_path / "no-key.pem")}, "must have a private key and its certificates"),
        ({"keystore_location": str(tmp_path / "mixed.pem")}, "its certificate is for another key"),
        ({"keystore_location": locked}, "is encrypted; set ssl.key.password"),
        ({"keystore_location": locked, "key_password": "no"}, "is ssl.key.password right?"),
        ({"keystore_location": pem, "keystore_type": "PKCS12"}, "is PEM, and its type is given as PKCS12"),
        ({"keystore_location": pem, "keystore_password": "x"}, "is PEM, which has no store password"),
        ({"keystore_location": str(tmp_path / "b.p12"), "keystore_password": "no"}, "the password is wrong, or"),
        ({"keystore_location": str(tmp_path / "b.p12")}, "no password is given"),
        ({"keystore_key": "x"}, "go together: one of them is not set"),
        ({"keystore_location": pem, "cipher_suites": ("TLS_NULL",)}, "ssl.cipher.suites has 'TLS_NULL', which"),
        ({"keystore_location": pem, "enabled_protocols": ("TLSv1.1",)}, "leaves no version of TLS"),
        (
            {"keystore_location": pem, "client_auth": "required", "truststore_location": str(tmp_path / "text")},
            "ssl.truststore.location=",
        ),
    ):
        with pytest.raises(ConfigError) as refusal:
            server_context(settings(**given))
        assert words in str(refusal.value)
        assert PASSWORD not in str(refusal.value)


def test_a_file_that_has_changed_is_seen(tmp_path: Path) -> None:
    found = stored(tmp_path, "PEM")
    before = file_states(found)
    assert file_states(found) == before
    assert found.keystore_location is not None
    Path(found.keystore_location).write_bytes(b"longer" * 1000)
    assert file_states(found) != before


def test_unless_suites_are_chosen_all_have_forward_secrecy_and_none_is_weak(tmp_path: Path) -> None:
    for suite in server_context(stored(tmp_path, "PEM")).get_ciphers():
        assert suite["kea"] in ("kx-any", "kx-ecdhe", "kx-dhe"), suite["name"]  # type: ignore[typeddict-item]
        assert suite["strength_bits"] >= 128, suite["name"]
