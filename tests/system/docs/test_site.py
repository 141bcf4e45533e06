"""The site is built from docs/ as it would be published: each page has a place, each link and each anchor a target."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.places import ROOT
from tests.support.wait import DEADLINE_S


def test_the_site_is_built_without_a_broken_link(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {path.relative_to(tmp_path / "site").as_posix() for path in (tmp_path / "site").rglob("*.html")}
    assert {"index.html", "tutorial.html", "reference/settings.html", "reference/commands.html"} <= pages
    settings = (tmp_path / "site" / "reference" / "settings.html").read_text()
    assert "log.segment.bytes" in settings and "group.share.record.lock.duration.ms" in settings
    foreign = re.findall(r'(?:src|href)="(https?://[^"]+\.(?:js|css|woff2?))"', settings)
    assert not foreign, "the pages load nothing from elsewhere"
