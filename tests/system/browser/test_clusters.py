"""Two clusters in one console below a path, over TLS: pages, links, changes, and the way from one to the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.support.broker_process import ServedBroker
from tests.support.certificates import Authority
from tests.support.console_process import ConsoleProcess
from tests.system.browser.conftest import OpenPage
from tests.system.browser.world import World


@pytest.fixture(scope="module")
def both(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """A console of the world, which it may not change, and of an empty broker, which it may."""
    room: Path = tmp_path_factory.mktemp("both")
    other = ServedBroker(room / "data", room / "broker.log", {})
    other.start()
    file = room / "clusters.toml"
    file.write_text(
        f'[shop]\nbootstrap = "{world.bootstrap}"\n[empty]\nbootstrap = "{other.bootstrap}"\nwrite = true\n'
    )
    pem = Authority().identify("127.0.0.1").write(room / "console.pem")
    options = ("--clusters", str(file), "--base-path", "/kafka", "--write")
    with ConsoleProcess(world.bootstrap, room, *options, "--tls-certificate", pem, "--tls-key", pem) as process:
        yield process
    other.stop()


def test_clusters_are_changed_by_a_menu_and_keep_their_rights(open_page: OpenPage, both: ConsoleProcess) -> None:
    page = open_page("/kafka/", of=both)
    assert page.url == f"{both.url}/kafka/shop/"
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Topics").click()
    page.get_by_role("link", name="orders", exact=True).click()
    assert page.url == f"{both.url}/kafka/shop/topics/orders"
    assert page.get_by_role("button", name="Delete").is_disabled()
    page.get_by_role("link", name="Messages").last.click()
    page.locator("tr.message").first.click()
    page.get_by_role("button", name="As hex").last.click()
    expect(page.locator(".message-details pre").last).to_contain_text("00000000")
    page.reload()
    page.locator("tr.message").first.wait_for()
    page.get_by_label("Cluster", exact=True).select_option("empty")
    page.get_by_role("heading", name="Overview", level=1).wait_for()
    assert page.url == f"{both.url}/kafka/empty/"
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.get_by_role("button", name="Create topic").click()
    page.get_by_label("Name").fill("made.there")
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_text("made.there was created").wait_for()
    cookies = page.context.cookies()
    assert sorted(one["path"] for one in cookies) == ["/kafka/empty/", "/kafka/shop/"]
    assert all(one["secure"] and one["httpOnly"] for one in cookies)
