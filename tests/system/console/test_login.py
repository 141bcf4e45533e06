"""Users of the brokers log in to the console, and see and do what their access control lists let them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafkalite.client.acl_admin import Entry, add_entries
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.group_admin import GroupAdmin
from kafkalite.client.logins import ClientSecurity, by_password
from kafkalite.client.user_admin import add_user
from kafkalite.testing import Broker
from tests.support.console import Browser, console
from tests.support.wait import until

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="a-secret" user_alice="b-secret";'
SETTINGS = {
    "listeners": "SECURE://127.0.0.1:0",
    "listener_security_protocol_map": "SECURE:SASL_PLAINTEXT",
    "inter_broker_listener_name": "SECURE",
    "sasl_enabled_mechanisms": "PLAIN",
    "sasl_mechanism_inter_broker_protocol": "PLAIN",
    "listener_name_secure_plain_sasl_jaas_config": JAAS,
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "super_users": "User:admin",
}


@pytest.fixture
def browser() -> Iterator[Browser]:
    with Broker(**SETTINGS) as broker:
        broker.create_topic("orders")
        properties = {"security.protocol": "SASL_PLAINTEXT"}
        with console(broker.bootstrap_servers, properties=properties) as browser:
            yield browser


def log_in(browser: Browser, user: str, password: str) -> int:
    answer = browser.client.post("/api/login", json={"user": user, "password": password})
    if answer.status_code == 200:
        browser.session = answer.json()
    return answer.status_code


def test_nothing_is_told_before_the_login(browser: Browser) -> None:
    assert browser.session["login_required"] and browser.session["user"] is None
    assert browser.refusal("topics") == (401, "LOGIN_REQUIRED")
    assert log_in(browser, "admin", "wrong") == 401
    assert browser.refusal("topics") == (401, "LOGIN_REQUIRED")


def test_each_user_sees_what_is_allowed(browser: Browser) -> None:
    assert log_in(browser, "admin", "a-secret") == 200 and browser.session["user"] == "admin"
    assert [row["name"] for row in browser.get("topics")["items"]] == ["orders"]
    assert (browser.session["kind"], browser.session["lacks"]) == ("kafkalite", None)
    former = browser.session["csrf_token"]
    assert log_in(browser, "alice", "b-secret") == 200 and browser.session["csrf_token"] != former
    assert browser.get("topics")["items"] == []
    assert (browser.session["kind"], browser.session["lacks"]) == (None, "DESCRIBE on the cluster")
    assert browser.get("cluster")["kind"] is None
    until(lambda: [one["kind"] for one in browser.get("problems")["items"]] == ["not_permitted"], "the missing right")
    assert browser.change("DELETE", "topics/orders")[0] in (403, 404)
    assert browser.change("POST", "logout")[0] == 200
    assert browser.refusal("topics") == (401, "LOGIN_REQUIRED")


def test_a_user_is_shown_what_access_lists_allow_on_a_topic_and_a_group() -> None:
    with Broker(**SETTINGS) as broker:
        broker.create_topic("orders")
        properties = {"security.protocol": "SASL_PLAINTEXT"}
        admin = ClientSecurity.of(properties, by_password("PLAIN", "admin", "a-secret"))
        with ClusterClient(broker.bootstrap_servers, 10, admin) as cluster:
            GroupAdmin(cluster, 10).commit("billing", {("orders", 0): 0})
            allowed = {"principal": "User:alice", "host": "*", "operation": "READ", "permission": "ALLOW"}
            named = {"pattern": "literal", **allowed}
            add_entries(cluster, [Entry.of({"resource": "topic", "name": "orders", **named})])
            add_entries(cluster, [Entry.of({"resource": "group", "name": "billing", **named})])
        with console(broker.bootstrap_servers, properties=properties) as browser:
            assert log_in(browser, "alice", "b-secret") == 200
            assert browser.get("topics/orders")["operations"] == ["READ", "DESCRIBE"]
            assert browser.get("group", group_id="billing")["operations"] == ["READ", "DESCRIBE"]
            assert log_in(browser, "admin", "a-secret") == 200
            assert {"WRITE", "DELETE", "ALTER_CONFIGS"} <= set(browser.get("topics/orders")["operations"])
            assert {"READ", "DELETE"} <= set(browser.get("group", group_id="billing")["operations"])


def test_a_user_of_any_enabled_mechanism_logs_in() -> None:
    """As docs/security.md sets it up: the administrator is a user of PLAIN, the others are of SCRAM."""
    with Broker(**SETTINGS | {"sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-512,SCRAM-SHA-256"}) as broker:
        properties = {"security.protocol": "SASL_PLAINTEXT"}
        admin = ClientSecurity.of(properties, by_password("PLAIN", "admin", "a-secret"))
        with ClusterClient(broker.bootstrap_servers, 10, admin) as cluster:
            add_user(cluster, "bob", "c-secret", {"SCRAM-SHA-512": 4096})
        with console(broker.bootstrap_servers, properties=properties) as browser:
            assert [log_in(browser, *one) for one in (("admin", "a-secret"), ("bob", "c-secret"))] == [200, 200]
            answer = browser.client.post("/api/login", json={"user": "admin", "password": "wrong"})
            assert (answer.status_code, answer.json()["message"]) == (401, "wrong user name or password")


def test_a_password_is_not_guessed_for_long(browser: Browser) -> None:
    codes = [log_in(browser, "admin", f"guess {number}") for number in range(11)]
    assert codes == [401] * 10 + [429] and log_in(browser, "admin", "a-secret") == 429
