"""Keys and certificates of a broker's listeners: what is refused at the start, and what is a renewal."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.server.listener_security import ListenerSecurity
from tests.support.certificates import DAY, Authority, Identity

OURS, OTHERS = Authority(), Authority("others")
KEYSTORE, TRUSTSTORE = "listener.name.ssl.ssl.keystore.location", "ssl.truststore.location"


class Scene:
    """A broker that meets others at a listener with TLS."""

    def __init__(self, path: Path, identity: Identity, trusted: Authority = OURS) -> None:
        self.path = path
        self.file = path / "broker.pem"
        identity.write(self.file)
        self.settings = {
            "listeners": "SSL://127.0.0.1:9093",
            "security.inter.broker.protocol": "SSL",
            "zookeeper.connect": "localhost",
            KEYSTORE: str(self.file),
            TRUSTSTORE: trusted.write(path / "ca.pem"),
        }

    def config(self, **changed: Identity | Authority) -> BrokerConfig:
        """With another key store, or trust store, that is set while running."""
        paths = {"key": KEYSTORE, "trust": f"listener.name.ssl.{TRUSTSTORE}"}
        return BrokerConfig.load(
            self.settings, {paths[name]: one.write(self.path / f"{name}.pem") for name, one in changed.items()}
        )

    def served(self) -> ListenerSecurity:
        security = ListenerSecurity(self.config())
        security.reconfigure(self.config())
        return security


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path, OURS.identify())


def test_brokers_that_would_not_accept_each_other_do_not_start(tmp_path: Path) -> None:
    for identity, trusted, why in (
        (OURS.identify(), OTHERS, "unable to get local issuer|self.signed|verify failed"),
        (OURS.identify(valid=(-2 * DAY, -DAY)), OURS, "expired"),
    ):
        with pytest.raises(ConfigError, match=f"would not accept each other .*({why}).*ssl.truststore"):
            Scene(tmp_path, identity, trusted).served()


@pytest.mark.parametrize("client_auth", ["none", "required"])
def test_a_renewal(scene: Scene, client_auth: str) -> None:
    scene.settings["ssl.client.auth"] = client_auth
    scene.served().check(scene.config(key=OURS.identify()))


def test_a_certificate_that_the_others_would_not_accept_is_no_renewal(scene: Scene) -> None:
    security = scene.served()
    with pytest.raises(ConfigError, match="its certificate: brokers, which meet there, would not accept"):
        security.check(scene.config(key=OTHERS.identify()))
    with pytest.raises(ConfigError, match="the new certificate and the one before: brokers"):
        security.check(scene.config(key=OTHERS.identify(), trust=OTHERS))


def test_a_certificate_that_has_expired_is_replaced(tmp_path: Path) -> None:
    scene = Scene(tmp_path, OURS.identify())
    security = scene.served()
    before = security._served["SSL"]
    OURS.identify(valid=(-2 * DAY, -DAY)).write(scene.file)
    expired = before.context
    expired.load_cert_chain(scene.file)  # as if time had passed
    security.check(scene.config(key=OURS.identify()))


def test_a_file_that_is_for_somebody_else_leaves_the_certificate(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    security = scene.served()
    before = security._served["SSL"].certificate
    OURS.identify("other").write(scene.file)
    security.refresh()
    security.refresh()
    assert caplog.text.count("stay as they were: listener SSL: the new certificate is for 'CN=other'") == 1
    assert security._served["SSL"].certificate == before
    renewed = OURS.identify()
    renewed.write(scene.file)
    security.refresh()
    assert security._served["SSL"].certificate == renewed.der
