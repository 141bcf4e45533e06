"""Regular expressions of others, matched in time that grows with the text alone, in little memory, beside other work.

An expression becomes a nondeterministic automaton of at most `NODES_MAX` nodes. Sets of its nodes are the states of a
deterministic one, which is built while texts are read: a known state and a known character are one look-up. Known
states are forgotten when they hold more than `KNOWN_MAX` nodes. So a character costs at most a walk over the automaton,
whatever the expression, and `select` gives way to the event loop every few thousand nodes.
Source: RE2 (Russ Cox, "Regular Expression Matching in the Wild"); Kafka matches the patterns of clients by RE2J.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Final

from kafkalite.common import re2_syntax
from kafkalite.common import regex_tree as tree

CHARS_MAX: Final = 32_767
NODES_MAX: Final = 20_000
KNOWN_MAX: Final = 200_000  # 10 MB
SLICE_NODES: Final = 20_000  # 3 ms

_NO_CHAR, _NEWLINE, _WORD_CHAR, _OTHER = range(4)
"""Kinds of characters, as far as assertions tell them apart; no character is before the first and after the last."""

_MATCH: Final = 0


class LinearRegex:
    """One expression. It is not for several threads."""

    def __init__(self, pattern: str) -> None:
        """Raises ValueError: RE2J's description of what is wrong, or that the expression is too large."""
        if len(pattern) > CHARS_MAX:
            raise ValueError(f"expression is longer than {CHARS_MAX} characters")
        self.pattern = pattern
        self._automaton = _Automaton(re2_syntax.parse(pattern))

    def fullmatch(self, text: str) -> bool:
        """Whether the whole of `text` matches. Takes at most 3 ms for each character."""
        walk = self._automaton.walk(text)
        while True:
            try:
                next(walk)
            except StopIteration as end:
                matches: bool = end.value
                return matches

    async def select(self, texts: Iterable[str]) -> list[str]:
        """The `texts` that match, in their order. Other tasks of the loop run meanwhile."""
        import asyncio  # programs without a loop read this module too

        selected = []
        done = 0
        for text in texts:
            walk = self._automaton.walk(text)
            done += len(text)
            while True:
                try:
                    next(walk)
                except StopIteration as end:
                    if end.value:
                        selected.append(text)
                    break
                done = 0
                await asyncio.sleep(0)
            if done > SLICE_NODES:
                done = 0
                await asyncio.sleep(0)
        return selected


class _State:
    """A set of nodes between two characters of a text, and what follows on each character, as far as it is known."""

    __slots__ = ("closures", "following", "matches_at_end", "nodes", "previous")

    def __init__(self, nodes: tuple[int, ...], previous: int) -> None:
        self.nodes = nodes  # ascending
        self.previous = previous  # kind of the character before
        self.following: dict[str, _State] = {}
        self.matches_at_end: bool | None = None
        self.closures: dict[int, _Closure] = {}  # by the assertions that hold


class _Closure:
    """Nodes that are reached without a character."""

    __slots__ = ("has_match", "targets")

    def __init__(self) -> None:
        self.has_match = False
        self.targets: dict[int, list[int]] = {}  # nodes after a character, by the number of its set


class _Automaton:
    """Nodes, by number: `_sets` has the number of the character set that leads on to `_first`, or None where the node
    is left without a character: to `_first` and, if there is one, to `_second`, if the assertion holds."""

    def __init__(self, expression: tree.Tree) -> None:
        self._sets: list[int | None] = [None]  # node 0 is the match
        self._first: list[int] = [_MATCH]
        self._second: list[int | None] = [None]
        self._assertions: list[int] = [0]  # 0: none
        self._numbers: dict[tree.CharSet, int] = {}
        self._start = self._build(expression, _MATCH)
        self._char_sets = list(self._numbers)
        self._has_assertions = any(self._assertions)
        self._known: dict[tuple[tuple[int, ...], int], _State] = {}
        self._known_nodes = 0

    # Building, from the end to the start

    def _add(self, char_set: int | None, first: int, second: int | None = None, assertion: int = 0) -> int:
        if len(self._sets) > NODES_MAX:
            raise ValueError(f"expression has more than {NODES_MAX} parts when its repetitions are written out")
        self._sets.append(char_set)
        self._first.append(first)
        self._second.append(second)
        self._assertions.append(assertion)
        return len(self._sets) - 1

    def _build(self, expression: tree.Tree, following: int) -> int:
        """The number of the node where `expression` begins, if it continues at `following`."""
        match expression:
            case tree.CharSet():
                return self._add(self._numbers.setdefault(expression, len(self._numbers)), following)
            case tree.Assertion(flag):
                return self._add(None, following, assertion=flag)
            case tree.Concatenation(parts):
                for part in reversed(parts):
                    following = self._build(part, following)
                return following
            case tree.Alternation(branches):
                start = self._build(branches[-1], following)
                for branch in reversed(branches[:-1]):
                    start = self._add(None, self._build(branch, following), start)
                return start
            case tree.Repetition():
                return self._build_repetition(expression, following)

    def _build_repetition(self, expression: tree.Repetition, following: int) -> int:
        start = following
        if expression.most is None:
            start = self._add(None, following, following)
            self._first[start] = self._build(expression.body, start)
        for _ in range((expression.most or 0) - expression.least):
            start = self._add(None, self._build(expression.body, start), following)
        for _ in range(expression.least):
            before = start
            start = self._build(expression.body, before)
            if start == before:  # the body is empty
                break
        return start

    # Matching

    def walk(self, text: str) -> Generator[None, None, bool]:
        """Returns whether `text` matches, after a yield for every slice of work."""
        state = self._state((self._start,), _NO_CHAR if self._has_assertions else _OTHER)
        done = 0
        for char in text:
            known = state.following.get(char)
            if known is None:
                known, cost = self._follow(state, char)
                done += cost
                if done > SLICE_NODES:
                    done = 0
                    yield
            state = known
            if not state.nodes:
                return False
        if state.matches_at_end is None:
            closure, _ = self._closure(state, _NO_CHAR)
            state.matches_at_end = closure.has_match
        return state.matches_at_end

    def _state(self, nodes: tuple[int, ...], previous: int) -> _State:
        key = nodes, previous
        state = self._known.get(key)
        if state is None:
            if self._known_nodes > KNOWN_MAX:
                self._forget()
            state = self._known[key] = _State(nodes, previous)
            self._known_nodes += len(nodes) + 10
        return state

    def _forget(self) -> None:
        for state in self._known.values():  # they refer to each other
            state.following.clear()
        self._known.clear()
        self._known_nodes = 0

    def _follow(self, state: _State, char: str) -> tuple[_State, int]:
        """The state after `char`, and how many nodes it took to find it."""
        kind = _kind(char) if self._has_assertions else _OTHER
        closure, cost = self._closure(state, kind)
        nodes: set[int] = set()
        for number, targets in closure.targets.items():
            if self._char_sets[number].has(char):
                nodes.update(targets)
        found = self._state(tuple(sorted(nodes)), kind)
        state.following[char] = found
        self._known_nodes += 2
        return found, cost + len(nodes) + len(closure.targets) + 10

    def _closure(self, state: _State, kind: int) -> tuple[_Closure, int]:
        """The nodes reached before a character of this kind, and how many it took to find them."""
        holding = _assertions_between(state.previous, kind) if self._has_assertions else 0
        closure = state.closures.get(holding)
        if closure is not None:
            return closure, 0
        closure = state.closures[holding] = _Closure()
        seen = set(state.nodes)
        waiting = list(state.nodes)
        while waiting:
            node = waiting.pop()
            char_set = self._sets[node]
            if char_set is not None:
                closure.targets.setdefault(char_set, []).append(self._first[node])
            elif node == _MATCH:
                closure.has_match = True
            elif not self._assertions[node] & ~holding:
                for target in (self._first[node], self._second[node]):
                    if target is not None and target not in seen:
                        seen.add(target)
                        waiting.append(target)
        self._known_nodes += len(seen)
        return closure, len(seen)


def _kind(char: str) -> int:
    return _NEWLINE if char == "\n" else _WORD_CHAR if char in tree.WORD_CHARS else _OTHER


def _assertions_between(before: int, after: int) -> int:
    """The assertions that hold between two characters of these kinds."""
    holding = tree.WORD_BOUNDARY if (before == _WORD_CHAR) != (after == _WORD_CHAR) else tree.NO_WORD_BOUNDARY
    if before == _NO_CHAR:
        holding |= tree.BEGIN_TEXT | tree.BEGIN_LINE
    elif before == _NEWLINE:
        holding |= tree.BEGIN_LINE
    if after == _NO_CHAR:
        holding |= tree.END_TEXT | tree.END_LINE
    elif after == _NEWLINE:
        holding |= tree.END_LINE
    return holding
