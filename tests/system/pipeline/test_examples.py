"""The examples whose jobs keep a table up to date, as a newcomer runs them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.support.places import ROOT

pytest.importorskip("pyspark.sql", reason="needs the extra 'spark'")
pytest.importorskip("pyiceberg", reason="needs the extra 'tables': ./dev setup")
pytest.importorskip("deltalake", reason="needs the extra 'tables': ./dev setup")
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.skipif(shutil.which("java") is None, reason="needs java on the PATH"),
]
SVG = "{http://www.w3.org/2000/svg}"


def lines_of(example: str, *words: str) -> list[str]:
    command = [sys.executable, "-m", f"examples.{example}", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_a_dashboard_of_orders_in_iceberg(tmp_path: Path) -> None:
    pytest.importorskip("duckdb_extension_iceberg", reason="needs the extra 'duckdb': ./dev pipeline")
    picture = tmp_path / "revenue.svg"
    lines = lines_of("orders_into_iceberg", str(picture))
    assert [line.split(":")[0] for line in lines[:4]] == ["06", "12", "18", "24"]
    assert all(re.search(r" [\d,]+ orders, revenue +[\d,.]+, as the shop's$", line) for line in lines[:4])
    assert " 20,000 orders" in lines[3]
    assert lines[4:] == ["load: ended after a commit", f"120 figures are drawn in {picture}"]
    countries = ET.parse(picture).getroot().findall(f"{SVG}g[{SVG}rect]")
    assert [len(country) for country in countries] == [24] * 5
    assert picture.read_text() == (ROOT / "docs" / "pipeline" / "revenue.svg").read_text()


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_customers_as_a_table(kind: str) -> None:
    lines = lines_of("customers_as_a_table", kind)
    assert lines[:5] == [
        "the table has 2,000 customers, the last word on each",
        "600 customers move, 200 close their accounts",
        "the table has 1,800 customers, the last word on each",
        "latest: ended after a commit",
        "compaction leaves the same 1,800 records of the topic",
    ]
    bars = [line.split() for line in lines[5:-1]]
    assert len(bars) == 10 and sum(int(bar[-1]) for bar in bars) == 2_000 + 1_800
