"""docs/security.md: its five minutes, done as they stand there, on another port."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import kafkalite
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.properties import read_properties
from tests.support.places import ROOT
from tests.support.ports import free_port

PAGE = ROOT / "docs" / "security.md"
ADDRESS = "127.0.0.1:9093"


def blocks(language: str) -> list[str]:
    """Of the section of the five minutes."""
    section = PAGE.read_text().partition("\n## In five minutes\n")[2].partition("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on this machine")
def test_the_five_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    subprocess.run(["sh", "-ec", blocks("sh")[0]], check=True, capture_output=True, timeout=60)
    address = f"127.0.0.1:{free_port()}"
    (properties,) = blocks("properties")
    (tmp_path / "secure.properties").write_text(properties.replace(ADDRESS, address))
    with kafkalite.Broker(BrokerConfig.load(read_properties(str(tmp_path / "secure.properties")))):
        names: dict[str, object] = {}
        for text in blocks("python"):
            exec(compile(text.replace(ADDRESS, address), str(PAGE), "exec"), names)
