"""Docstrings begin with a noun or a present verb (house style: no sentence begins with what or who)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

import pytest

from tests.support.package_modules import nodes
from tests.support.places import ROOT

pytestmark = pytest.mark.xdist_group("architecture")  # one worker parses the package

_WORDS = r"(what|who|whose|whom|whoever|whatever|those|nobody|somebody|whichever)\b"
_OPENING = re.compile(_WORDS, re.IGNORECASE)
_QUOTED_OPENING = re.compile(f'"""{_WORDS}', re.IGNORECASE)
_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    wrong = [fault for module, found in nodes().items() for fault in _openings(module, found)]
    assert not wrong, "\n".join(wrong)


def test_so_do_those_of_tests() -> None:
    wrong = [
        fault
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if _QUOTED_OPENING.search(text := path.read_text())  # to parse all of them takes 3 s
        for fault in _openings(str(path.relative_to(ROOT)), ast.walk(ast.parse(text)))
    ]
    assert not wrong, "\n".join(wrong)


def _openings(name: str, file: Iterable[ast.AST]) -> Iterator[str]:
    for node in file:
        if isinstance(node, _Documented) and (text := ast.get_docstring(node)) and _OPENING.match(text):
            yield f"{name}:{getattr(node, 'lineno', 1)} begins: {text.splitlines()[0]}"
