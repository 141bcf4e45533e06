"""The bench of TLS: the table of its ratios, and its key store."""

from __future__ import annotations

import ssl
from pathlib import Path

from bench.tls import WORKS, lines, make_key_store
from bench.versus import KAFKA, KAFKALITE


def test_each_work_has_a_row_with_its_ratio() -> None:
    found = {name: {KAFKALITE: [100.0, 300.0, 200.0], KAFKA: [50.0, 100.0, 400.0]} for name in WORKS}
    assert [line.split(" | ")[1:] for line in list(lines(found))[2:]] == [["200", "100", "2.00 |"]] * len(WORKS)


def test_the_key_store_serves(tmp_path: Path) -> None:
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(make_key_store(tmp_path))
