"""Every page in front of a cluster of three brokers, and of an Apache Kafka, of which the protocol tells less."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.reference import ReferenceUnavailable
from kafkalite.testing import Cluster
from tests.compatibility.interop.zookeeper_kafka import zookeeper_kafka
from tests.support.console_process import ConsoleProcess
from tests.system.browser.conftest import OpenPage
from tests.system.browser.pages import PAGES
from tests.system.browser.world import World

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ADDRESSES = [
    re.sub("users|transfers", "orders", address)
    for name, address in PAGES.items()
    if name not in ("not-found", "messages")
]


@contextmanager
def three_brokers(_: Path) -> Iterator[str]:
    cluster = Cluster(3)
    with ThreadPoolExecutor(1) as thread:  # in this one Playwright has an event loop
        thread.submit(cluster.__enter__).result()
        try:
            yield cluster.bootstrap_servers
        finally:
            thread.submit(cluster.__exit__, None, None, None).result()


@contextmanager
def apache_kafka(room: Path) -> Iterator[str]:
    try:
        with zookeeper_kafka(room / "home", [room / "data"]) as kafka:
            kafka.start()
            yield f"127.0.0.1:{kafka.port}"
    except ReferenceUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module", params=[three_brokers, apache_kafka], ids=["three brokers", "Apache Kafka 3.9.1"])
def other_console(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    room = tmp_path_factory.mktemp("other")
    with request.param(room) as bootstrap:
        world = World(bootstrap)
        world.create("orders", partitions=6)
        world.produce("orders", *(b"%d" % number for number in range(300)))
        world.read("orders", "billing", 5)
        with ConsoleProcess(bootstrap, room, "--write") as process:
            yield process


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_page_is_drawn_without_a_complaint(open_page: OpenPage, other_console: ConsoleProcess, address: str) -> None:
    page = open_page(address, of=other_console)
    page.wait_for_load_state("networkidle")
    text = page.inner_text("main")
    assert "undefined" not in text and "NaN" not in text and "[object" not in text
    assert page.locator("main .notice.error").count() == 0, text
    if address.startswith("/topics/orders/messages"):
        page.locator("tr.message").first.wait_for()
