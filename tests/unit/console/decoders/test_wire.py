"""The pipes between the console and a decoder."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.common.errors import Malformed
from kafkalite.console.decoders.wire import (
    DONE,
    FAULT,
    REQUEST,
    TEXT_BYTES_MAX,
    Frames,
    Schema,
    decode_request,
    encode_frame,
    encode_request,
)


@given(st.builds(Schema, st.text(), st.text(), st.text()), st.lists(st.binary()))
def test_requests_come_out_as_they_went_in(schema: Schema, records: list[bytes]) -> None:
    data = encode_request(schema, records)
    head_bytes, body_bytes = REQUEST.unpack_from(data)
    head, body = data[REQUEST.size : REQUEST.size + head_bytes], data[REQUEST.size + head_bytes :]
    assert len(body) == body_bytes and decode_request(head, body) == (schema, records)


@given(st.lists(st.tuples(st.sampled_from([DONE, FAULT]), st.text())), st.integers(1, 50))
def test_frames_may_arrive_in_pieces(sent: list[tuple[int, str]], size: int) -> None:
    data = b"".join(encode_frame(*each) for each in sent)
    frames = Frames()
    found = [each for at in range(0, len(data), size) for each in frames.feed(data[at : at + size])]
    assert found == sent


def test_halves_of_characters_are_replaced() -> None:
    assert Frames().feed(encode_frame(DONE, '"\ud800"')) == [(DONE, '"?"')]


def test_what_no_decoder_says_is_malformed_before_it_takes_memory() -> None:
    for data in (b"\x09\0\0\0\0", b"\0" + (TEXT_BYTES_MAX + 1).to_bytes(4, "big")):
        with pytest.raises(Malformed):
            Frames().feed(data)
    ((status, text),) = Frames().feed(encode_frame(DONE, "x" * (TEXT_BYTES_MAX + 1)))
    assert status == FAULT and "more than 32 MiB" in text
