"""The folders of docs/architecture.md against the imports as they are: downwards only, no circle, no heavy start.

An import that only types need counts like any other.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping

import pytest

from tests.support.package_modules import imported, imports, nodes, trees
from tests.support.places import ROOT

pytestmark = pytest.mark.xdist_group("architecture")  # one worker parses the package


def documented_folders() -> list[str]:
    """The folders from top to bottom: a module imports its own folder and folders of later rows, nothing else."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    rows = page.split("## Folders and floors", 1)[1].split("```", 2)[1].strip().splitlines()
    return ["", *(row.split("/ ", 1)[0] for row in rows)]


FOLDERS = documented_folders()
PUBLIC = ("__init__", "testing.__init__")  # they import on first use
ROOMS_MAX = 27  # folders and files directly below the package, and what stands beside it
FLOORS_MAX = 11
ARROWS_MAX = 120


def folder(module: str) -> str:
    return "/".join(module.split(".")[:-1])


def test_a_folder_imports_only_folders_below_it() -> None:
    wrong = []
    for module, targets in imported().items():
        for target, line in targets:
            here, there = folder(module), folder(target)
            if target not in trees():
                wrong.append(f"{module}:{line} imports {target or 'kafkalite itself'}, which is no module")
            elif here != there and FOLDERS.index(here) > FOLDERS.index(there):
                wrong.append(f"{module}:{line} (in {here}) imports {target} (in {there}), which is above it")
    assert not wrong, "\n".join(wrong)


def test_no_module_of_the_package_is_imported_by_a_string() -> None:
    wrong = [
        f"{module}:{node.lineno}"
        for module, found in nodes().items()
        for node in found
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("import_module", "__import__")
        if "kafkalite" in ast.unparse(node.args[0]) or isinstance(node.args[0], ast.JoinedStr)
    ]
    assert not wrong, f"write an import inside a function: {wrong}"


def test_the_coordinator_knows_values_and_no_messages() -> None:
    coordinator = [module for module in imported() if room(module) == "coordinator"]
    assert coordinator
    wrong = [
        f"{module}:{line}" for module in coordinator for target, line in imported()[module] if "messages" in target
    ]
    assert not wrong, f"requests and responses belong to the handlers: {wrong}"


def test_the_decisions_of_a_replica_know_no_log_and_no_loop() -> None:
    inside = [module for module in imported() if folder(module) == "replication/replica"]
    assert inside
    wrong = [
        f"{module}:{line} imports {target}"
        for module in inside
        for target, line in imported()[module]
        if room(target) not in ("common", "metadata") and folder(target) != "replication/replica"
    ]
    assert not wrong and not any("asyncio" in ast.unparse(trees()[module]) for module in inside), wrong


BESIDE_A_BROKER = (
    "testing", "server", "api", "coordinator", "replication", "cleaner", "log", "zk",
    "metadata", "record", "network", "client", "security", "protocol", "config", "common",
)  # fmt: skip


def test_what_waits_in_a_process_with_a_broker_goes_by_a_clock_that_no_test_freezes() -> None:
    wrong = []
    for module, found in nodes().items():
        if module.split(".")[0] not in BESIDE_A_BROKER:
            continue
        for node in found:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "time":
                names = [node.attr]
            elif isinstance(node, ast.ImportFrom) and node.module == "time":
                names = [alias.name for alias in node.names]
            else:
                continue
            wrong += [
                f"{module}:{node.lineno} uses time.{n}" for n in names if n.startswith(("monotonic", "perf_counter"))
            ]
    assert not wrong, "\n".join([*wrong, "take monotonic_s or monotonic_ms of common/clock.py"])


def test_every_folder_has_a_row_and_says_what_it_holds() -> None:
    folders = {folder(module) for module in trees()}
    assert folders == set(FOLDERS)
    for module, tree in trees().items():
        if module.endswith("__init__"):
            assert ast.get_docstring(tree), f"{module} does not say what the folder holds"
            assert module in PUBLIC or not imported()[module], f"{module} imports: every module below it pays"


@pytest.mark.parametrize("unit", ["files", "folders", "rooms"])
def test_no_circle(unit: str) -> None:
    edges: Mapping[str, set[str]] = defaultdict(set)
    name = {"files": str, "folders": folder, "rooms": room}[unit]
    for module, targets in imported().items():
        edges[name(module)].update(name(target) for target, _ in targets if name(target) != name(module))
    levels(edges)


def test_the_house_stays_small_enough_to_be_seen_at_once() -> None:
    edges: dict[str, set[str]] = defaultdict(set)
    for module, targets in imported().items():
        edges[room(module)].update(room(target) for target, _ in targets if room(target) != room(module))
    for beside in ("bench", "spark_jobs", "pyspark_kafkalite"):
        for path in (ROOT / beside).rglob("*.py"):
            edges[beside].update(room(target) for target, _ in imports(ast.walk(ast.parse(path.read_text()))))
    floors = levels(edges)
    arrows = sum(map(len, edges.values()))
    assert len(floors) <= ROOMS_MAX and max(floors.values()) <= FLOORS_MAX and arrows <= ARROWS_MAX, (
        len(floors),
        max(floors.values()),
        arrows,
    )


def room(module: str) -> str:
    return module.split(".")[0]


def levels(edges: Mapping[str, set[str]]) -> dict[str, int]:
    """How high each stands above all that it imports; fails on a circle."""
    found: dict[str, int] = {}

    def level(name: str, trail: tuple[str, ...]) -> int:
        assert name not in trail, "circle: " + " -> ".join([*trail[trail.index(name) :], name])
        if name not in found:
            found[name] = 1 + max((level(below, (*trail, name)) for below in sorted(edges.get(name, ()))), default=0)
        return found[name]

    for name in sorted(edges):
        level(name, ())
    return found


@pytest.mark.parametrize(
    ("entry", "forbidden"),
    [
        ("kafkalite.server.broker", {"numpy", "kazoo", "pyarrow", "pyspark", "lz4", "zstandard", "snappy"}),
        (  # what no broker needs to be ready
            "kafkalite.server.broker",
            {
                "dataclasses",
                "random",
                "kafkalite.api.handlers.groups",
                "kafkalite.cleaner.log_cleaner",
                "kafkalite.coordinator.group.classic.classic_group",
                "kafkalite.log.partition.segment_replacement",
                "kafkalite.replication.share.share_partition",
                "kafkalite.record.validation.format_conversion",
            },
        ),
        ("kafkalite.record.columns.record_columns", {"asyncio", "uvloop"}),
        ("kafkalite.record.batch", {"asyncio", "uvloop", "numpy"}),
        ("kafkalite", {"uvloop", "numpy", "asyncio", "pyarrow"}),
        ("kafkalite.cli.read_command", {"numpy", "pyarrow"}),
    ],
)
def test_nothing_heavy_is_imported_before_it_is_needed(entry: str, forbidden: set[str]) -> None:
    script = f"import {entry}, sys; print('\\n'.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert not forbidden & set(loaded.split())


def test_every_named_tuple_is_of_the_kind_that_is_declared_fast() -> None:
    wrong = [
        f"{module}:{node.lineno}"
        for module, found in nodes().items()
        for node in found
        if isinstance(node, ast.ImportFrom) and node.module == "typing"
        if any(alias.name == "NamedTuple" for alias in node.names) and module != "common.named_tuple"
    ]
    assert not wrong, f"import NamedTuple of common/named_tuple.py: {wrong}"
