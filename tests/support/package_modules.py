"""The modules of the package as syntax trees, for the tests of its structure; parsed on first use."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache

from tests.support.places import ROOT

PACKAGE = ROOT / "kafkalite"


@cache
def trees() -> dict[str, ast.Module]:
    """Every module, by its dotted name below kafkalite."""
    return {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts): ast.parse(path.read_text())
        for path in sorted(PACKAGE.rglob("*.py"))
    }


@cache
def nodes() -> dict[str, list[ast.AST]]:
    """All nodes of every module, in one list: to walk the trees anew for each test takes 1 s."""
    return {module: list(ast.walk(tree)) for module, tree in trees().items()}


@cache
def imported() -> dict[str, list[tuple[str, int]]]:
    """The modules of the package that each module imports, and the lines."""
    return {module: list(imports(found)) for module, found in nodes().items()}


def imports(file: Iterable[ast.AST]) -> Iterator[tuple[str, int]]:
    """Modules of the package that a file imports, and the lines. An import that only types need counts, too."""
    for node in file:
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            if node.module.split(".")[0] == "kafkalite":
                inside = node.module.removeprefix("kafkalite").removeprefix(".")
                for alias in node.names:
                    whole = f"{inside}.{alias.name}".removeprefix(".")
                    yield whole if whole in trees() else inside, node.lineno
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "kafkalite":
                    yield alias.name.removeprefix("kafkalite").removeprefix("."), node.lineno
