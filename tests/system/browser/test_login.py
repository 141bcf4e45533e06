"""The login form: the broker's own users, and what their access control lists leave them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
)
from confluent_kafka.admin import ResourceType as Resource
from playwright.sync_api import Page, expect

from tests.support.broker_process import ServedBroker
from tests.support.console_process import ConsoleProcess
from tests.system.browser import accessibility
from tests.system.browser.conftest import OpenPage

USERS = "org.apache.kafka.common.security.plain.PlainLoginModule required user_admin=a-secret user_alice=b-secret;"
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "inter.broker.listener.name": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": USERS,
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:admin",
}


@pytest.fixture
def locked_console(tmp_path: Path) -> Iterator[ConsoleProcess]:
    """In front of a broker that wants a login; alice may see one topic of two."""
    served = ServedBroker(tmp_path / "data", tmp_path / "broker.log", SETTINGS)
    served.start()
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    admin = AdminClient(
        {"bootstrap.servers": served.bootstrap, "sasl.username": "admin", "sasl.password": "a-secret"} | login
    )
    for future in admin.create_topics([NewTopic("hers", 1), NewTopic("not-hers", 1)]).values():
        future.result(30)
    for operation in (AclOperation.DESCRIBE, AclOperation.READ):
        rule = AclBinding(
            Resource.TOPIC, "hers", ResourcePatternType.LITERAL, "User:alice", "*", operation, AclPermissionType.ALLOW
        )
        [done] = admin.create_acls([rule]).values()
        done.result(30)
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in login.items()))
    with ConsoleProcess(served.bootstrap, tmp_path, "--command-config", str(config), "--write") as process:
        yield process
    served.stop()


def test_a_user_logs_in_and_sees_what_the_acls_allow(open_page: OpenPage, locked_console: ConsoleProcess) -> None:
    page = open_page("/topics", of=locked_console)
    page.wait_for_url("**/login?to=**")
    assert accessibility.findings(page, accessibility.axe_source()) == []
    _log_in(page, "alice", "wrong")
    page.get_by_role("alert").wait_for()
    _log_in(page, "alice", "b-secret")
    page.wait_for_url("**/topics**")
    page.get_by_role("link", name="hers", exact=True).wait_for()
    assert page.get_by_role("link", name="not-hers").count() == 0
    page.goto(locked_console.url + "/topics/hers")
    for name, lacked in (("Produce", "WRITE"), ("Empty", "DELETE"), ("Delete", "DELETE"), ("Add partitions", "ALTER")):
        button = page.get_by_role("button", name=name, exact=True)
        expect(button).to_be_disabled()
        expect(button).to_have_attribute("title", f"You lack {lacked} on hers")
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/login**")


def test_a_login_leads_nowhere_else(open_page: OpenPage, locked_console: ConsoleProcess) -> None:
    page = open_page("/login?to=https://elsewhere.example/", of=locked_console)
    _log_in(page, "admin", "a-secret")
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    assert page.url.startswith(locked_console.url)


def _log_in(page: Page, user: str, password: str) -> None:
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()
