"""axe-core, the judge of accessibility: installed by npm, and run in the page by the browser's own tools."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.compatibility.interop.node import Node
from tests.support.places import ROOT

PACKAGE = Path(__file__).with_name("axe") / "package.json"
SERIOUS = ("serious", "critical")
RUN = "axe.run().then(result => JSON.stringify(result.violations))"


def axe_source() -> str:
    """The script; the test is skipped where npm cannot get it."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("no npm here, which installs axe-core")
    modules = Node(node, npm, ROOT / ".cache" / "browser").modules(PACKAGE)
    return (modules / "axe-core" / "axe.min.js").read_text()


def findings(page: Any, source: str) -> list[str]:
    """Serious and critical findings on the page as it is now."""
    tools = page.context.new_cdp_session(page)  # the page's own policy forbids scripts from elsewhere
    tools.send("Runtime.evaluate", {"expression": f"{source};0", "includeCommandLineAPI": True})
    answer = tools.send("Runtime.evaluate", {"expression": RUN, "awaitPromise": True, "returnByValue": True})
    tools.detach()
    violations = json.loads(answer["result"]["value"])
    return [
        f"{one['id']} ({one['impact']}): {node['html'][:200]}"
        for one in violations
        if one["impact"] in SERIOUS
        for node in one["nodes"]
    ]
