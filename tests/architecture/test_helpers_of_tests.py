"""Helpers of several test files stand in tests/support: no file of tests imports from a `test_*.py`."""

from __future__ import annotations

import ast

from tests.support.places import ROOT


def test_no_test_file_is_imported() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno} imports {node.module}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if "tests." in (text := path.read_text()) and ".test_" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tests.")
        if node.module.rpartition(".")[2].startswith("test_")
    ]
    assert not wrong, "move what they share to tests/support:\n" + "\n".join(wrong)
