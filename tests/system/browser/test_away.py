"""A broker that is killed while pages are open, and comes back: they say so, and go on by themselves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.support.broker_process import ServedBroker
from tests.support.console_process import ConsoleProcess
from tests.system.browser.conftest import SETTINGS, OpenPage
from tests.system.browser.world import World

ADDRESSES = ("/", "/topics", "/topics/orders", "/storage", "/topics/orders/messages?from=tail")


@pytest.mark.timeout(300)
def test_pages_tell_that_the_broker_is_away_and_go_on(open_page: OpenPage, tmp_path: Path) -> None:
    broker = ServedBroker(tmp_path / "data", tmp_path / "broker.log", SETTINGS)
    broker.start()
    world = World(broker.bootstrap)
    world.create("orders", partitions=6)
    world.produce("orders", b"one", b"two")
    with ConsoleProcess(broker.bootstrap, tmp_path) as console:
        pages = [open_page(address, of=console) for address in ADDRESSES]
        broker.kill()
        for page in pages[:-1]:
            expect(page.locator(".stale")).to_contain_text(re.compile("As of [0-9:]+Z[.].*Retrying"), timeout=60_000)
            expect(page.locator("tbody tr, .card").first).to_be_visible()  # what was there stays
        expect(pages[-1].get_by_text(re.compile("Interrupted at [0-9:]+Z"))).to_be_in_viewport(timeout=60_000)
        late = open_page("/groups", of=console)
        expect(late.get_by_role("heading", level=1)).to_contain_text("cannot be shown now")
        broker.start()
        for page in pages[:-1]:
            expect(page.locator(".stale")).to_have_count(0, timeout=60_000)
        expect(late.get_by_role("heading", level=1)).to_have_text("Groups", timeout=60_000)
        World(broker.bootstrap).produce("orders", b"after the restart")
        expect(pages[-1].locator("tr.message", has_text="after the restart")).to_have_count(1, timeout=60_000)
    broker.stop()
