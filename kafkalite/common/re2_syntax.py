r"""The syntax of RE2's regular expressions as RE2J reads it, parsed into a tree.

There is nothing in it that needs more than a finite automaton: no look-around, no reference back, no possessive
repetition. What RE2J refuses is refused here in RE2J's words. Two things are refused beyond that: nesting deeper than
`DEPTH_MAX`, where Java's stack overflows soon after, and scripts such as \p{Greek}, which Python has no table of.
Captures, laziness and their flag mean nothing to a full match and are dropped.
Source: RE2's syntax page; com.google.re2j.Parser (1.8, with the flags of Pattern.compile).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kafkalite.common.re2_tree import (
    BEGIN_LINE,
    BEGIN_TEXT,
    END_LINE,
    END_TEXT,
    NO_WORD_BOUNDARY,
    WORD_BOUNDARY,
    WORD_CHARS,
    Alternation,
    Assertion,
    CharPart,
    CharSet,
    Concatenation,
    Ranges,
    Repetition,
    Tree,
)

DEPTH_MAX: Final = 200
REPEAT_MAX: Final = 1000
_CODE_POINT_MAX: Final = 0x10FFFF
_INTEGER_DIGITS_MAX: Final = 8

_LOWER: Final[Ranges] = ((0x61, 0x7A),)
_UPPER: Final[Ranges] = ((0x41, 0x5A),)
_DIGIT: Final[Ranges] = ((0x30, 0x39),)
_PUNCTUATION: Final[Ranges] = ((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E))
_WORD: Final[Ranges] = (*_DIGIT, *_UPPER, (0x5F, 0x5F), *_LOWER)
_PERL_CLASSES: Final[dict[str, Ranges]] = {
    "d": _DIGIT,
    "s": ((0x09, 0x0A), (0x0C, 0x0D), (0x20, 0x20)),
    "w": _WORD,
}
_POSIX_CLASSES: Final[dict[str, Ranges]] = {
    "alnum": (*_DIGIT, *_UPPER, *_LOWER),
    "alpha": (*_UPPER, *_LOWER),
    "ascii": ((0, 0x7F),),
    "blank": ((0x09, 0x09), (0x20, 0x20)),
    "cntrl": ((0, 0x1F), (0x7F, 0x7F)),
    "digit": _DIGIT,
    "graph": ((0x21, 0x7E),),
    "lower": _LOWER,
    "print": ((0x20, 0x7E),),
    "punct": _PUNCTUATION,
    "space": ((0x09, 0x0D), (0x20, 0x20)),
    "upper": _UPPER,
    "word": _WORD,
    "xdigit": (*_DIGIT, (0x41, 0x46), (0x61, 0x66)),
}
_CATEGORY_NAMES: Final = (
    "C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs"
)
_CATEGORIES: Final = frozenset(_CATEGORY_NAMES.split())
_ASSIGNED_C: Final = ("Cc", "Cf", "Co", "Cs")  # RE2's C has no code points without a character
_CONTROLS: Final = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_ANY: Final = CharSet((CharPart(((0, _CODE_POINT_MAX),)),))
_ANY_BUT_NEWLINE: Final = CharSet((CharPart(((0x0A, 0x0A),)),), is_negated=True)
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


def parse(pattern: str) -> Tree:
    """Raises ValueError with RE2J's description of what is wrong."""
    return _Parser(pattern).parse()


class _Group(NamedTuple):
    """An open parenthesis, or the whole pattern."""

    branches: list[Tree]
    is_folded: bool  # the flags before it
    is_dot_all: bool
    is_multi_line: bool


class _Parser:
    """One pass over the pattern. `_items` is the branch that is being read."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._items: list[Tree] = []
        self._outer: list[list[Tree]] = []  # items before each open group
        self._is_folded = self._is_dot_all = self._is_multi_line = False
        self._groups = [_Group([], False, False, False)]
        self._names: set[str] = set()

    def parse(self) -> Tree:
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
                self._items.append(Assertion(BEGIN_LINE if self._is_multi_line else BEGIN_TEXT))
            case "$":
                self._items.append(Assertion(END_LINE if self._is_multi_line else END_TEXT))
            case ".":
                self._items.append(_ANY if self._is_dot_all else _ANY_BUT_NEWLINE)
            case "\\":
                raise ValueError(TRAILING_BACKSLASH)
            case _:
                self._items.append(self._literal(ord(char)))

    def _read_backslash(self, char: str) -> None:
        match char:
            case "A":
                self._assert(BEGIN_TEXT)
            case "z":
                self._assert(END_TEXT)
            case "b":
                self._assert(WORD_BOUNDARY)
            case "B":
                self._assert(NO_WORD_BOUNDARY)
            case "Q":
                self._read_quotation()
            case _:
                part = self._unicode_class() or self._perl_class()
                if part is not None:
                    self._items.append(CharSet((part,), is_folded=self._is_folded))
                else:
                    self._items.append(self._literal(self._escape()))

    def _assert(self, flag: int) -> None:
        self._at += 2
        self._items.append(Assertion(flag))

    def _read_quotation(self) -> None:
        start = self._at + 2
        end = self._text.find("\\E", start)
        self._at = len(self._text) if end < 0 else end + 2
        quoted = self._text[start : None if end < 0 else end]
        self._items += (self._literal(ord(char)) for char in quoted)

    def _literal(self, number: int) -> CharSet:
        return CharSet((CharPart(((number, number),)),), is_folded=self._is_folded)

    # Groups

    def _open(self) -> None:
        if len(self._groups) > DEPTH_MAX:
            raise ValueError(TOO_DEEP)
        self._groups.append(_Group([], self._is_folded, self._is_dot_all, self._is_multi_line))
        self._outer.append(self._items)
        self._items = []

    def _close(self) -> None:
        if len(self._groups) == 1:
            raise ValueError(STRAY_PAREN)
        self._end_branch()
        group = self._groups.pop()
        self._is_folded, self._is_dot_all, self._is_multi_line = group[1:]
        self._items = self._outer.pop()
        self._items.append(_alternation(group.branches))

    def _end_branch(self) -> None:
        self._groups[-1].branches.append(Concatenation(self._items))
        self._items = []

    def _read_flags(self) -> None:
        """(?flags), (?flags:...), (?P<name>...) and (?<name>...)."""
        for opening in ("(?P<", "(?<"):
            if self._text.startswith(opening, self._at):
                self._read_name(self._at + len(opening))
                return
        self._at += 2
        before = self._is_folded, self._is_dot_all, self._is_multi_line
        value, has_flag_after_sign = True, True
        while self._at < len(self._text):
            char = self._text[self._at]
            self._at += 1
            if char in "imsU":
                self._set_flag(char, value)
                has_flag_after_sign = True
            elif char == "-" and value:
                value, has_flag_after_sign = False, False
            elif char in ":)" and has_flag_after_sign:
                if char == ":":
                    after = self._is_folded, self._is_dot_all, self._is_multi_line
                    self._is_folded, self._is_dot_all, self._is_multi_line = before
                    self._open()
                    self._is_folded, self._is_dot_all, self._is_multi_line = after
                return
            else:
                break
        raise ValueError(BAD_PERL)

    def _set_flag(self, flag: str, value: bool) -> None:
        match flag:
            case "i":
                self._is_folded = value
            case "s":
                self._is_dot_all = value
            case "m":
                self._is_multi_line = value

    def _read_name(self, start: int) -> None:
        end = self._text.find(">", start)
        name = self._text[start : max(end, start)]
        if not name or not WORD_CHARS.issuperset(name):
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
        self._items[-1] = Repetition(self._items[-1], *bounds)

    # Classes and escapes

    def _char_class(self) -> CharSet:
        self._at += 1
        is_negated = self._text.startswith("^", self._at)
        self._at += is_negated
        start = self._at
        parts: list[CharPart] = []
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
            parts.append(CharPart(_merged(ranges)))
        return CharSet(tuple(parts), is_negated, self._is_folded)

    def _class_char(self) -> int:
        if self._at >= len(self._text):
            raise ValueError(NO_BRACKET)
        char = self._text[self._at]
        if char == "\\":
            return self._escape()
        self._at += 1
        return ord(char)

    def _posix_class(self) -> CharPart | None:
        """[:alpha:] or [:^alpha:] within brackets; None if the place holds none."""
        if not self._text.startswith("[:", self._at):
            return None
        end = self._text.find(":]", self._at + 2)
        if end < 0:
            return None
        name = self._text[self._at + 2 : end]
        ranges = _POSIX_CLASSES.get(name.removeprefix("^"))
        if ranges is None:
            raise ValueError(BAD_RANGE)
        self._at = end + 2
        return CharPart(ranges, is_negated=name.startswith("^"))

    def _perl_class(self) -> CharPart | None:
        letter = self._text[self._at + 1 : self._at + 2] if self._text.startswith("\\", self._at) else ""
        ranges = _PERL_CLASSES.get(letter.lower())
        if ranges is None:
            return None
        self._at += 2
        return CharPart(ranges, is_negated=letter.isupper())

    def _unicode_class(self) -> CharPart | None:
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
            return CharPart(((0, _CODE_POINT_MAX),), is_negated=is_negated)
        if name not in _CATEGORIES:
            raise ValueError(BAD_RANGE)
        return CharPart((), _ASSIGNED_C if name == "C" else (name,), is_negated)

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
        if number > _CODE_POINT_MAX:
            raise ValueError(BAD_ESCAPE)
        return number


def _alternation(branches: Sequence[Tree]) -> Tree:
    return branches[0] if len(branches) == 1 else Alternation(branches)


def _is_count(digits: str) -> bool:
    return digits.isascii() and digits.isdigit() and (digits == "0" or not digits.startswith("0"))


def _count(digits: str) -> int:
    return int(digits) if len(digits) <= _INTEGER_DIGITS_MAX else REPEAT_MAX + 1


def _merged(ranges: list[tuple[int, int]]) -> Ranges:
    """Without overlaps, so that a class of many characters is no long one."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        else:
            merged.append((first, last))
    return tuple(merged)
