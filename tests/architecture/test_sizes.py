"""No class of the package is wider, and no function or file longer, than a reader keeps in mind."""

from __future__ import annotations

import ast

import pytest

from tests.support.package_modules import nodes
from tests.support.places import ROOT

pytestmark = pytest.mark.xdist_group("architecture")  # one worker parses the package

PUBLIC_MAX = 25  # methods and properties of one class, as its users see them
LINES_MAX = 59  # of one function
FILE_LINES_MAX = 450

# wider than the limit for now: no class is added here, and each goes when it fits
WIDER: dict[str, int] = {}
LONGER = {
    "record.validation.record_validation:_check_each",  # one pass over every byte of a record: a call costs a tenth
}


def test_no_class_has_more_public_methods_than_a_user_can_choose_from() -> None:
    wide = {}
    for found in nodes().values():
        for node in found:
            if isinstance(node, ast.ClassDef):
                functions = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
                names = {function.name for function in functions if not function.name.startswith("_")}
                if len(names) > PUBLIC_MAX:
                    wide[node.name] = len(names)
    assert wide.keys() <= WIDER.keys() and all(WIDER[name] >= count for name, count in wide.items()), wide
    assert WIDER.keys() <= wide.keys(), "a class fits now: remove it from WIDER"


def test_no_function_is_longer_than_a_screen() -> None:
    long = {
        f"{module}:{node.name}"
        for module, found in nodes().items()
        for node in found
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= LINES_MAX
    }
    assert long <= LONGER, f"split them: {long - LONGER}"
    assert long >= LONGER, "a function fits now: remove it from LONGER"


def test_no_file_is_longer_than_one_noun_needs() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in sorted((ROOT / "kafkalite").rglob("*.py"))
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > FILE_LINES_MAX
    }
    assert not long, "move a whole noun out of them"
