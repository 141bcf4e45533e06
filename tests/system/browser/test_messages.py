"""Messages in the browser: searches with progress that can be stopped, the live tail, and whatever people write."""

from __future__ import annotations

import json
import re

import pyarrow.parquet
import pytest
from google.protobuf import descriptor_pb2
from playwright.sync_api import Page, expect

from tests.support.hostile_records import hostile_records
from tests.system.browser.conftest import OpenPage
from tests.system.browser.world import HOSTILE, World

HEAP_BYTES_MAX = 100 << 20


def test_the_newest_messages_come_first(open_page: OpenPage, world: World) -> None:
    world.create("ordered")
    world.produce("ordered", *(b"%d" % number for number in range(30)))
    page = open_page("/topics/ordered/messages")
    page.get_by_text("30 messages of").wait_for()
    assert _offsets(page)[:3] == [29, 28, 27]
    page.get_by_label("Start").select_option("offset")
    page.get_by_label("Offset", exact=True).fill("12")
    page.get_by_role("button", name="Search").click()
    page.get_by_text("18 messages of").wait_for()
    assert _offsets(page)[0] == 12
    assert "offset=12" in page.url


def test_a_filter_finds_what_a_client_would(open_page: OpenPage) -> None:
    for query, text in (
        ("key=C00007&key_match=equals", "C00007"),
        ('value=$.customer="C00011"&value_match=json', "C00011"),
        ("value=C0001[0-2]&value_match=regex", "C0001"),
        ("header=source%3Dweb", "order"),
    ):
        page = open_page(f"/topics/orders/messages?from=beginning&{query}")
        page.get_by_text(re.compile("[1-9][0-9]* messages of")).wait_for()
        for row in page.locator("tr.message").all():
            assert text in row.inner_text()


def test_a_regular_expression_that_is_none_is_told(open_page: OpenPage) -> None:
    page = open_page("/topics/orders/messages?value=(&value_match=regex")
    page.locator("main .notice.error").wait_for()


def test_a_search_goes_on_where_it_was(open_page: OpenPage) -> None:
    page = open_page("/topics/orders/messages?from=beginning&limit=20")
    page.get_by_text("20 messages of").wait_for()
    page.get_by_role("button", name="Continue").click()
    expect(page.locator("tr.message")).to_have_count(40)
    keys = page.evaluate("[...document.querySelectorAll('.opener')].map(button => button.ariaLabel)")
    assert len(set(keys)) == 40


def test_the_tail_is_live_and_bounded(open_page: OpenPage, world: World) -> None:
    world.create("live")
    page = open_page("/topics/live/messages?from=tail")
    page.get_by_role("button", name="Stop").wait_for()
    page.get_by_text("Live").last.wait_for()
    for first in range(0, 1500, 100):
        world.produce("live", *(b"tick %d" % number for number in range(first, first + 100)))
    page.locator("tr.message", has_text="tick 1499").wait_for()
    assert page.locator("tr.message").count() <= 1000
    page.get_by_role("button", name="Stop").click()
    page.get_by_text("Stopped.").wait_for()


def test_an_opened_row_of_a_tail_stays_and_holds_the_others_back(open_page: OpenPage, world: World) -> None:
    world.create("paused")
    page = open_page("/topics/paused/messages?from=tail")
    page.get_by_role("button", name="Pause").wait_for()
    page.get_by_text("Live").last.wait_for()
    world.produce("paused", b"opened")
    page.locator("tr.message", has_text="opened").click()
    for first in range(0, 1200, 300):
        world.produce("paused", *(b"tick %d" % number for number in range(first, first + 300)))
    page.get_by_role("button", name="Resume (1,000 new)").wait_for()
    assert page.locator("tr.message").count() == 1
    page.get_by_role("button", name="Resume").click()
    page.locator("tr.message", has_text="tick 1199").wait_for()
    expect(page.locator("tr.message-details")).to_have_count(1)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Escape")
    page.get_by_text("Stopped.").wait_for()
    expect(page.get_by_role("button", name="Pause")).to_be_hidden()


def test_a_search_is_stopped_with_escape(open_page: OpenPage) -> None:
    page = open_page("/topics/orders/messages?from=tail")
    page.get_by_role("button", name="Stop").wait_for()
    page.get_by_label("value filter").focus()
    page.keyboard.press("Escape")
    page.get_by_text("Stopped.").wait_for()


def test_transactions_are_told_apart(open_page: OpenPage) -> None:
    page = open_page("/topics/transfers/messages")
    page.locator("tr.message", has_text="commit_transaction 4").wait_for()
    aborted = page.locator("tr.message", has_text="abort_transaction 4")
    assert "aborted" in aborted.inner_text()
    page.get_by_text("More", exact=True).click()
    page.get_by_label("Isolation").select_option("read_committed")
    page.get_by_role("button", name="Search").click()
    page.get_by_text("5 messages of").wait_for()


def test_hostile_messages_are_shown_and_hurt_nothing(open_page: OpenPage) -> None:
    page = open_page("/topics/hostile/messages?limit=200")
    page.get_by_text(f"{len(HOSTILE)} messages of").wait_for()
    for number in range(len(HOSTILE)):
        row = page.locator("tr.message").nth(number)
        row.click()
        details = page.locator(".message-details").first
        details.wait_for()
        for button in ("As text", "As hex"):
            for found in details.get_by_role("button", name=button).all():
                found.click()
        if (whole := details.get_by_role("button", name="Show all of it")).count():
            whole.last.click()
            whole.last.wait_for(state="detached")
        row.click()
    assert page.title() == "hostile · kafkalite"
    assert page.evaluate("document.querySelectorAll('main script, main img, main svg[onload]').length") == 0
    assert page.evaluate("({}).polluted") is None
    page.locator("tr.message", has_text="<script>document.title").first.wait_for()


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_ten_thousand_hostile_messages_hurt_nothing(open_page: OpenPage, world: World) -> None:
    count, portion = 10_000, 200  # of those that the page offers
    world.create("many-hostile", **{"max.message.bytes": "20000000"})
    world.produce_hostile("many-hostile", hostile_records(count, seed=2))
    for first in range(0, count, portion):
        page = open_page(f"/topics/many-hostile/messages?from=offset&offset={first}&limit={portion}")
        page.get_by_text(f"{portion} messages of").wait_for()
        rows = page.locator("tr.message")
        assert rows.count() == portion
        for number in range(0, portion, 50):
            rows.nth(number).click()
            page.locator(".message-details").first.wait_for()
            rows.nth(number).click()
        assert page.title() == "many-hostile · kafkalite"
        assert page.evaluate("document.querySelectorAll('main script, main img, main iframe, main base').length") == 0
        assert page.evaluate("({}).polluted") is None
        assert _heap(page) < HEAP_BYTES_MAX
        page.close()


def test_a_message_of_ten_megabytes_is_shown(open_page: OpenPage) -> None:
    page = open_page("/topics/huge/messages")
    row = page.locator("tr.message").first
    row.wait_for()
    row.click()
    page.get_by_role("button", name="Show all of it").click()
    page.get_by_text("characters: download it").wait_for(timeout=60_000)
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").last.click()
    assert download.value.path().stat().st_size == 10_000_009
    assert _heap(page) < HEAP_BYTES_MAX


def test_messages_are_exported(open_page: OpenPage) -> None:
    page = open_page("/topics/orders/messages?from=beginning&limit=20")
    page.get_by_text("20 messages of").wait_for()
    _export(page, "1,000", 1000)
    values = [json.loads(line)["value"] for line in _export(page, "50", 50)]
    assert all("order" in value for value in values)


def test_the_newest_messages_are_exported_first(open_page: OpenPage, world: World) -> None:
    world.create("exported")
    world.produce("exported", *(b"%d" % number for number in range(60)))
    page = open_page("/topics/exported/messages")
    page.get_by_text("50 messages of").wait_for()
    assert [json.loads(line)["offset"] for line in _export(page, "50", 50)] == list(range(59, 9, -1))
    page.get_by_role("button", name="Export").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Format").select_option("Parquet")
    with page.expect_download() as download:
        dialog.get_by_role("button", name="Export").click()
    assert pyarrow.parquet.read_table(download.value.path()).num_rows == 60


def _export(page: Page, limit: str, expected: int) -> list[str]:
    page.get_by_role("button", name="Export").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("At most").select_option(limit)
    with page.expect_download() as download:
        dialog.get_by_role("button", name="Export").click()
    lines = download.value.path().read_text().splitlines()
    assert len(lines) == expected
    return lines


def test_protobuf_is_read_by_its_descriptors(open_page: OpenPage, world: World) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    message.field.add(name="number", number=1, type=descriptor_pb2.FieldDescriptorProto.TYPE_INT32)
    world.create("protobuf")
    world.produce("protobuf", b"\x08\x2a")
    page = open_page("/topics/protobuf/messages")
    page.get_by_text("More", exact=True).click()
    page.get_by_label("Values as").select_option("protobuf")
    page.get_by_role("button", name="Search").click()
    page.get_by_text("Choose the file with the Protobuf descriptors").wait_for()
    data = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    page.get_by_label("Protobuf descriptors of values").set_input_files(
        {"name": "shop.desc", "mimeType": "application/octet-stream", "buffer": data}
    )
    page.get_by_text("shop.desc,").wait_for()
    page.get_by_label("Message of values").fill("shop.Order")
    page.get_by_role("button", name="Search").click()
    page.locator("tr.message", has_text='"number":').wait_for()
    page.wait_for_url("**value_message=shop.Order**")


@pytest.mark.parametrize("address", ["/topics/orders/messages?limit=1000&from=beginning", "/topics", "/cluster"])
def test_a_page_stays_small(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    page.wait_for_load_state("networkidle")
    assert _heap(page) < HEAP_BYTES_MAX


def _offsets(page: Page) -> list[int]:
    cells = page.locator("tr.message td:nth-child(2)").all_inner_texts()
    return [int(text.replace(",", "")) for text in cells]


def _heap(page: Page) -> int:
    """Bytes of the page's scripts, after the garbage was collected."""
    tools = page.context.new_cdp_session(page)
    tools.send("HeapProfiler.collectGarbage")
    used = tools.send("Runtime.getHeapUsage")["usedSize"]
    tools.detach()
    return int(used)
