"""Every page, light and dark, wide and small: it draws, nothing on it fails, axe-core finds nothing serious."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.support.places import ROOT
from tests.system.browser import accessibility
from tests.system.browser.conftest import OpenPage
from tests.system.browser.pages import PAGES

PICTURES = ROOT / "docs" / "console"
PICTURE_BYTES_MAX = 150 << 10


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("bustle")
@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_is_drawn_and_accessible(
    open_page: OpenPage, axe: str, name: str, scheme: str, request: pytest.FixtureRequest
) -> None:
    page = open_page(PAGES[name], scheme=scheme)
    _settle(page)
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    assert page.locator("main .notice.error").count() == 0
    assert accessibility.findings(page, axe) == []
    if request.config.getoption("--screenshots", default=False):
        _picture(page, PICTURES / f"{name}-{scheme}.png")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_a_small_screen(open_page: OpenPage, axe: str, name: str) -> None:
    page = open_page(PAGES[name], small=True)
    _settle(page)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert accessibility.findings(page, axe) == []


def test_dialogs_are_accessible(open_page: OpenPage, axe: str) -> None:
    for address, button in (
        ("/topics", "Create topic"),
        ("/topics/orders", "Produce"),
        ("/topics/orders", "Add partitions"),
        ("/topics/orders", "Empty"),
        ("/topics/orders", "Delete"),
        ("/group?group_id=billing", "Reset offsets"),
        ("/group?group_id=billing", "Delete"),
    ):
        page = open_page(address)
        page.get_by_role("button", name=button, exact=True).click()
        page.get_by_role("dialog").wait_for()
        assert accessibility.findings(page, axe) == [], button


@pytest.mark.parametrize(
    ("address", "button", "choose"),
    [("/group?group_id=to-reset", "Reset offsets", True), ("/topics/orders", "Produce", False)],
)
def test_a_dialog_fits_a_small_screen(open_page: OpenPage, address: str, button: str, choose: bool) -> None:
    page = open_page(address, small=True)
    page.get_by_role("button", name=button, exact=True).click()
    dialog = page.get_by_role("dialog")
    if choose:
        dialog.get_by_label("Reset to").select_option("latest")
        dialog.locator("td b").first.wait_for()
    assert dialog.evaluate("element => element.scrollWidth - element.clientWidth") <= 0
    for control in dialog.locator("footer button, input, select, textarea").all():
        box = control.bounding_box()
        assert box is None or (box["x"] >= 0 and box["x"] + box["width"] <= 390)


def test_a_group_is_found_by_its_name_in_the_address(open_page: OpenPage) -> None:
    page = open_page("/groups/billing")
    expect(page.get_by_role("heading", level=1)).to_have_text("billing")
    assert page.url.endswith("/group?group_id=billing")


def test_the_zone_of_times_is_chosen_and_kept(open_page: OpenPage) -> None:
    page = open_page("/topics/orders/messages")
    page.get_by_role("button", name="Times: local").click()
    page.reload()
    page.get_by_role("button", name="Times: UTC").wait_for()


def test_the_choice_of_colours_is_kept(open_page: OpenPage) -> None:
    page = open_page("/topics", scheme="light")
    switch = page.get_by_role("button", name=re.compile("^Colours"))
    switch.click()
    switch.click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.reload()
    page.wait_for_selector("main h1")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_a_page_has_a_permanent_address(open_page: OpenPage) -> None:
    """The search and the order come back with the address, and Back goes back."""
    page = open_page("/topics")
    page.get_by_role("searchbox").fill("ship")
    page.wait_for_url("**q=ship**")
    page.get_by_role("link", name="shipments.v2").click()
    page.wait_for_url("**/topics/shipments.v2")
    page.get_by_role("link", name="Messages", exact=True).nth(1).click()
    page.wait_for_url("**/topics/shipments.v2/messages**")
    page.go_back()
    page.go_back()
    page.wait_for_url("**q=ship**")
    page.get_by_role("link", name="shipments.v2").wait_for()
    assert page.locator("tbody tr").count() == 1


def _settle(page: Page) -> None:
    page.wait_for_load_state("networkidle")
    expect(page.locator("[aria-busy], .waiting")).to_have_count(0)


def _picture(page: Page, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name.startswith("overview"):
        expect(page.locator(".figure", has_text="On the disk")).to_contain_text("iB")
    row = page.locator("tr.message").nth(2)
    if "messages" in path.name and row.count():
        row.click()
    page.screenshot(path=path)
    assert path.stat().st_size < PICTURE_BYTES_MAX, path.name


WEIGHT_BYTES_MAX = 250_000
_WEIGHT = """[...performance.getEntriesByType("resource"), ...performance.getEntriesByType("navigation")]
    .filter(one => !one.name.includes("/api/")).reduce((sum, one) => sum + one.decodedBodySize, 0)"""
_HOSTS = "[...new Set(performance.getEntriesByType('resource').map(one => new URL(one.name).origin))]"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_light_and_loads_nothing_from_elsewhere(open_page: OpenPage, name: str) -> None:
    """Its files, uncompressed: a fifth of that goes over the wire."""
    page = open_page(PAGES[name])
    _settle(page)
    weight = page.evaluate(_WEIGHT)
    print(f"{name}: {weight} bytes")
    assert 50_000 < weight <= WEIGHT_BYTES_MAX, weight
    assert page.evaluate(_HOSTS) == [page.evaluate("location.origin")]
