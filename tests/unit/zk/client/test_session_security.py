"""A ZooKeeper that wants TLS and certificates on one port and takes SASL on both: who gets in, and who is told why not.

SASL needs the package pure-sasl, which kafkalite does without otherwise.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.zk.client.operations import ConnectionState, Create, NotAllowed
from kafkalite.zk.client.zookeeper_config import SaslConfig
from tests.support.zk.secured_zookeeper import Fortress
from tests.support.zk.visits import Visit, settings_for, visit
from tests.support.zookeeper import Cut, without_zookeeper

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(without_zookeeper() is not None, reason=without_zookeeper() or ""),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on this machine"),
]


@pytest.fixture(scope="module")
def fortress(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fortress]:
    fortress = Fortress(tmp_path_factory.mktemp("fortress"))
    with fortress.server:
        yield fortress


def test_tls_with_a_certificate_that_access_lists_know(fortress, chroot):
    async def story():
        place = f"127.0.0.1:{fortress.tls_port}{chroot}"
        async with visit(place, tls=fortress.tls(), set_acl=True) as one:
            await one.session.watch_tree("/")
            await one.session.write([Create(f"/{number}", b"x" * 1000) for number in range(500)])
            assert len(await one.session.read([f"/{number}" for number in range(500)])) == len(one.paths) == 500
            async with visit(fortress.server.connect + chroot) as stranger:
                (node,) = await stranger.session.read(["/7"])
                assert node.data == b"x" * 1000
                with pytest.raises(NotAllowed):
                    await stranger.session.write([Create("/mine")])

    asyncio.run(story())


def test_stores_of_pkcs12_with_their_passwords(fortress, chroot, tmp_path):
    key, trust = tmp_path / "client.p12", tmp_path / "trust.p12"
    export = ("openssl", "pkcs12", "-export", "-passout", "pass:hidden")
    subprocess.run([*export, "-in", fortress.client_pem, "-out", key], check=True, capture_output=True)
    subprocess.run([*export, "-nokeys", "-in", fortress.server_pem, "-out", trust], check=True, capture_output=True)
    tls = fortress.tls(
        keystore=str(key), keystore_password="hidden", truststore=str(trust), truststore_password="hidden"
    )

    async def story():
        async with visit(f"127.0.0.1:{fortress.tls_port}{chroot}", tls=tls, set_acl=True) as one:
            await one.session.write([Create("/ours")])

    asyncio.run(story())


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("no certificate", "alert|broken|reset"),
        ("another's certificate", "alert|broken|reset"),
        ("not trusted", "CERTIFICATE_VERIFY_FAILED"),
        ("another name", "Hostname mismatch"),
        ("another version", "PROTOCOL_VERSION"),
    ],
)
def test_tls_that_does_not_fit_is_no_connection_and_the_message_says_why(fortress, fault, says):
    tls = {
        "no certificate": fortress.tls(keystore=None),
        "another's certificate": fortress.tls(keystore=str(fortress.stranger_pem)),
        "not trusted": fortress.tls(truststore=str(fortress.stranger_pem)),
        "another name": fortress.tls(),
        "another version": fortress.tls(protocols=("TLSv1.2",)),
    }[fault]
    host = "localhost" if fault == "another name" else "127.0.0.1"

    async def story():
        settings = settings_for(f"{host}:{fortress.tls_port}", tls=tls, connection_timeout_ms=1_500)
        with pytest.raises(ConfigError, match=f"no ZooKeeper answers there within .*({says})"):
            await Visit(settings).session.start()

    asyncio.run(story())


def test_the_name_in_a_certificate_need_not_be_looked_at(fortress, chroot):
    async def story():
        tls = fortress.tls(check_host=False)
        async with visit(f"localhost:{fortress.tls_port}{chroot}", tls=tls) as one:
            assert one.session.is_connected

    asyncio.run(story())


@pytest.mark.skipif(find_spec("puresasl") is None, reason="pure-sasl is not installed")
def test_sasl_with_a_password_that_is_right_and_one_that_is_wrong(fortress, chroot):
    async def story():
        place = fortress.server.connect + chroot
        async with visit(place, sasl=SaslConfig("DIGEST-MD5", "kafka", "secret"), set_acl=True) as one:
            await one.session.write([Create("/ours")])
            async with visit(place) as stranger:
                with pytest.raises(NotAllowed):
                    await stranger.session.write([Create("/ours/mine")])
        wrong = settings_for(place, sasl=SaslConfig("DIGEST-MD5", "kafka", "wrong"))
        with pytest.raises(ConfigError, match="refuses the credentials"):
            await Visit(wrong).session.start()

    asyncio.run(story())


@pytest.mark.skipif(find_spec("puresasl") is None, reason="pure-sasl is not installed")
def test_credentials_that_are_refused_later_are_tried_again(fortress, chroot, monkeypatch):
    monkeypatch.setattr("kafkalite.zk.client.session.REOPEN_DELAY_S", 0.1)

    async def story():
        with Cut(fortress.server.connect) as cut:
            async with visit(cut.connect + chroot, sasl=SaslConfig("DIGEST-MD5", "kafka", "secret")) as one:
                before = one.session.session_id
                one.forget()
                assert one.session._connection is not None
                one.session._connection._client._connection.sasl_options["password"] = (
                    "wrong"  # until there is another connection
                )
                cut.cut()
                await one.until(lambda: one.states)
                cut.mend()
                await one.until_states(
                    ConnectionState.SUSPENDED, ConnectionState.AUTH_FAILED, ConnectionState.CONNECTED
                )
                assert one.session.session_id != before

    asyncio.run(story())
