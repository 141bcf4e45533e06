"""2,000 topics, 10 M records, 200 groups: how soon a page is painted, its memory, and a table of a page of rows."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import pytest

from bench.records import frame_cycle
from bench.replay import blocking_socket, pump
from tests.support.broker_process import ServedBroker
from tests.support.console_process import ConsoleProcess
from tests.system.browser.conftest import SETTINGS, OpenPage
from tests.system.browser.world import World

TOPICS, RECORDS, GROUPS, ROUNDS = 2000, 10_000_000, 200, 5
HEAP_BYTES_MAX = 100 << 20
ADDRESSES = ("/", "/topics", "/groups", "/compaction", "/storage", "/cluster", "/clients", "/topics/topic-0007",
             "/topics/orders/messages")  # fmt: skip
SHOWN = "() => document.querySelector('main tbody tr, main .tile, main .segment') && performance.now()"

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def large_console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    room = tmp_path_factory.mktemp("large")
    served = ServedBroker(room / "data", room / "broker.log", SETTINGS)
    served.start()
    world = World(served.bootstrap)
    world.create("orders", partitions=6)
    cycle = frame_cycle("orders", 1_000, 100, partitions=6)
    with blocking_socket(served.bootstrap) as sock:
        pump(sock, cycle, 300.0, RECORDS // 1_000)
    for first in range(0, TOPICS, 500):
        names = [f"topic-{number:04d}" for number in range(first, first + 500)]
        world.create(*names, **{"cleanup.policy": "compact" if first else "delete"})
    for number in range(GROUPS):
        world.read("orders", f"group-{number:03d}", number)
    with ConsoleProcess(served.bootstrap, room, "--write") as process:
        yield process
    served.stop()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("address", ADDRESSES)
def test_a_page_is_painted_in_little_memory(
    open_page: OpenPage, large_console: ConsoleProcess, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    paints, shown = [], []
    for _ in range(ROUNDS):
        page = open_page(address, of=large_console)
        shown.append(page.wait_for_function(SHOWN, polling="raf").json_value())
        page.wait_for_load_state("networkidle")
        paints.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
        assert page.evaluate("performance.memory.usedJSHeapSize") < HEAP_BYTES_MAX
        page.context.close()
    with capsys.disabled():
        print(f"\n{address}: frame {median(paints):.0f} ms, what is asked for {median(shown):.0f} ms (medians)")


def test_a_table_holds_one_page_of_rows(open_page: OpenPage, large_console: ConsoleProcess) -> None:
    page = open_page("/topics", of=large_console)
    page.get_by_text("of 2,00").first.wait_for()
    assert page.locator("tbody tr").count() <= 50
    page.get_by_role("button", name="Next page").click()
    page.get_by_text("51–100 of").wait_for()
    page.get_by_role("searchbox").fill("topic-1999")
    page.get_by_text("1–1 of 1").wait_for()
