"""Docstrings of the package use words with an exact meaning (docs/glossary.md)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.support.package_modules import nodes
from tests.support.places import ROOT

pytestmark = pytest.mark.xdist_group("architecture")  # one worker parses the package

_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

# Words without an exact meaning, each with words that have one.
PRIVATE = {
    r"told|tells?|telling": "notify, report, answer, return, distinguish",
    r"settle[sd]?|settling": "resolve, complete, finish",
    r"go(es)? on|going on|went on": "resume, continue, retry",
    r"look(s|ed|ing)? (at|again|whether)": "poll, check, read",
    r"under way": "in progress, in flight, pending",
    r"at hand": "present, available",
    r"whoever|whichever|somebody|anybody|nobody|everybody": "the client, the caller, no client, every principal",
    r"hears? of|heard of|hearing of": "receive, be notified of",
    r"for ever|anew": "without limit, again",
}
_PRIVATE = {re.compile(rf"\b({words})\b", re.IGNORECASE): better for words, better in PRIVATE.items()}

# Words that messages for people have no need of: the wording table of users has shorter ones.
_IN_MESSAGES = re.compile(
    r"\b(told|nobody|somebody|everybody|whoever|makes? no sense|go(es)? on|for ever|anew|there (is|are) none of"
    r"|which there is not|there is no (topic|group|user|broker|partition) [{'])",
)

# Top-level folders whose docstrings still have such words. Take a folder out when it is clean; add none.
NOT_YET_CLEAN = frozenset(("coordinator",))


def _docstrings() -> Iterator[tuple[str, int, str]]:
    """Module, line and text of each docstring of the package."""
    for module, found in nodes().items():
        for node in found:
            if isinstance(node, _Documented) and (text := ast.get_docstring(node)):
                yield module, getattr(node, "lineno", 1), text


@cache
def _findings() -> dict[str, list[str]]:
    """Private words by top-level folder, each with its place."""
    found: dict[str, list[str]] = {}
    for module, line, text in _docstrings():
        for pattern, better in _PRIVATE.items():
            for match in pattern.finditer(" ".join(text.split())):
                place = f"{module}:{line} says {match[0]!r}; write {better}"
                found.setdefault(module.split(".")[0], []).append(place)
    return found


def _messages() -> Iterator[tuple[str, int, str]]:
    """Module, line and text of each string with several words that is no docstring; `{` stands for a value in it."""
    for module, found in nodes().items():
        docstrings = {id(each.value) for each in found if isinstance(each, ast.Expr)}
        parts: set[int] = set()
        for node in found:
            if isinstance(node, ast.JoinedStr):
                parts.update(map(id, node.values))
                yield (
                    module,
                    node.lineno,
                    "".join(
                        getattr(each, "value", "{") if isinstance(each, ast.Constant) else "{" for each in node.values
                    ),
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings | parts:
                yield module, node.lineno, node.value


def test_messages_use_plain_words() -> None:
    wrong = [
        f"{module}:{line} says {found[0]!r}"
        for module, line, text in _messages()
        if " " in text and (found := _IN_MESSAGES.search(text)) is not None
    ]
    assert not wrong, "\n".join(wrong)


def test_docstrings_use_words_with_an_exact_meaning() -> None:
    wrong = [each for folder, places in _findings().items() if folder not in NOT_YET_CLEAN for each in places]
    assert not wrong, "\n".join(wrong)


def test_the_list_of_folders_that_are_not_clean_shrinks() -> None:
    clean = NOT_YET_CLEAN - _findings().keys()
    assert not clean, f"clean by now, take out of NOT_YET_CLEAN: {sorted(clean)}"


def test_the_glossary_names_paths_that_exist() -> None:
    named = re.findall(r"`([a-z_]+/[a-z_/]*(?:\.py)?)`", (ROOT / "docs" / "glossary.md").read_text())
    missing = [path for path in named if not (ROOT / "kafkalite" / path).exists() and not (ROOT / path).exists()]
    assert named and not missing, missing
