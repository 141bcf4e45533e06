"""The sets of characters and the places of a text that Java's regular expressions name.

Only the letters of ASCII have two cases, as in CASE_INSENSITIVE without UNICODE_CASE.
Source: java.util.regex.{Pattern, CharPredicates}.
"""

from __future__ import annotations

import unicodedata

from kafkalite.security.java_matcher import CharTest

_LINE_ENDS = "\n\r\x85\u2028\u2029"
DIGITS = frozenset("0123456789")
UPPER = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_LOWER = frozenset(map(str.lower, UPPER))
_WORD = UPPER | _LOWER | DIGITS | {"_"}
_SPACE = frozenset(" \t\n\x0b\f\r")
_PRINTED = frozenset(map(chr, range(0x21, 0x7F)))
CLASSES: dict[str, frozenset[str]] = {
    "d": DIGITS,
    "w": _WORD,
    "s": _SPACE,
    "h": frozenset(" \t\xa0\u1680\u180e\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))),
    "v": frozenset("\n\x0b\f\r\x85\u2028\u2029"),
}
PROPERTIES: dict[str, frozenset[str]] = {
    "Lower": _LOWER,
    "Upper": UPPER,
    "ASCII": frozenset(map(chr, range(128))),
    "Alpha": UPPER | _LOWER,
    "Digit": DIGITS,
    "Alnum": UPPER | _LOWER | DIGITS,
    "Punct": _PRINTED - UPPER - _LOWER - DIGITS,
    "Graph": _PRINTED,
    "Print": _PRINTED | {" "},
    "Blank": frozenset(" \t"),
    "Cntrl": frozenset(map(chr, (*range(32), 127))),
    "XDigit": DIGITS | frozenset("abcdefABCDEF"),
    "Space": _SPACE,
}
_KINDS = {"L": "ultmo", "M": "nec", "N": "dlo", "P": "dseifco", "S": "mcko", "Z": "slp"}
CATEGORIES = frozenset(first + second for first, kinds in _KINDS.items() for second in ("", *kinds))
CASED = frozenset(("Lower", "Upper", "Lu", "Ll", "Lt"))
CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
LETTERS = UPPER | _LOWER


def of_category(name: str) -> CharTest:
    return lambda char: unicodedata.category(char).startswith(name)


def either_case(test: CharTest) -> CharTest:
    """As CASE_INSENSITIVE without UNICODE_CASE: the letters of ASCII alone."""
    return lambda char: test(char) or (char in LETTERS and test(char.swapcase()))


def negated(test: CharTest) -> CharTest:
    return lambda char: not test(char)


def is_any(_: str) -> bool:
    return True


def is_no_line_end(char: str) -> bool:
    return char not in _LINE_ENDS


def is_start(_: str, place: int) -> bool:
    return place == 0


def is_end(text: str, place: int) -> bool:
    return place == len(text)


def is_last_line_end(text: str, place: int) -> bool:
    """The end, or the end of a line that is the last: never between \\r and \\n."""
    rest = text[place : place + 3]
    if rest == "\n":
        return text[place - 1 : place] != "\r"
    return rest in ("", "\r\n") or (len(rest) == 1 and rest in _LINE_ENDS)
