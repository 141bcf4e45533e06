"""The pieces of the comparison of mirrors."""

from __future__ import annotations

from bench.mirror import Figures, median, mirror_maker_properties, table


def test_properties_of_mirror_maker() -> None:
    lines = mirror_maker_properties("a:1", "b:2", "t").splitlines()
    assert {"clusters = west, east", "west->east.topics = t", "replication.factor = 1"} <= set(lines)
    assert "offset.storage.replication.factor = 1" in lines


def test_the_table_has_medians() -> None:
    turns = [Figures(value, value, value, value, value) for value in (1.0, 3.0, 20.0)]
    assert median(turns) == Figures(3, 3, 3, 3, 3)
    assert table({(100, "kafkalite"): turns}).splitlines()[-1] == "| 100 B | kafkalite | 3 | 3.00 | 3 | 3.0 | 3.0 |"
