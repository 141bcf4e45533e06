"""A decoder answers or refuses any bytes after work in proportion to them."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings, target
from hypothesis import strategies as st

from tests.support.decoder_table import DECODERS, Decoder
from tests.support.hostile_bytes import check_work, hostile_bytes

_BY_NAME = pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name.replace(" ", "-"))


@_BY_NAME
def test_valid_bytes_are_read(decoder: Decoder) -> None:
    for seed in decoder.seeds:
        check_work(decoder.decode, seed, decoder.refusals)


@_BY_NAME
def test_what_was_too_much_once_is_refused_soon(decoder: Decoder) -> None:
    for attack in decoder.attacks:
        check_work(decoder.decode, attack, decoder.refusals)


@_BY_NAME
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_hostile_bytes_cost_no_more_than_their_size_is_worth(decoder: Decoder, data: st.DataObject) -> None:
    hostile = data.draw(hostile_bytes((*decoder.seeds, *(each[:4_000] for each in decoder.attacks))))
    lines = check_work(decoder.decode, hostile, decoder.refusals)
    target(lines / (len(hostile) + 200))
