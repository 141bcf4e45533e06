"""Messages by a schema registry and in other formats; columns, folding, the difference of two, saved searches."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator

import cbor2
import fastavro
import pytest
from playwright.sync_api import expect

from tests.support.console_process import ConsoleProcess
from tests.support.schema_registry import Registry, schema_registry
from tests.system.browser.accessibility import findings
from tests.system.browser.conftest import OpenPage
from tests.system.browser.world import World

CLICK = {
    "type": "record",
    "name": "shop.Click",
    "fields": [{"name": "page", "type": "string"}, {"name": "count", "type": "int"}],
}


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with schema_registry() as made:
        yield made


@pytest.fixture(scope="module")
def registered(world: World, registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """A console with a schema registry."""
    options = ("--write", "--schema-registry", registry.url)
    with ConsoleProcess(world.bootstrap, tmp_path_factory.mktemp("registered"), *options) as process:
        yield process


def framed(schema_id: int, page: str, count: int) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(CLICK), {"page": page, "count": count})
    return b"\0" + schema_id.to_bytes(4, "big") + stream.getvalue()


def test_a_registry_decodes_records_without_a_word(
    open_page: OpenPage, world: World, registry: Registry, registered: ConsoleProcess
) -> None:
    schema_id = registry.register("clicks-value", json.dumps(CLICK))
    world.create("clicks")
    world.produce("clicks", framed(schema_id, "/home", 3), framed(schema_id, "/cart", 200), framed(77, "?", 1))
    page = open_page("/topics/clicks/messages", of=registered)
    row = page.locator("tr.message", has_text="/cart")
    row.click()
    page.get_by_text(re.compile(f"avro, .*; schema id {schema_id}$")).wait_for()
    page.locator("tr.message").first.click()
    page.get_by_text("schema id 77: the schema registry answers: Schema 77 not found").first.wait_for()
    page.get_by_label("Filter expression").fill("value.count > 100")
    page.get_by_label("Filter expression").press("Enter")
    page.get_by_text("1 message of").wait_for()
    page.get_by_text("The filter expression fails for 1 record").wait_for()


def test_schemas_have_pages(open_page: OpenPage, registry: Registry, registered: ConsoleProcess, axe: str) -> None:
    registry.register("words", '"string"')
    registry.register("words", '{"type": "record", "name": "W", "fields": []}')
    page = open_page("/", of=registered)
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Schemas").click()
    page.get_by_role("link", name="words").click()
    page.get_by_label("Version").select_option("1")
    page.locator("pre.content", has_text='"string"').wait_for()
    assert findings(page, axe) == []


def test_a_view_is_kept_for_its_topic(open_page: OpenPage, world: World) -> None:
    world.create("packed")
    world.produce("packed", cbor2.dumps({"name": "ann", "tags": [1, 2]}), cbor2.dumps({"name": "bob"}))
    page = open_page("/topics/packed/messages")
    page.get_by_text("More", exact=True).click()
    page.get_by_label("Values as").select_option("cbor")
    page.get_by_label("Columns").fill("$.name")
    page.get_by_role("button", name="Search", exact=True).click()
    page.get_by_role("columnheader", name="$.name").wait_for()
    expect(page.locator("tr.message td:nth-child(5)")).to_have_text(["bob", "ann"])
    page.get_by_role("button", name="Save as").click()
    page.get_by_role("dialog").get_by_label("Name").fill("names")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    page.goto(page.url.split("?")[0])  # without formats in its address
    expect(page.locator("tr.message td:nth-child(5)")).to_have_text(["bob", "ann"])
    page.get_by_label("Filter expression").fill("value.name == 'ann'")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.locator("tr.message")).to_have_count(1)
    page.get_by_label("Saved searches").select_option("names")
    expect(page.locator("tr.message")).to_have_count(2)
    page.get_by_role("button", name="Remove the saved search").click()
    page.get_by_label("Saved searches").locator("option", has_text="No saved searches").wait_for(state="attached")


def test_json_folds_and_two_messages_are_compared(open_page: OpenPage, world: World, axe: str) -> None:
    world.create("versions")
    one = {"id": 7, "items": [{"sku": "A", "count": 1}], "state": "new"}
    world.produce("versions", json.dumps(one).encode(), json.dumps({**one, "state": "paid"}).encode())
    page = open_page("/topics/versions/messages")
    page.locator("tr.message").first.click()
    details = page.locator(".message-details")
    details.get_by_role("button", name="Fold").nth(1).click()
    expect(details.get_by_text('"A"')).to_be_hidden()
    assert findings(page, axe) == []
    details.get_by_role("button", name="Compare").click()
    page.locator("tr.message").first.click()
    page.locator("tr.message").nth(1).click()
    details.get_by_role("button", name="Compare").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("pre del")).to_have_text(re.compile('"state": "paid"'))
    expect(dialog.locator("pre ins")).to_have_text(re.compile('"state": "new"'))
    assert findings(page, axe) == []


def test_an_address_of_a_message_opens_it(open_page: OpenPage) -> None:
    page = open_page("/messages?topic=orders&from=offset&partitions=0&offset=3&limit=20&open=true")
    page.locator(".message-details").get_by_text("0 · 3", exact=True).wait_for()


def test_offsets_of_groups_are_read_in_their_topic(open_page: OpenPage) -> None:
    page = open_page("/topics/__consumer_offsets/messages?limit=1000")
    page.locator("tr.message", has_text='"group":"billing"').first.click()
    page.locator(".message-details").get_by_text('"metadata"').first.wait_for()
