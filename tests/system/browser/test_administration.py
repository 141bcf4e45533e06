"""Administration in the browser: access, quotas, settings, placement, records again and elsewhere, analysis."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AclBindingFilter, AclOperation, AclPermissionType, ResourcePatternType, ResourceType
from playwright.sync_api import expect

from tests.support.broker_process import ServedBroker
from tests.support.console_process import ConsoleProcess
from tests.support.streams_members import StreamsMember, counting_topology
from tests.support.wait import until
from tests.system.browser.accessibility import findings
from tests.system.browser.conftest import OpenPage
from tests.system.browser.world import World


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServedBroker, ConsoleProcess]]:
    """A broker with access control lists, and a console that may change them."""
    room = tmp_path_factory.mktemp("guarded")
    authorizer = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    broker = ServedBroker(room / "data", room / "broker.log", authorizer)
    broker.start()
    with ConsoleProcess(broker.bootstrap, room, "--write") as process:
        yield broker, process
    broker.stop()


def test_entries_are_added_and_removed(
    open_page: OpenPage, guarded: tuple[ServedBroker, ConsoleProcess], axe: str
) -> None:
    broker, process = guarded
    page = open_page("/access", of=process)
    page.get_by_text("No entries").wait_for()
    page.get_by_role("button", name="Add entry").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Principal").fill("User:ann")
    dialog.get_by_label("Operation").select_option("WRITE")
    dialog.get_by_label("Name", exact=True).fill("pay")
    dialog.get_by_label("Names are").select_option("prefixed")
    assert findings(page, axe) == []
    dialog.get_by_role("button", name="Add").click()
    row = page.get_by_role("row", name=re.compile("User:ann"))
    row.wait_for()
    any_entry = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    admin = World(broker.bootstrap).admin
    [found] = admin.describe_acls(any_entry).result(30)
    assert (found.name, found.principal, found.operation) == ("pay", "User:ann", AclOperation.WRITE)
    assert found.resource_pattern_type == ResourcePatternType.PREFIXED and findings(page, axe) == []
    row.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove it").click()
    page.get_by_text("No entries").wait_for()
    assert admin.describe_acls(any_entry).result(30) == []


def test_users_and_quotas_are_edited(
    open_page: OpenPage, guarded: tuple[ServedBroker, ConsoleProcess], axe: str
) -> None:
    page = open_page("/access?show=users", of=guarded[1], small=True)
    page.get_by_role("button", name="Add user").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("ann")
    dialog.get_by_label("Password").fill("correct horse battery")
    dialog.get_by_role("button", name="Add").click()
    page.get_by_role("cell", name="ann", exact=True).wait_for()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    page.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove it").click()
    page.get_by_text("No SCRAM users").wait_for()
    page = open_page("/clients?show=quotas", of=guarded[1])
    page.get_by_role("button", name="Set quota").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("User").fill("ann")
    dialog.get_by_label("producer_byte_rate").fill("1 MiB")
    assert findings(page, axe) == []
    dialog.get_by_role("button", name="Save").click()
    page.get_by_text("1.0 MiB/s").wait_for()
    page.get_by_role("button", name="Edit").click()
    page.get_by_role("dialog").get_by_label("producer_byte_rate").fill("")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    page.get_by_text("No quotas are set").wait_for()


def test_a_broker_and_a_topic_get_settings_in_units(open_page: OpenPage, world: World, axe: str) -> None:
    page = open_page("/cluster")
    page.locator("a[href^='/cluster/brokers/']").first.click()
    page.get_by_label("Search settings").fill("message.max.bytes")
    page.get_by_role("button", name="Change message.max.bytes", exact=True).click()
    page.get_by_role("textbox", name="Value").fill("2 MiB")
    assert findings(page, axe) == []
    page.get_by_role("button", name="Save").click()
    page.get_by_text(re.compile("message.max.bytes of broker .* was changed")).wait_for()
    expect(page.get_by_role("row", name=re.compile("^message.max.bytes"))).to_contain_text("2097152")
    page.get_by_role("button", name="Change message.max.bytes", exact=True).click()
    page.get_by_label("Reset").check()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("row", name=re.compile("^message.max.bytes"))).not_to_contain_text("2097152")
    page = open_page("/topics/scratch/configuration")
    page.get_by_role("button", name="Change retention.ms").click()
    page.get_by_role("textbox", name="Value").fill("1 d 12 h")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("row", name=re.compile("^retention.ms"))).to_contain_text("129600000")
    page.get_by_role("button", name="Change compression.type").click()
    page.get_by_role("combobox", name="Value").select_option("zstd")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("row", name=re.compile("^compression.type"))).to_contain_text("zstd")


def test_leaders_are_elected_and_partitions_moved(open_page: OpenPage) -> None:
    page = open_page("/cluster")
    page.get_by_role("button", name="Elect leaders").click()
    page.get_by_role("dialog").get_by_role("button", name="Elect").click()
    page.get_by_text("0 new leaders").wait_for()
    page = open_page("/topics/orders")
    page.get_by_role("button", name="Move partition 1", exact=True).click()
    dialog = page.get_by_role("dialog")
    assert dialog.get_by_label("Partitions").input_value() == "1"
    dialog.get_by_label("Replicas").fill("77")
    dialog.get_by_role("button", name="Move").click()
    dialog.get_by_text("broker 77 not found").wait_for()


def test_records_are_produced_again_copied_and_deleted(open_page: OpenPage, world: World, axe: str) -> None:
    world.create("origin", "elsewhere")
    world.produce("origin", b'{"n": 1}', b"\xff\x00", b'{"n": 3}')
    page = open_page("/topics/origin/messages")
    page.locator("tr.message", has_text='"n": 1').click()
    page.get_by_role("button", name="Produce again").click()
    dialog = page.get_by_role("dialog")
    value = dialog.get_by_label("Value", exact=True)
    assert value.input_value() == '{"n": 1}'
    value.fill('{"n": 4')
    dialog.get_by_text("Not valid JSON").wait_for()
    value.fill('{"n": 4}')
    dialog.get_by_label("Keep this open").check()
    assert findings(page, axe) == []
    dialog.get_by_role("button", name="Produce").click()
    dialog.get_by_text("Written at offset 3").wait_for()
    assert value.input_value() == '{"n": 4}'
    dialog.get_by_role("button", name="Cancel").click()
    page.locator("tr.message", has_text='"n": 4').wait_for()
    page.locator("tr.message", has_text="ff00").click()
    page.get_by_role("button", name="Copy to topic").click()
    dialog.get_by_label("Topic").fill("elsewhere")
    dialog.get_by_label("Records").fill("2")
    dialog.get_by_role("button", name="Copy").click()
    page.get_by_text("2 records copied to elsewhere").wait_for()
    assert world.offsets("elsewhere") == (0, 2)
    page.get_by_role("button", name="Delete older").click()
    assert dialog.get_by_label("Before offset").input_value() == "1"
    dialog.get_by_label("Type the topic name").fill("origin")
    dialog.get_by_role("button", name="Empty it").click()
    until(lambda: world.offsets("origin") == (1, 4), "the deletion")


def test_one_partition_of_a_group_is_reset(open_page: OpenPage, world: World) -> None:
    world.read("orders", "one-partition", 50)
    page = open_page("/group?group_id=one-partition")
    page.get_by_role("button", name="Reset orders-2").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reset to").select_option("earliest")
    expect(dialog.get_by_role("table", name="Preview").get_by_role("row")).to_have_count(2)
    dialog.get_by_role("button", name="Reset").click()
    page.get_by_text("1 offset of one-partition were reset").wait_for()


def test_a_group_of_kafka_streams_shows_tasks_and_topology(open_page: OpenPage, world: World, axe: str) -> None:
    world.create("texts", partitions=2)
    member = StreamsMember(world.bootstrap, "counting", "m1", counting_topology("counting", "texts"))
    member.await_tasks()
    page = open_page("/group?group_id=counting")
    tasks = page.get_by_role("table", name="Members").get_by_role("row").nth(1)
    expect(tasks).to_contain_text("0 0–1")
    expect(tasks).to_contain_text("1 0–1")
    page.get_by_role("heading", name="Topology").wait_for()
    assert findings(page, axe) == []


def test_a_topic_is_analysed(open_page: OpenPage, axe: str) -> None:
    page = open_page("/topics/users/analysis")
    page.get_by_role("button", name="Analyse").click()
    page.get_by_role("table", name="Sizes of values").wait_for()
    figures = page.locator(".figures").inner_text()
    assert "Distinct keys" in figures and "60" in figures and "Tombstones" in figures
    assert findings(page, axe) == []
