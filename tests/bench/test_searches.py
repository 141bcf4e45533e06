"""The bench of the console's searches: a short run of the whole."""

from __future__ import annotations

import pytest

from bench.__main__ import main
from bench.keyed_log import CODECS


@pytest.mark.long
def test_every_search_goes_through_a_topic_of_every_codec(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["searches", "--size-mb", "1", "--times", "1"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("| 100 B", "| 1000 B"))]
    assert len(rows) == len(CODECS) * 2 * 6
