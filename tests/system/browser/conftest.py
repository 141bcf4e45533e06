"""A real browser in front of a real console and broker: Chromium through Playwright, `./dev browser`.

The broker and the console are processes of their own, one pair for the run, filled once (`world.py`). `open_page` gives
a tab that fails the test when a script of the page fails, logs an error, or breaks the content security policy.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, expect, sync_playwright

from tests.support.broker_process import ServedBroker
from tests.support.console_process import ConsoleProcess
from tests.system.browser.accessibility import axe_source
from tests.system.browser.bustle import Bustle
from tests.system.browser.world import World

CHROMIUM = ("/usr/bin/chromium", "chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--no-sandbox",  # containers have no user namespaces for it
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-precise-memory-info",
)
PAGE_LIMIT_MS = 20_000
PICTURES_AFTER_S = 110.0
WIDE = {"width": 1360, "height": 860}
SMALL = {"width": 390, "height": 800}
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "log.cleaner.backoff.ms": "3600000",  # what is dirty stays dirty until somebody compacts it
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--screenshots", action="store_true", help="write the pictures of each page into docs/console")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = f"{Path(__file__).parent}{os.sep}"
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.xdist_group("browser"))  # one world for all of them


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    room = tmp_path_factory.mktemp("browser")
    served = ServedBroker(room / "data", room / "broker.log", SETTINGS)
    served.start()
    yield served
    served.stop()


@pytest.fixture(scope="session")
def world(broker: ServedBroker) -> World:
    """The broker's topics and groups."""
    made = World(broker.bootstrap)
    made.fill()
    return made


@pytest.fixture(scope="session")
def console(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """A console that may change things."""
    with ConsoleProcess(world.bootstrap, tmp_path_factory.mktemp("console"), "--write") as process:
        yield process


@pytest.fixture(scope="session")
def bustle(world: World, console: ConsoleProcess, request: pytest.FixtureRequest) -> Iterator[None]:
    """For pictures the broker has been at work for two minutes, and is."""
    if not request.config.getoption("--screenshots", default=False):
        yield
        return
    with Bustle(world.bootstrap) as work:
        work.go_on(PICTURES_AFTER_S)
        yield


@pytest.fixture(scope="session")
def read_only_console(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    with ConsoleProcess(world.bootstrap, tmp_path_factory.mktemp("console")) as process:
        yield process


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    program = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium here: apt-get install chromium, or ./dev browser")
    expect.set_options(timeout=PAGE_LIMIT_MS)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def axe() -> str:
    return axe_source()


OpenPage = Callable[..., Page]


@pytest.fixture
def open_page(chromium: Browser, console: ConsoleProcess) -> Iterator[OpenPage]:
    """Opens an address in a tab of its own profile: `open_page("/topics", scheme="dark", small=True)`."""
    contexts, complaints = [], []

    def open_page(address: str, *, scheme: str = "light", small: bool = False, of: ConsoleProcess = console) -> Page:
        size = SMALL if small else WIDE
        context = chromium.new_context(
            color_scheme=scheme, viewport=size, reduced_motion="reduce", ignore_https_errors=True
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PAGE_LIMIT_MS)
        page.on("pageerror", lambda error: complaints.append(f"{page.url}: {error}"))
        page.on("dialog", refuse)
        page.on("console", lambda said: complain(page, said))
        page.goto(of.url + address)
        page.wait_for_selector("main h1")
        return page

    def refuse(dialog: Dialog) -> None:
        complaints.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def complain(page: Page, said: ConsoleMessage) -> None:
        if said.type == "error" and "Failed to load resource" not in said.text:  # an answer of 4xx, which pages show
            complaints.append(f"{page.url}: {said.text}")

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
