"""Every module that takes bytes apart stands in the table of decoders, so that hostile bytes reach it in a test."""

from __future__ import annotations

import ast
from collections.abc import Iterable

import pytest

from tests.support.decoder_table import DECODERS, NO_DECODERS
from tests.support.package_modules import nodes

pytestmark = pytest.mark.xdist_group("architecture")  # one worker parses the package
_READS = frozenset({
    "unpack", "unpack_from", "iter_unpack", "from_bytes", "frombuffer", "b64decode", "urlsafe_b64decode",
    "schemaless_reader", "FromString", "ParseFromString",
})  # fmt: skip
_JSON_READER = "common/text.py"
_READ_JSON = {"cli/console_command.py"}
"""A module that calls `json.loads` itself: for its parent's line."""


def _names(file: Iterable[ast.AST]) -> set[str]:
    """The names that a module calls or refers to, with the module in front for json."""
    found = set()
    for node in file:
        if isinstance(node, ast.Attribute):
            is_json = isinstance(node.value, ast.Name) and node.value.id == "json"
            found.add(f"json.{node.attr}" if is_json else node.attr)
        elif isinstance(node, ast.ImportFrom):
            found.update(alias.name for alias in node.names)
    return found


@pytest.fixture(scope="module")
def modules() -> dict[str, set[str]]:
    """The names in each module, by its path below the package."""
    return {f"{module.replace('.', '/')}.py": _names(found) for module, found in nodes().items()}


def test_every_module_that_takes_bytes_apart_is_in_the_table(modules: dict[str, set[str]]) -> None:
    known = {module for decoder in DECODERS for module in decoder.modules} | NO_DECODERS.keys()
    assert known <= modules.keys()
    assert [module for module, names in modules.items() if names & _READS and module not in known] == []


def test_no_module_is_in_the_table_and_out_of_it() -> None:
    assert not NO_DECODERS.keys() & {module for decoder in DECODERS for module in decoder.modules}


def test_json_is_read_in_one_place_which_knows_that_it_may_be_deep(modules: dict[str, set[str]]) -> None:
    reading = {module for module, names in modules.items() if "json.loads" in names}
    assert reading <= {_JSON_READER, *_READ_JSON}
