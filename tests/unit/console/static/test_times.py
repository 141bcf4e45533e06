"""Times on the pages of the console, by the pages' own script in Node.js: as the commands have them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.common.errors import ConfigError
from kafkalite.common.timestamps import DATE_MS_MAX, DATE_MS_MIN, format_timestamp, parse_timestamp
from tests.support.local_zone import local_zone
from tests.support.places import ROOT
from tests.support.wait import DEADLINE_S

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="needs Node.js")

ZONE = "Europe/Berlin"  # Node.js has a database of its own, and knows no rules as text
_CHANGES = ("2026-03-29T0", "2026-10-25T0", "2027-03-28T0")
_TEXTS = st.builds("{}{}:{:02}".format, st.sampled_from(_CHANGES), st.integers(0, 5), st.integers(0, 59))
_TIMESTAMPS = st.one_of(
    st.integers(DATE_MS_MAX + 1, (1 << 53) - 1),
    st.integers(1 - (1 << 53), DATE_MS_MIN - 1),
    st.integers(820_000_000_000, 2_000_000_000_000),  # Node.js knows of other rules before
    st.integers(-3, 3),
)


def in_a_browser(room: Path, calls: list[tuple[str, Any]]) -> list[Any]:
    """The results of functions of format.js, or the message of their Error."""
    shutil.copy(ROOT / "kafkalite/console/static/parts/format.js", room / "format.mjs")
    script = (
        'import * as format from "./format.mjs";\n'
        "const said = ([name, value]) => {\n"
        "  try { return format[name](value); } catch (error) { return error.message; }\n"
        "};\n"
        f"console.log(JSON.stringify({json.dumps(calls)}.map(said)));\n"
    )
    (room / "asked.mjs").write_text(script)
    environment = {**os.environ, "TZ": ZONE}
    done = subprocess.run(
        [str(NODE), "asked.mjs"],
        cwd=room,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    found: list[Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("node")


@settings(max_examples=5)
@given(timestamps=st.lists(_TIMESTAMPS, min_size=50, max_size=100))
def test_a_timestamp_is_shown_as_a_command_shows_it(room: Path, timestamps: list[int]) -> None:
    shown = in_a_browser(room, [("time", each) for each in timestamps])
    with local_zone():
        assert shown == [format_timestamp(each, absent="–") for each in timestamps]


@settings(max_examples=5)
@given(texts=st.lists(_TEXTS, min_size=50, max_size=100))
def test_a_local_time_is_what_a_command_takes_it_for(room: Path, texts: list[str]) -> None:
    """A word that a command refuses because it comes twice is the first of the two here, and is named."""
    taken = in_a_browser(room, [("momentOf", each) for each in texts])
    meant = in_a_browser(room, [("meaning", each) for each in texts])
    with local_zone():
        for text, moment, words in zip(texts, taken, meant, strict=True):
            try:
                assert parse_timestamp("t", text) == moment and words == format_timestamp(moment)
            except ConfigError as error:
                if "twice" in str(error):
                    assert words == f"Comes twice: {format_timestamp(moment)} is taken, not " + format_timestamp(
                        moment + timedelta(hours=1) // timedelta(milliseconds=1)
                    )
                else:
                    assert "never comes here" in moment and words.startswith("Never comes here")


def test_what_is_far_off_is_not_said_to_be_now(room: Path) -> None:
    calls = [("ago", each) for each in (1_770_000_000_000_000, 4_000_000_000_000, -1, None)]
    beyond, future, none, unknown = in_a_browser(room, calls)
    assert (beyond, none, unknown) == ("1770000000000000 ms", "never", "–") and future.startswith("in ")
    nanoseconds = 1_770_000_000_123_456_789
    assert in_a_browser(room, [("time", nanoseconds)]) == ["about 1.77000000012346e+18 ms"], "JSON has no more digits"
