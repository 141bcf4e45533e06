"""The floors of docs/architecture.md against the imports as they are: no upward edge, no circle, no heavy start."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "kafkalite"

# The first matching prefix decides. Neighbours on one floor do not import each other unless they share a folder.
FLOORS: list[tuple[str, int]] = [
    ("errors", 0),
    ("names", 0),
    ("clock", 0),
    ("checksum", 0),
    ("region", 0),
    ("settings", 0),
    ("listeners", 0),
    ("properties", 0),
    ("known_properties", 0),
    ("config", 0),
    ("metrics", 0),
    ("protocol", 1),
    ("log.batch", 1),
    ("log.record", 1),
    ("log.message_set", 1),
    ("log.message_columns", 1),
    ("log.columns", 1),
    ("log.batch_columns", 1),
    ("log.header_columns", 1),
    ("log.record_lanes", 1),
    ("log.compression", 1),
    ("network", 2),
    ("log", 2),
    ("zk", 2),
    ("blocking_client", 2),
    ("topic_rules", 1),
    ("loop_thread", 2),
    ("cluster_client", 3),
    ("running_config", 3),
    ("partition", 3),
    ("cleaner", 3),
    ("adoption", 4),
    ("compaction", 4),
    ("hosted_topics", 4),
    ("coordinator", 4),
    ("replication", 4),
    ("topics", 5),
    ("api", 6),
    ("following", 6),
    ("group_topic", 6),
    ("broker_metrics", 6),
    ("membership", 7),
    ("broker_rooms", 8),
    ("broker", 9),
    ("cli", 10),
    ("inspection", 6),
    ("topic_description", 7),
    ("cleaner_command", 7),
    ("cluster", 7),
    ("spark", 10),
    ("__main__", 11),
    ("__init__", 11),
]


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts[-1] == "__init__" and len(parts) > 1:
            parts = parts[:-1]
        yield ".".join(parts), path


def floor(module: str) -> int:
    for prefix, number in FLOORS:
        if module == prefix or module.startswith(prefix + "."):
            return number
    raise AssertionError(f"{module} stands on no floor: give it one here and in docs/architecture.md")


def imports(path: Path) -> Iterator[tuple[str, int, bool]]:
    """(module below kafkalite, line, whether only types need it)."""
    tree = ast.parse(path.read_text())
    for_types: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for_types.update(id(inner) for statement in node.body for inner in ast.walk(statement))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            if node.module == "kafkalite":
                for alias in node.names:
                    yield alias.name, node.lineno, id(node) in for_types
            elif node.module.startswith("kafkalite."):
                target = node.module.removeprefix("kafkalite.")
                named = [f"{target}.{alias.name}" for alias in node.names]
                known = {name for name, _ in MODULES}
                submodules = [name for name in named if name in known]
                for name in submodules or [target]:
                    yield name, node.lineno, id(node) in for_types
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("kafkalite"):
                    yield alias.name.removeprefix("kafkalite").removeprefix("."), node.lineno, id(node) in for_types


MODULES = list(modules())


def test_no_module_imports_upwards_or_a_neighbour_in_another_folder() -> None:
    wrong = []
    for module, path in MODULES:
        for target, line, _ in imports(path):
            if not target:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports kafkalite itself")
                continue
            same_folder = "." in module and module.split(".")[0] == target.split(".")[0]
            here, there = floor(module), floor(target)
            if there > here or (there == here and not same_folder and here > 0):
                wrong.append(f"{path.relative_to(ROOT)}:{line} (floor {here}) imports {target} (floor {there})")
    assert not wrong, "\n".join(wrong)


def test_no_circle() -> None:
    edges = {module: {t for t, _, types in imports(path) if not types and t} for module, path in MODULES}
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, "circle: " + " -> ".join([*trail[trail.index(module) :], module])
        if module in done:
            return
        for target in edges.get(module, ()):
            visit(target, (*trail, module))
        done.add(module)

    for module in edges:
        visit(module, ())


@pytest.mark.parametrize(
    ("entry", "forbidden"),
    [
        ("kafkalite.server.broker", {"numpy", "kazoo", "pyarrow", "pyspark", "lz4", "zstandard", "snappy"}),
        ("kafkalite.record.columns.record_columns", {"asyncio", "uvloop"}),
        ("kafkalite.record.batch", {"asyncio", "uvloop", "numpy"}),
        ("kafkalite", {"uvloop", "numpy", "asyncio"}),
    ],
)
def test_nothing_heavy_is_imported_before_it_is_needed(entry: str, forbidden: set[str]) -> None:
    script = f"import {entry}, sys; print('\\n'.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert not forbidden & set(loaded.split())
