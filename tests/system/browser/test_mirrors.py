"""The page of mirrors: a source that is copied, and a process that does not answer."""

from __future__ import annotations

import pytest

from kafkalite.client.mirror.copied_partition import CopiedPartition, Counts
from kafkalite.client.mirror.flow_status import FlowStatus, mirror_metrics
from tests.support.console_process import ConsoleProcess
from tests.support.ports import free_port
from tests.support.served_text import served_text
from tests.system.browser.accessibility import findings
from tests.system.browser.conftest import OpenPage
from tests.system.browser.world import World


def test_mirrors_have_a_page(
    open_page: OpenPage, world: World, tmp_path_factory: pytest.TempPathFactory, axe: str
) -> None:
    partition = CopiedPartition(("orders", 0), ("west.orders", 0), counts=Counts(1500, 90_000, 1234, 0, 25))
    status = FlowStatus("west", lambda: 1_700_000_000_000, {partition.source: partition}, is_copying=True)
    status.report("west: connection closed")
    away = f"http://127.0.0.1:{free_port()}"
    with served_text("".join(mirror_metrics([status]).pieces())) as served:
        options = ("--mirrors", f"{served.url},{away}")
        with ConsoleProcess(world.bootstrap, tmp_path_factory.mktemp("mirrored"), *options) as process:
            page = open_page("/", of=process)
            page.get_by_role("navigation", name="Pages").get_by_role("link", name="Mirrors").click()
            row = page.get_by_role("row", name="west").first
            row.get_by_text("copying").wait_for()
            row.get_by_text("1,234").wait_for()
            row.get_by_text("west: connection closed").wait_for()
            page.get_by_text("no answer").wait_for()
            page.get_by_text("Connection refused").wait_for()
            assert findings(page, axe) == []
