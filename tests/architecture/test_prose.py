"""Docstrings of the package begin with a noun or a present verb (house style: no sentence begins with what or who)."""

from __future__ import annotations

import ast
import re

import pytest

from tests.support.package_modules import trees

pytestmark = pytest.mark.xdist_group("architecture")  # one worker parses the package

_OPENING = re.compile(r"(what|who|whose|whom|whoever|whatever|those|nobody|somebody|whichever)\b", re.IGNORECASE)
_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    wrong = [
        f"{module}:{getattr(node, 'lineno', 1)} begins: {text.splitlines()[0]}"
        for module, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, _Documented) and (text := ast.get_docstring(node)) and _OPENING.match(text)
    ]
    assert not wrong, "\n".join(wrong)
