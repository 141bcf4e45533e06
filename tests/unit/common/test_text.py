"""Text of others steers no terminal."""

from __future__ import annotations

import base64
import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.common import text as text_module
from kafkalite.common.text import base64_pieces, is_text, printable, safe_json, text_pieces

STEERING = "\x1b\0\x07\r\n\t\x7f\x9b\x85\u061c\u200e\u2028\u2029\u202a\u202e\u2066\u2069\ud800\udcff"
texts = st.text(st.sampled_from(STEERING) | st.characters(), max_size=40)


@given(texts)
def test_nothing_that_steers_is_left(text: str) -> None:
    shown = printable(text)
    assert all(unicodedata.category(each) not in ("Cc", "Cs", "Zl", "Zp") for each in shown)
    assert all(
        unicodedata.bidirectional(each) not in ("LRO", "RLO", "LRE", "RLE", "PDF", "LRI", "RLI") for each in shown
    )
    shown.encode()
    assert printable(shown) == shown


@given(texts)
def test_json_means_the_same(text: str) -> None:
    shown = safe_json(json.dumps([text], ensure_ascii=False))
    assert json.loads(shown) == [text] and printable(shown) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nERROR \x1b[31m", "a\\nERROR \\x1b[31m"),
        ("\x9b2J\u202e", "\\x9b2J\\u202e"),
        ("\udce9t\u00e9", "\\udce9t\u00e9"),
        ("J\u00fcrgen \u65e5\u672c \u2603 \U0001f468\u200d\U0001f469 a\u00a0b", None),
    ],
)
def test_names_in_all_languages_stay_and_escapes_go(text: str, shown: str | None) -> None:
    assert printable(text) == (text if shown is None else shown)


def test_some_may_stay() -> None:
    assert printable("a\tb\n\x1b", keep="\n\t") == "a\tb\n\\x1b"


def _text_of(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


@given(st.binary() | st.text("a\u00e9\u2028\U0001f52c").map(str.encode))
def test_pieces_are_together_what_the_value_is(data: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_module, "PIECE_BYTES", 3)
        text = _text_of(data)
        assert is_text(data) is (text is not None)
        assert text is None or "".join(text_pieces(data)) == text
        assert "".join(base64_pieces(data)).encode() == base64.b64encode(data)
