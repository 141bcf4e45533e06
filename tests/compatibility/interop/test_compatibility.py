"""The page of docs/compatibility.md keeps what was shown, takes what is new, and never forgets a result for a skip."""

from __future__ import annotations

from pathlib import Path

from tests.compatibility.interop.compatibility import NOT_RUN, Row, merge, parse, render, update


def row(client: str, version: str, result: str, ecosystem: str = "Go", what: str = "everything") -> Row:
    return Row(ecosystem, client, version, what, result)


def test_a_run_replaces_its_own_rows_and_keeps_the_others() -> None:
    known = [row("franz-go", "1.18.0", "FAILED"), row("sarama", "1.45.0", "passed")]
    told = [row("franz-go", "1.18.0", "passed"), row("franz-go", "1.9.0", "passed")]
    assert merge(known, told) == [told[1], told[0], known[1]], "sorted as people count versions"


def test_a_skip_wipes_out_no_result_and_a_result_wipes_out_the_skip() -> None:
    passed, skipped = row("sarama", "1.45.0", "passed"), row("sarama", "", f"{NOT_RUN}no go on this machine")
    assert merge([passed], [skipped]) == [passed]
    assert merge([], [skipped]) == [skipped]
    assert merge([skipped], [passed]) == [passed]


def test_the_page_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    rows = [row("kcat", "1.7.1", "passed", "C", "a | b\n and c"), row("sarama", "1.45.0", "FAILED")]
    page = tmp_path / "docs" / "compatibility.md"
    update(page, rows)
    assert parse(page.read_text()) == [row("kcat", "1.7.1", "passed", "C", "a | b and c"), rows[1]]
    update(page, [])
    assert page.read_text() == render(parse(page.read_text()))
