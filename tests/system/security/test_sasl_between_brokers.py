"""A cluster whose only listener is SASL's: its brokers log in to each other, and their clients get what lists allow."""

from __future__ import annotations

import logging
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kafkalite.cli.main import main
from kafkalite.metadata.cluster_metadata import RegistrationState
from tests.support.counted_logins import count_logins
from tests.support.wait import DEADLINE_S, until
from tests.system.security.sasl_cluster import (
    JAAS,
    MODULE,
    QUIET,
    Place,
    allow_alice,
    one_more,
    read,
    transactions,
)

QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False

LISTENERS = [
    ("SASL_PLAINTEXT", "PLAIN"),
    ("SASL_SSL", "PLAIN"),
    ("SASL_SSL", "SCRAM-SHA-256"),
    ("SASL_SSL", "SCRAM-SHA-512"),
]


@pytest.fixture(params=LISTENERS, ids=lambda it: "-".join(it))
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    return Place(tmp_path, *request.param)


def test_records_transactions_and_groups_survive_a_broker(place: Place) -> None:
    with place.cluster() as cluster:
        admin = AdminClient(place.client(cluster, "admin", "a-secret"))
        allow_alice(admin, cluster.brokers)
        mine = place.client(cluster, "alice", "pencil")
        producer = transactions(mine, 20)
        assert read(mine, "first", 20) == list(range(20))
        assert cluster.isr("orders", 0) == {0, 1, 2}
        leader = cluster.leader_of("orders", 0)
        assert leader is not None
        cluster.kill(leader)
        for i in range(20, 40):
            one_more(producer, i)
        assert read(mine, "second", 40) == list(range(40))
        cluster.start(leader)
        cluster.wait_for_isr("orders", 0, {0, 1, 2})
        cluster.stop(leader)  # in order: what it leads is led by another before it goes
        one_more(producer, 40)
        cluster.start(leader)
        cluster.wait_for_isr("orders", 0, {0, 1, 2})


def test_a_broker_without_zookeeper_asks_the_others_with_its_login(tmp_path: Path) -> None:
    place = Place(tmp_path, "SASL_SSL", "SCRAM-SHA-256")
    with place.cluster() as cluster:
        transactions(place.client(cluster, "admin", "a-secret"), 1)
        cut = cluster.leader_of("orders", 0)
        assert cut is not None
        cluster.cut_off(cut)
        cluster.lose_session(cut)
        metadata = cluster.brokers[cut].server.metadata
        until(lambda: metadata.registration_state is RegistrationState.FENCED, "a witness")
        cluster.mend(cut)
        cluster.wait_for_isr("orders", 0, {0, 1, 2})


def test_our_own_commands_log_in(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    with place.cluster() as cluster:
        mine = place.client(cluster, "admin", "a-secret")
        transactions(mine, 1).flush(DEADLINE_S)
        there = ["--bootstrap-server", cluster.bootstrap_servers]
        login = place.properties("admin", "a-secret")
        for command in (["topic", "describe", "orders"], ["cleaner", "status"], ["txn", "list"]):
            assert main([*command, *there, "--command-config", login]) == 0
        one = ["--bootstrap", cluster.brokers[1].bootstrap_servers]
        assert main(["health", *one, "--command-config-file", login]) == 0
        told = capsys.readouterr()
        assert "orders" in told.out and "one of 3 in cluster" in told.out
        assert main(["health", *one, "--command-config", place.properties("mallory", "x")]) == 1
        assert "it refuses the login of mallory by " + place.mechanism in capsys.readouterr().err


def test_sessions_of_brokers_are_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    logins = count_logins(monkeypatch)
    place = Place(tmp_path, "SASL_SSL", "SCRAM-SHA-256")
    with place.cluster(connections_max_reauth_ms=2_000, replica_lag_time_max_ms=1_000) as cluster:
        producer = transactions(place.client(cluster, "admin", "a-secret"), 5)
        count = 5

        def goes_on() -> bool:
            nonlocal count
            one_more(producer, count)
            count += 1
            return len(logins) >= 3 * before

        before = len(logins)
        until(goes_on, "every broker to log in three times")
        assert cluster.isr("orders", 0) == {0, 1, 2}
        assert "is lost" not in caplog.text


def test_the_password_of_the_brokers_is_changed_while_they_run(tmp_path: Path) -> None:
    place = Place(tmp_path, "SASL_SSL", "SCRAM-SHA-512")
    with place.cluster(password_encoder_secret="encoder", connections_max_reauth_ms=1_500) as cluster:
        admin = AdminClient(place.client(cluster, "admin", "a-secret"))
        producer = transactions(place.client(cluster, "admin", "a-secret"), 5)
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        for done in admin.alter_user_scram_credentials([UserScramCredentialUpsertion("broker", info, b"new")]).values():
            done.result(DEADLINE_S)
        name, module = "listener.name.plaintext.scram-sha-512.sasl.jaas.config", JAAS.replace('"b-secret"', '"new"')
        for number in range(3):
            entry = ConfigEntry(name, module, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ConfigResource.Type.BROKER, str(number), incremental_configs=[entry])
            admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)
            assert b"new" not in (cluster.zookeeper.tree.find(f"/config/brokers/{number}").data or b"")
        cluster.stop(2)
        cluster.start(2)  # with the old password in its settings, and the new one from ZooKeeper
        one_more(producer, 5)
        cluster.wait_for_isr("orders", 0, {0, 1, 2})
        for i in range(6, 12):
            one_more(producer, i)
        assert read(place.client(cluster, "admin", "a-secret"), "first", 12) == list(range(12))


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"sasl_mechanism_inter_broker_protocol": "GSSAPI"}, "where sasl.enabled.mechanisms has PLAIN; set one of"),
        ({"listener_name_plaintext_plain_sasl_jaas_config": f"{MODULE} user_a=b;"}, "has no username="),
    ],
)
def test_a_broker_that_could_not_log_in_does_not_start(tmp_path: Path, settings: dict[str, str], fault: str) -> None:
    place = Place(tmp_path, "SASL_PLAINTEXT", "PLAIN")
    with pytest.raises(Exception, match=fault), place.cluster(**settings):
        pass


def test_a_wrong_password_of_a_broker_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = Place(tmp_path, "SASL_PLAINTEXT", "PLAIN")
    wrong = f'{MODULE} username="broker" password="other" user_broker="b-secret" user_admin="a-secret";'
    with place.cluster(listener_name_plaintext_plain_sasl_jaas_config=wrong, min_insync_replicas=1) as cluster:
        admin = AdminClient(place.client(cluster, "admin", "a-secret"))
        admin.create_topics([confluent_kafka.admin.NewTopic("orders", 3, 3)])["orders"].result(DEADLINE_S)
        until(lambda: "it refuses the login of broker by PLAIN: Authentication failed" in caplog.text, "the log")
