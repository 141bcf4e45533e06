"""The settings of a session with ZooKeeper: taken from the broker's, and refused before anything is dialled."""

from __future__ import annotations

import importlib.util
import ssl
from pathlib import Path

import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.zk.client.zookeeper_config import SaslConfig, TlsConfig, ZooKeeperConfig
from tests.support.certificates import Authority


def config(**given: str) -> ZooKeeperConfig:
    """`given` are settings after "zookeeper.", with underscores for dots."""
    properties = {f"zookeeper.{name.replace('_', '.')}": value for name, value in given.items()}
    return ZooKeeperConfig.of(BrokerConfig.load({"zookeeper.connect": "zk1:2181", **properties}))


@pytest.fixture
def with_sasl(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The packages that are installed, as far as SASL needs them."""
    installed = {"puresasl", "kerberos"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True if name in installed else None)
    return installed


@pytest.mark.parametrize(
    ("connect", "servers", "chroot"),
    [
        ("zk1:2181", "zk1:2181", ""),
        ("zk1:2181,zk2:2182/kafka", "zk1:2181,zk2:2182", "/kafka"),
        ("zk1:2181/a/b/", "zk1:2181", "/a/b"),
        ("[::1]:2181//a", "[::1]:2181", "/a"),
    ],
)
def test_the_chroot_is_told_from_the_servers(connect: str, servers: str, chroot: str) -> None:
    settings = ZooKeeperConfig(connect)
    assert (settings.servers, settings.chroot) == (servers, chroot)


def test_a_connection_may_take_as_long_as_the_session_unless_told_otherwise() -> None:
    assert (config().session_timeout_ms, config().connection_timeout_ms) == (18_000, 18_000)
    assert config(session_timeout_ms="6000").connection_timeout_ms == 6000
    assert config(connection_timeout_ms="1").connection_timeout_ms == 1


def test_access_lists_need_somebody_whom_they_name(with_sasl: set[str]) -> None:
    with pytest.raises(ConfigError, match=r"zookeeper.set.acl=true needs credentials"):
        config(set_acl="true")
    assert config(set_acl="true", digest="a:b").digest == "a:b"
    assert config(set_acl="true", sasl_username="a", sasl_password="b").sasl is not None
    with pytest.raises(ConfigError, match="user:password"):
        config(digest="a")


def test_sasl_begins_with_a_user_or_another_mechanism(with_sasl: set[str]) -> None:
    assert config().sasl is None
    with pytest.raises(ConfigError, match=r"zookeeper\.sasl\.password"):
        config(sasl_username="a")
    kerberos = config(sasl_mechanism="GSSAPI").sasl
    assert kerberos is not None and kerberos.password is None, "a ticket is no password"
    with_sasl.remove("kerberos")
    with pytest.raises(ConfigError, match="pip install kerberos"):
        config(sasl_mechanism="GSSAPI")
    with_sasl.remove("puresasl")
    with pytest.raises(ConfigError, match="pip install pure-sasl"):
        config(sasl_username="a", sasl_password="b")


class TestTls:
    def test_is_off_unless_enabled(self) -> None:
        assert config(ssl_truststore_location="/none.pem").tls is None

    def test_a_bad_file_is_named_with_its_setting(self, tmp_path: Path) -> None:
        with pytest.raises(
            ConfigError, match=r"zookeeper.ssl.truststore.location=/none.pem cannot be read: No such file"
        ):
            config(ssl_client_enable="true", ssl_truststore_location="/none.pem")
        bad = tmp_path / "bad.pem"
        bad.write_text("nothing")
        with pytest.raises(ConfigError, match=r"zookeeper.ssl.keystore.location=.*is neither PEM nor PKCS12"):
            config(ssl_client_enable="true", ssl_keystore_location=str(bad))

    def test_stores_may_be_pkcs12_with_a_type_or_a_name_that_says_so(self, tmp_path: Path) -> None:
        authority = Authority()
        key = tmp_path / "broker.p12"
        key.write_bytes(authority.identify().pkcs12("hidden"))
        for given in ({}, {"ssl_keystore_type": "PKCS12"}, {"ssl_keystore_type": "JKS"}):
            tls = config(
                ssl_client_enable="true",
                ssl_keystore_location=str(key),
                ssl_keystore_password="hidden",
                ssl_truststore_location=authority.write(tmp_path / "ca.pem"),
                **given,
            ).tls
            assert tls is not None and tls.context().get_ca_certs()
        with pytest.raises(ConfigError, match=r"zookeeper.ssl.keystore.location=.*the password is wrong"):
            config(ssl_client_enable="true", ssl_keystore_location=str(key), ssl_keystore_password="x")
        pem = authority.identify().write(tmp_path / "broker.pem", "hidden")
        with pytest.raises(ConfigError, match=r"is encrypted; set zookeeper.ssl.keystore.password"):
            config(ssl_client_enable="true", ssl_keystore_location=pem)
        assert config(ssl_client_enable="true", ssl_keystore_location=pem, ssl_keystore_password="hidden").tls

    @pytest.mark.parametrize(
        ("protocols", "lowest", "highest"),
        [
            (("TLSv1.2", "TLSv1.3"), ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3),
            (("TLSv1.3",), ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3),
            (("TLSv1.2",), ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2),
        ],
    )
    def test_speaks_only_the_versions_that_are_given(
        self, protocols: tuple[str, ...], lowest: ssl.TLSVersion, highest: ssl.TLSVersion
    ) -> None:
        context = TlsConfig(protocols=protocols).context()
        assert (context.minimum_version, context.maximum_version) == (lowest, highest)

    def test_a_server_is_always_verified_and_its_name_unless_told_otherwise(self) -> None:
        named = config(ssl_client_enable="true").tls
        unnamed = config(ssl_client_enable="true", ssl_endpoint_identification_algorithm="").tls
        assert named is not None and named.context().check_hostname
        assert unnamed is not None and not unnamed.context().check_hostname
        assert unnamed.context().verify_mode is ssl.CERT_REQUIRED


def test_sasl_by_the_section_client_of_a_jaas_file(with_sasl: set[str], tmp_path: Path) -> None:
    file = tmp_path / "jaas.conf"
    module = "org.apache.zookeeper.server.auth.DigestLoginModule required"
    file.write_text(f'Client {{ {module} username="zk" password="zk-secret"; }};')
    properties = {"zookeeper.connect": "zk1:2181", "java.security.auth.login.config": str(file)}
    assert ZooKeeperConfig.of(BrokerConfig.load(properties)).sasl == SaslConfig("DIGEST-MD5", "zk", "zk-secret")
    own = {"zookeeper.sasl.username": "own", "zookeeper.sasl.password": "x"}
    sasl = ZooKeeperConfig.of(BrokerConfig.load({**properties, **own})).sasl
    assert sasl is not None and sasl.username == "own"


def test_passwords_are_not_shown() -> None:
    sasl, tls = SaslConfig("DIGEST-MD5", "kafka", "s3cret"), TlsConfig("a.p12", "s3cret", truststore_password="s3cret")
    shown = repr(ZooKeeperConfig("zk:2181", digest="kafka:s3cret", sasl=sasl, tls=tls)) + repr((sasl, tls))
    assert "s3cret" not in shown and "zk:2181" in shown and "kafka" in shown
