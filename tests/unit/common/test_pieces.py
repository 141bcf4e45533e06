"""Large values in pieces: what they make together."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.common import pieces
from kafkalite.common.pieces import base64_pieces, is_text, text_pieces


def _text_of(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


@given(st.binary() | st.text("a\u00e9\u2028\U0001f52c").map(str.encode))
def test_pieces_are_together_what_the_value_is(data: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECE_BYTES", 3)
        text = _text_of(data)
        assert is_text(data) is (text is not None)
        assert text is None or "".join(text_pieces(data)) == text
        assert "".join(base64_pieces(data)).encode() == base64.b64encode(data)
