"""A regular expression as a tree: sets of characters, assertions, concatenations, alternations, repetitions; and the
sets that expressions name, such as [:alpha:] and \\p{Lu}.

The tree is what RE2's syntax (`re2_syntax`) and Java's (`security.java_pattern`) have in common. With (?i) a character
counts as every other one that it folds to: RE2's by Unicode (`fold_orbit`), Java's only among the letters of ASCII.
Source: com.google.re2j.Regexp, com.google.re2j.CharClass, com.google.re2j.Unicode (simpleFold);
java.util.regex.CharPredicates.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

from kafkalite.common.named_tuple import NamedTuple

Ranges = tuple[tuple[int, int], ...]
"""Code points from the first to the last of each, both of them included."""


class CharPart(NamedTuple):
    """Ranges and general categories, or all other characters."""

    ranges: Ranges = ()
    categories: tuple[str, ...] = ()  # prefixes: "L" has Lu, Ll and so on
    is_negated: bool = False


EXACT, ASCII_FOLDING, FOLDING = range(3)


class CharSet(NamedTuple):
    """Characters in any of the parts, or all others. With ASCII_FOLDING or FOLDING a character counts as any that it
    folds to."""

    parts: tuple[CharPart, ...]
    is_negated: bool = False
    folding: int = EXACT

    def has(self, char: str) -> bool:
        folds: Sequence[str] = (char,)
        if self.folding == FOLDING:
            folds = fold_orbit(char)
        elif self.folding == ASCII_FOLDING and char.isascii():
            folds = (char, char.swapcase())
        return any(_is_in(part, char, folds) != part.is_negated for part in self.parts) != self.is_negated


class Flags(NamedTuple):
    """The flags of (?ism), as far as a parser has read."""

    is_folded: bool = False
    is_dot_all: bool = False
    is_multi_line: bool = False


class Assertion(NamedTuple):
    """A place in the text, by one of the flags below."""

    flag: int


class Concatenation(NamedTuple):
    parts: Sequence[Tree]


class Alternation(NamedTuple):
    branches: Sequence[Tree]


class Repetition(NamedTuple):
    """`kind` is "", "?" (reluctant) or "+" (possessive), which only Java's have."""

    body: Tree
    least: int
    most: int | None
    kind: str = ""


Tree = CharSet | Assertion | Concatenation | Alternation | Repetition

BEGIN_TEXT, END_TEXT, BEGIN_LINE, END_LINE, WORD_BOUNDARY, NO_WORD_BOUNDARY, END_LAST_LINE = (
    1 << bit for bit in range(7)
)
"""The last one is Java's: the end of the text, or in front of the line end there."""

CODE_POINT_MAX: Final = 0x10FFFF
ANY: Final = CharSet((CharPart(((0, CODE_POINT_MAX),)),))
_LOWER: Final[Ranges] = ((0x61, 0x7A),)
_UPPER: Final[Ranges] = ((0x41, 0x5A),)
DIGIT: Final[Ranges] = ((0x30, 0x39),)
WORD: Final[Ranges] = (*DIGIT, *_UPPER, (0x5F, 0x5F), *_LOWER)
POSIX_CLASSES: Final[dict[str, Ranges]] = {
    "alnum": (*DIGIT, *_UPPER, *_LOWER),
    "alpha": (*_UPPER, *_LOWER),
    "ascii": ((0, 0x7F),),
    "blank": ((0x09, 0x09), (0x20, 0x20)),
    "cntrl": ((0, 0x1F), (0x7F, 0x7F)),
    "digit": DIGIT,
    "graph": ((0x21, 0x7E),),
    "lower": _LOWER,
    "print": ((0x20, 0x7E),),
    "punct": ((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)),
    "space": ((0x09, 0x0D), (0x20, 0x20)),
    "upper": _UPPER,
    "word": WORD,
    "xdigit": (*DIGIT, (0x41, 0x46), (0x61, 0x66)),
}
CATEGORIES: Final = frozenset(
    [
        "C",
        "Cc",
        "Cf",
        "Co",
        "Cs",
        "L",
        "Ll",
        "Lm",
        "Lo",
        "Lt",
        "Lu",
        "M",
        "Mc",
        "Me",
        "Mn",
        "N",
        "Nd",
        "Nl",
        "No",
        "P",
        "Pc",
        "Pd",
        "Pe",
        "Pf",
        "Pi",
        "Po",
        "Ps",
        "S",
        "Sc",
        "Sk",
        "Sm",
        "So",
        "Z",
        "Zl",
        "Zp",
        "Zs",
    ]
)
WORD_CHARS: Final = frozenset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz")

_FOLDED_CATEGORIES: Final = frozenset(("Lt", "Lu", "Mn"))  # in RE2J (?i) leaves the others alone


def _is_in(part: CharPart, char: str, folds: Sequence[str]) -> bool:
    for one in folds:
        number = ord(one)
        if any(first <= number <= last for first, last in part.ranges):
            return True
    if not part.categories:
        return False
    same = folds if _FOLDED_CATEGORIES.issuperset(part.categories) else (char,)
    return any(unicodedata.category(one).startswith(part.categories) for one in same)


_LARGE_ORBITS: Final = (
    "Kk\u212a Ss\u017f \xb5\u039c\u03bc \xc5\xe5\u212b \u01c4\u01c5\u01c6 \u01c7\u01c8\u01c9 "
    "\u01ca\u01cb\u01cc \u01f1\u01f2\u01f3 \u0345\u0399\u03b9\u1fbe \u0392\u03b2\u03d0 \u0395\u03b5\u03f5 "
    "\u0398\u03b8\u03d1\u03f4 \u039a\u03ba\u03f0 \u03a0\u03c0\u03d6 \u03a1\u03c1\u03f1 \u03a3\u03c2\u03c3 "
    "\u03a6\u03c6\u03d5 \u03a9\u03c9\u2126 \u0412\u0432\u1c80 \u0414\u0434\u1c81 \u041e\u043e\u1c82 "
    "\u0421\u0441\u1c83 \u0422\u0442\u1c84\u1c85 \u042a\u044a\u1c86 \u0462\u0463\u1c87 "
    "\u1c88\ua64a\ua64b \u1e60\u1e61\u1e9b \xdf\u1e9e \u0131"
)
"""Characters that fold together in threes and fours, and those whose own upper and lower case mislead."""
_ORBITS: Final = {char: orbit for orbit in _LARGE_ORBITS.split() for char in orbit}


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Without overlaps, so that a class of many characters is no long one."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return tuple(found)


@functools.lru_cache(4096)
def fold_orbit(char: str) -> str:
    """All characters that are the same to (?i), `char` among them: Unicode's simple case folding."""
    orbit = _ORBITS.get(char)
    if orbit is not None:
        return orbit
    others = {other for other in (char.lower(), char.upper(), char.title()) if len(other) == 1 and other not in _ORBITS}
    return "".join(sorted({char, *others}))
