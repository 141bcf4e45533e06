"""Code for matching, made of the tree of a pattern: `java_pattern` parses, this runs.

Each place of the code is tried once at each place of the text, in the order of the pattern, since what failed there
fails again. So time grows with the two lengths, no pattern takes exponential time, and a text for which one takes more
than `STEPS_MAX` steps is refused.
Source: java.util.regex.Pattern.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from kafkalite.common import regex_tree as tree
from kafkalite.common.named_tuple import NamedTuple

STEPS_MAX = 200_000  # 0.1 s
LINE_ENDS = "\n\r\x85\u2028\u2029"
_CODE_MAX = 5_000
_SHOWN_CHARS = 80

Groups = tuple[int, ...]
"""Start and end of each; -1 where one is no part of the match."""


class Group(NamedTuple):
    number: int
    body: Any


class Alone(NamedTuple):
    """Matched in the first way only: `wanted` is of a lookahead, after which the place stays."""

    body: Any
    wanted: bool | None = None


def can_be_empty(node: Any) -> bool:
    match node:
        case tree.CharSet():
            return False
        case tree.Assertion() | Alone(wanted=bool()):
            return True
        case tree.Concatenation(parts):
            return all(map(can_be_empty, parts))
        case tree.Alternation(branches):
            return any(map(can_be_empty, branches))
        case tree.Repetition(body, least):
            return least == 0 or can_be_empty(body)
    return can_be_empty(node.body)


_CHAR, _AT, _SPLIT, _JUMP, _SAVE, _ALONE, _END = range(7)


class _Instruction(NamedTuple):
    """`first` and `second` are the targets of _SPLIT in the order in which they are tried, or what the others need."""

    kind: int
    first: Any = None
    second: Any = None


Code = list[_Instruction]


def code_of(root: Any) -> Code:
    """Raises ValueError if that is too much."""
    code: Code = []
    _emit(root, code)
    code.append(_Instruction(_END))
    return code


def _emit(node: Any, code: Code) -> None:
    if len(code) > _CODE_MAX:
        raise ValueError("is too large when what it repeats is written out")
    match node:
        case tree.CharSet():
            code.append(_Instruction(_CHAR, _test_of(node)))
        case tree.Assertion(flag):
            code.append(_Instruction(_AT, _PLACES[flag]))
        case tree.Concatenation(parts):
            for part in parts:
                _emit(part, code)
        case tree.Alternation(branches):
            _emit_choice(branches, code)
        case Group(number, body):
            code.append(_Instruction(_SAVE, 2 * number - 2))
            _emit(body, code)
            code.append(_Instruction(_SAVE, 2 * number - 1))
        case Alone(body, wanted):
            code.append(_Instruction(_ALONE, code_of(body), wanted))
        case tree.Repetition():
            _emit_repeat(node, code)


def _emit_choice(branches: Sequence[Any], code: Code) -> None:
    jumps = []
    for branch in branches[:-1]:
        split = len(code)
        code.append(_Instruction(_SPLIT))
        _emit(branch, code)
        jumps.append(len(code))
        code.append(_Instruction(_JUMP))
        code[split] = _Instruction(_SPLIT, split + 1, len(code))
    _emit(branches[-1], code)
    for jump in jumps:
        code[jump] = _Instruction(_JUMP, len(code))


def _emit_repeat(node: tree.Repetition, code: Code) -> None:
    if node.kind == "+":  # each turn is matched in its first way, and their number is the largest
        turn: Any = node.body if isinstance(node.body, tree.CharSet) else Alone(node.body)
        _emit(Alone(tree.Repetition(turn, node.least, node.most, "")), code)
        return

    def split(at: int, over: int) -> None:
        code[at] = _Instruction(_SPLIT, over, at + 1) if node.kind else _Instruction(_SPLIT, at + 1, over)

    for _ in range(node.least):
        _emit(node.body, code)
    if node.most is None:
        start = len(code)
        code.append(_Instruction(_SPLIT))
        _emit(node.body, code)
        code.append(_Instruction(_JUMP, start))
        split(start, len(code))
        return
    splits = []
    for _ in range(node.most - node.least):
        splits.append(len(code))
        code.append(_Instruction(_SPLIT))
        _emit(node.body, code)
    for at in splits:
        split(at, len(code))


def run(
    code: Code, text: str, place: int, groups: Groups, failed: set[int], steps: list[int], *, is_whole: bool = False
) -> tuple[int, Groups] | None:
    """Where the match that begins at `place` ends, and its groups. `failed` has the splits that have been tried, at
    their places, `steps` the number of steps. Raises ValueError if there are too many."""
    at = 0
    later: list[tuple[int, int, Groups]] = []
    size = len(text)
    while True:
        steps[0] += 1
        kind, first, second = code[at]
        goes_on = True
        if kind == _CHAR:
            goes_on = place < size and first(text[place])
            place += 1
            at += 1
        elif kind == _SPLIT:
            tried = at * (size + 1) + place
            goes_on = tried not in failed
            if goes_on:
                failed.add(tried)
                later.append((second, place, groups))
            at = first
        elif kind == _JUMP:
            at = first
        elif kind == _SAVE:
            groups = (*groups[:first], place, *groups[first + 1 :])
            at += 1
        elif kind == _AT:
            goes_on = first(text, place)
            at += 1
        elif kind == _ALONE:
            found = run(first, text, place, groups, set(), steps)
            goes_on = (found is None) is (second is False)
            if second is None and found is not None:
                place = found[0]
            at += 1
        elif not is_whole or place == size:
            return place, groups
        else:
            goes_on = False
        if not goes_on:
            if not later:
                return None
            at, place, groups = later.pop()
        if steps[0] > STEPS_MAX:
            raise ValueError(f"a rule takes too long for the name {text[:_SHOWN_CHARS]!r}")


@lru_cache(1024)
def _test_of(chars: tree.CharSet) -> Callable[[str], bool]:
    ascii_part = frozenset(filter(chars.has, map(chr, range(128))))
    return lambda char: char in ascii_part if char < "\x80" else chars.has(char)


def _is_last_line_end(text: str, place: int) -> bool:
    """The end, or the end of a line that is the last: never between \\r and \\n."""
    rest = text[place : place + 3]
    if rest == "\n":
        return text[place - 1 : place] != "\r"
    return rest in ("", "\r\n") or (len(rest) == 1 and rest in LINE_ENDS)


_PLACES: dict[int, Callable[[str, int], bool]] = {
    tree.BEGIN_TEXT: lambda text, place: place == 0,
    tree.END_TEXT: lambda text, place: place == len(text),
    tree.END_LAST_LINE: _is_last_line_end,
}
