r"""The syntax of RE2's regular expressions as RE2J reads it, parsed into a tree.

There is nothing in it that needs more than a finite automaton: no look-around, no reference back, no possessive
repetition. What RE2J refuses is refused here in RE2J's words. Two things are refused beyond that: nesting deeper than
`DEPTH_MAX`, where Java's stack overflows soon after, and scripts such as \p{Greek}, which Python has no table of.
Captures, laziness and their flag mean nothing to a full match and are dropped.
Source: RE2's syntax page; com.google.re2j.Parser (1.8, with the flags of Pattern.compile).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kafkalite.common import regex_tree as tree
from kafkalite.common.named_tuple import NamedTuple

DEPTH_MAX: Final = 200
REPEAT_MAX: Final = 1000
_INTEGER_DIGITS_MAX: Final = 8

_PERL_CLASSES: Final[dict[str, tree.Ranges]] = {
    "d": tree.DIGIT,
    "s": ((0x09, 0x0A), (0x0C, 0x0D), (0x20, 0x20)),
    "w": tree.WORD,
}
_ASSIGNED_C: Final = ("Cc", "Cf", "Co", "Cs")  # RE2's C has no code points without a character
_CONTROLS: Final = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_ANY_BUT_NEWLINE: Final = tree.CharSet((tree.CharPart(((0x0A, 0x0A),)),), is_negated=True)
_FLAGS: Final = {"i": ("is_folded",), "s": ("is_dot_all",), "m": ("is_multi_line",), "U": ()}
_OCTAL: Final = frozenset("01234567")
_HEX: Final = frozenset("0123456789abcdefABCDEF")

BAD_RANGE: Final = "invalid character class range"
BAD_ESCAPE: Final = "invalid escape sequence"
BAD_NAME: Final = "invalid named capture"
BAD_PERL: Final = "invalid or unsupported Perl syntax"
BAD_REPEAT: Final = "invalid repeat count"
NESTED_REPEAT: Final = "invalid nested repetition operator"
NO_BRACKET: Final = "missing closing ]"
NO_PAREN: Final = "missing closing )"
NO_ARGUMENT: Final = "missing argument to repetition operator"
STRAY_PAREN: Final = "regexp/syntax: internal error"
TRAILING_BACKSLASH: Final = "trailing backslash at end of expression"
DUPLICATE_NAME: Final = "duplicate capture group name"
TOO_DEEP: Final = "expression nests too deeply"


def parse(pattern: str) -> tree.Tree:
    """Raises ValueError with RE2J's description of what is wrong."""
    return _Parser(pattern).parse()


class _Group(NamedTuple):
    """An open parenthesis, or the whole pattern."""

    branches: list[tree.Tree]
    flags: tree.Flags  # before it


class _Parser:
    """One pass over the pattern. `_items` is the branch that is being read."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._items: list[tree.Tree] = []
        self._outer: list[list[tree.Tree]] = []  # items before each open group
        self._flags = tree.Flags()
        self._groups = [_Group([], self._flags)]
        self._names: set[str] = set()

    def parse(self) -> tree.Tree:
        was_repetition = False
        while self._at < len(self._text):
            char = self._text[self._at]
            bounds = self._repetition(char)
            if bounds is not None:
                self._repeat(bounds, is_nested=was_repetition)
            else:
                self._read(char)
            was_repetition = bounds is not None or char == "{"  # so does RE2J take a brace that stands for itself
        if len(self._groups) > 1:
            raise ValueError(NO_PAREN)
        self._end_branch()
        return _alternation(self._groups[0].branches)

    def _read(self, char: str) -> None:
        """Anything but a repetition."""
        rest = self._text[self._at : self._at + 2]
        if char == "\\" and len(rest) > 1:
            self._read_backslash(rest[1])
        elif rest == "(?":
            self._read_flags()
        elif char == "[":
            self._items.append(self._char_class())
        else:
            self._at += 1
            self._read_single(char)

    def _read_single(self, char: str) -> None:
        match char:
            case "(":
                self._open()
            case ")":
                self._close()
            case "|":
                self._end_branch()
            case "^":
                self._items.append(tree.Assertion(tree.BEGIN_LINE if self._flags.is_multi_line else tree.BEGIN_TEXT))
            case "$":
                self._items.append(tree.Assertion(tree.END_LINE if self._flags.is_multi_line else tree.END_TEXT))
            case ".":
                self._items.append(tree.ANY if self._flags.is_dot_all else _ANY_BUT_NEWLINE)
            case "\\":
                raise ValueError(TRAILING_BACKSLASH)
            case _:
                self._items.append(self._literal(ord(char)))

    def _read_backslash(self, char: str) -> None:
        match char:
            case "A":
                self._assert(tree.BEGIN_TEXT)
            case "z":
                self._assert(tree.END_TEXT)
            case "b":
                self._assert(tree.WORD_BOUNDARY)
            case "B":
                self._assert(tree.NO_WORD_BOUNDARY)
            case "Q":
                self._read_quotation()
            case _:
                part = self._unicode_class() or self._perl_class()
                if part is not None:
                    self._items.append(tree.CharSet((part,), folding=self._folding()))
                else:
                    self._items.append(self._literal(self._escape()))

    def _assert(self, flag: int) -> None:
        self._at += 2
        self._items.append(tree.Assertion(flag))

    def _read_quotation(self) -> None:
        start = self._at + 2
        end = self._text.find("\\E", start)
        self._at = len(self._text) if end < 0 else end + 2
        quoted = self._text[start : None if end < 0 else end]
        self._items += (self._literal(ord(char)) for char in quoted)

    def _folding(self) -> int:
        return tree.FOLDING if self._flags.is_folded else tree.EXACT

    def _literal(self, number: int) -> tree.CharSet:
        return tree.CharSet((tree.CharPart(((number, number),)),), folding=self._folding())

    # Groups

    def _open(self) -> None:
        if len(self._groups) > DEPTH_MAX:
            raise ValueError(TOO_DEEP)
        self._groups.append(_Group([], self._flags))
        self._outer.append(self._items)
        self._items = []

    def _close(self) -> None:
        if len(self._groups) == 1:
            raise ValueError(STRAY_PAREN)
        self._end_branch()
        group = self._groups.pop()
        self._flags = group.flags
        self._items = self._outer.pop()
        self._items.append(_alternation(group.branches))

    def _end_branch(self) -> None:
        self._groups[-1].branches.append(tree.Concatenation(self._items))
        self._items = []

    def _read_flags(self) -> None:
        """(?flags), (?flags:...), (?P<name>...) and (?<name>...)."""
        for opening in ("(?P<", "(?<"):
            if self._text.startswith(opening, self._at):
                self._read_name(self._at + len(opening))
                return
        self._at += 2
        before = self._flags
        value, has_flag_after_sign = True, True
        while self._at < len(self._text):
            char = self._text[self._at]
            self._at += 1
            if char in _FLAGS:
                self._flags = self._flags._replace(**dict.fromkeys(_FLAGS[char], value))
                has_flag_after_sign = True
            elif char == "-" and value:
                value, has_flag_after_sign = False, False
            elif char in ":)" and has_flag_after_sign:
                if char == ":":
                    after, self._flags = self._flags, before
                    self._open()
                    self._flags = after
                return
            else:
                break
        raise ValueError(BAD_PERL)

    def _read_name(self, start: int) -> None:
        end = self._text.find(">", start)
        name = self._text[start : max(end, start)]
        if not name or not tree.WORD_CHARS.issuperset(name):
            raise ValueError(BAD_NAME)
        if name in self._names:
            raise ValueError(DUPLICATE_NAME)
        self._names.add(name)
        self._at = end + 1
        self._open()

    # Repetitions

    def _repetition(self, char: str) -> tuple[int, int | None] | None:
        """The bounds of the repetition at this place, which is passed; None if there is none."""
        simple: tuple[int, int | None] | None = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(char)
        if simple is None:
            return self._counted() if char == "{" else None
        self._at += 1
        return simple

    def _counted(self) -> tuple[int, int | None] | None:
        """{2}, {2,} or {2,3}; anything else is no repetition, but itself."""
        end = self._text.find("}", self._at)
        low, comma, high = self._text[self._at + 1 : max(end, self._at)].partition(",")
        if not _is_count(low) or not (_is_count(high) or high == ""):
            return None
        least, most = _count(low), (_count(high) if high else None if comma else _count(low))
        if least > REPEAT_MAX or (most is not None and not least <= most <= REPEAT_MAX):
            raise ValueError(BAD_REPEAT)
        self._at = end + 1
        return least, most

    def _repeat(self, bounds: tuple[int, int | None], *, is_nested: bool) -> None:
        if self._text.startswith("?", self._at):  # lazy
            self._at += 1
        if is_nested:
            raise ValueError(NESTED_REPEAT)
        if not self._items:
            raise ValueError(NO_ARGUMENT)
        self._items[-1] = tree.Repetition(self._items[-1], *bounds)

    # Classes and escapes

    def _char_class(self) -> tree.CharSet:
        self._at += 1
        is_negated = self._text.startswith("^", self._at)
        self._at += is_negated
        start = self._at
        parts: list[tree.CharPart] = []
        ranges: list[tuple[int, int]] = []
        while not self._text.startswith("]", self._at) or self._at == start:
            part = self._posix_class() or self._unicode_class() or self._perl_class()
            if part is not None:
                parts.append(part)
                continue
            first = last = self._class_char()
            if self._text.startswith("-", self._at) and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                last = self._class_char()
            if last < first:
                raise ValueError(BAD_RANGE)
            ranges.append((first, last))
        self._at += 1
        if ranges:
            parts.append(tree.CharPart(tree.merged(ranges)))
        return tree.CharSet(tuple(parts), is_negated, self._folding())

    def _class_char(self) -> int:
        if self._at >= len(self._text):
            raise ValueError(NO_BRACKET)
        char = self._text[self._at]
        if char == "\\":
            return self._escape()
        self._at += 1
        return ord(char)

    def _posix_class(self) -> tree.CharPart | None:
        """[:alpha:] or [:^alpha:] within brackets; None if the place holds none."""
        if not self._text.startswith("[:", self._at):
            return None
        end = self._text.find(":]", self._at + 2)
        if end < 0:
            return None
        name = self._text[self._at + 2 : end]
        ranges = tree.POSIX_CLASSES.get(name.removeprefix("^"))
        if ranges is None:
            raise ValueError(BAD_RANGE)
        self._at = end + 2
        return tree.CharPart(ranges, is_negated=name.startswith("^"))

    def _perl_class(self) -> tree.CharPart | None:
        letter = self._text[self._at + 1 : self._at + 2] if self._text.startswith("\\", self._at) else ""
        ranges = _PERL_CLASSES.get(letter.lower())
        if ranges is None:
            return None
        self._at += 2
        return tree.CharPart(ranges, is_negated=letter.isupper())

    def _unicode_class(self) -> tree.CharPart | None:
        r"""\pL, \p{Lu}, \P{^Lu} and so on; None if the place holds none."""
        if not self._text.startswith(("\\p", "\\P"), self._at):
            return None
        is_negated = self._text[self._at + 1] == "P"
        start = self._at + 2
        end = start + 1
        name = self._text[start:end]
        if name == "{":
            end = self._text.find("}", start)
            if end < 0:
                raise ValueError(BAD_RANGE)
            name = self._text[start + 1 : end]
            end += 1
        if name.startswith("^"):
            name = name[1:]
            is_negated = not is_negated
        self._at = end
        if name == "Any":
            return tree.CharPart(((0, tree.CODE_POINT_MAX),), is_negated=is_negated)
        if name not in tree.CATEGORIES:
            raise ValueError(BAD_RANGE)
        return tree.CharPart((), _ASSIGNED_C if name == "C" else (name,), is_negated)

    def _escape(self) -> int:
        """The code point that an escape sequence stands for."""
        char = self._text[self._at + 1 : self._at + 2]
        self._at += 2
        if not char:
            raise ValueError(TRAILING_BACKSLASH)
        if char in _OCTAL:
            return self._octal(char)
        if char == "x":
            return self._hexadecimal()
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char.isascii() and char.isalnum():
            raise ValueError(BAD_ESCAPE)
        return ord(char)

    def _octal(self, first: str) -> int:
        """Up to three digits. A single one from 1 to 7 would be a reference back."""
        digits = first
        while len(digits) < 3 and self._text[self._at : self._at + 1] in _OCTAL:
            digits += self._text[self._at]
            self._at += 1
        if first != "0" and len(digits) == 1:
            raise ValueError(BAD_ESCAPE)
        return int(digits, 8)

    def _hexadecimal(self) -> int:
        if self._text.startswith("{", self._at):
            digits, brace, _ = self._text[self._at + 1 :].partition("}")
            self._at += len(digits) + 2
            is_whole = bool(digits and brace)
        else:
            digits = self._text[self._at : self._at + 2]
            self._at += 2
            is_whole = len(digits) == 2
        if not is_whole or not _HEX.issuperset(digits):
            raise ValueError(BAD_ESCAPE)
        number = int(digits, 16)
        if number > tree.CODE_POINT_MAX:
            raise ValueError(BAD_ESCAPE)
        return number


def _alternation(branches: Sequence[tree.Tree]) -> tree.Tree:
    return branches[0] if len(branches) == 1 else tree.Alternation(branches)


def _is_count(digits: str) -> bool:
    return digits.isascii() and digits.isdigit() and (digits == "0" or not digits.startswith("0"))


def _count(digits: str) -> int:
    return int(digits) if len(digits) <= _INTEGER_DIGITS_MAX else REPEAT_MAX + 1
