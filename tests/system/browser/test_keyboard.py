"""All of it without a mouse: going places, searching, tables, dialogs, messages."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.support.wait import until
from tests.system.browser.conftest import OpenPage
from tests.system.browser.pages import PAGES
from tests.system.browser.world import World


def test_keys_lead_to_every_page(open_page: OpenPage) -> None:
    page = open_page("/")
    for key, heading in zip("tmgcsblo", _HEADINGS, strict=True):
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.get_by_role("heading", name=heading, level=1, exact=True).wait_for()
        page.evaluate("document.activeElement.blur()")  # Messages puts the focus where one types


_HEADINGS = ("Topics", "Messages", "Groups", "Compaction", "Storage", "Cluster", "Clients", "Overview")


def test_a_question_mark_shows_the_keys(open_page: OpenPage) -> None:
    page = open_page("/")
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keys").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")


def test_a_topic_is_found_and_opened(open_page: OpenPage) -> None:
    page = open_page("/topics")
    page.keyboard.press("/")
    page.keyboard.type("pay")
    page.wait_for_url("**q=pay**")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics/payments")


def test_arrows_go_through_rows(open_page: OpenPage) -> None:
    page = open_page("/topics")
    page.locator("tbody tr").first.focus()
    page.keyboard.press("j")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("k")
    assert page.evaluate("[...document.querySelectorAll('tbody tr')].indexOf(document.activeElement)") == 1
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement === [...document.querySelectorAll('tbody tr')].at(-1)")


def test_a_topic_is_created_and_deleted(open_page: OpenPage, world: World) -> None:
    page = open_page("/topics")
    page.get_by_role("button", name="Create topic").focus()
    page.keyboard.press("Enter")
    page.keyboard.type("by-keyboard")
    page.keyboard.press("Enter")
    page.get_by_text("by-keyboard was created").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("by-keyboard")
    page.wait_for_url("**q=by-keyboard**")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics/by-keyboard")
    page.get_by_role("button", name="Delete").focus()
    page.keyboard.press("Space")
    page.get_by_role("dialog").wait_for()
    page.keyboard.type("by-keyboard")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics")
    until(lambda: "by-keyboard" not in world.admin.list_topics(timeout=30).topics, "the topic to be gone")


def test_messages_are_searched_and_opened(open_page: OpenPage) -> None:
    page = open_page("/topics/orders/messages")
    page.locator("tr.message").first.wait_for()
    page.keyboard.press("/")
    page.keyboard.type("C00007")
    page.keyboard.press("Enter")
    page.get_by_text("messages of").wait_for()
    page.locator("tr.message").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.locator(".message-details", has_text="Partition and offset").wait_for()
    page.keyboard.press("Enter")
    page.locator(".message-details").wait_for(state="detached")


def test_everything_that_can_be_pressed_can_be_reached(open_page: OpenPage) -> None:
    """With Tab, or with the arrow keys in a table; and whatever has the focus is seen to have it."""
    for address in (PAGES["topics"], PAGES["topic"], PAGES["topic-messages"], PAGES["group"]):
        page = open_page(address)
        page.wait_for_load_state("networkidle")
        wanted = page.evaluate(_PRESSABLE)
        page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
        seen: set[str] = set()
        for _ in range(400):
            page.keyboard.press("Tab")
            name, outline = page.evaluate(_FOCUSED)
            if name in seen or name.startswith("BODY"):  # all around
                break
            assert outline != "none", name
            seen.add(name)
        assert set(wanted) <= seen, address


_NAME = """element => {
  const all = [...document.querySelectorAll(element.tagName)];
  return `${element.tagName} ${all.indexOf(element)} ${element.ariaLabel ?? element.innerText ?? ""}`;
}"""
_PRESSABLE = f"""() => [...document.querySelectorAll("button, a[href], input, select, textarea, summary")]
  .filter(element => element.checkVisibility() && !element.disabled && !element.closest("tbody"))
  .map({_NAME})"""
_FOCUSED = f"""() => {{
  const element = document.activeElement;
  return [({_NAME})(element), getComputedStyle(element).outlineStyle];
}}"""
