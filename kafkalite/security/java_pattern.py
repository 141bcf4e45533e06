r"""Regular expressions as Java's Pattern and Matcher read them, for rules that map principals to users.

Python's `re` reads most of them the same and some otherwise (`\w` takes letters beyond ASCII, `[` within a class is a
letter, `.` and `$` know one end of a line), and a name that differs is another user's rights. So a pattern is parsed
here: what Java refuses is refused, and so is, by its name, each construct that this module does not know.

Source: java.util.regex.{Pattern, Matcher}.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from kafkalite.common import regex_tree as tree
from kafkalite.security.java_matcher import LINE_ENDS, Alone, Group, Groups, can_be_empty, code_of, run

_CHARS_MAX = 10_000
_DEPTH_MAX = 100
_SHOWN_CHARS = 80
_DIGITS = frozenset("0123456789")
_HEX = _DIGITS | frozenset("abcdefABCDEF")
_SPACES = "".join(map(chr, range(0x2000, 0x200B)))


def _ranges_of(chars: Iterable[str]) -> tree.Ranges:
    return tree.merged((ord(char), ord(char)) for char in chars)


_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_CLASSES: dict[str, tree.Ranges] = {
    "d": tree.DIGIT,
    "w": tree.WORD,
    "s": tree.POSIX_CLASSES["space"],
    "h": _ranges_of(" \t\xa0\u1680\u180e\u202f\u205f\u3000" + _SPACES),
    "v": ((0x0A, 0x0D), (0x85, 0x85), (0x2028, 0x2029)),
}
_PROPERTIES = {name.capitalize(): ranges for name, ranges in tree.POSIX_CLASSES.items() if name != "word"}
_PROPERTIES |= {"ASCII": _PROPERTIES.pop("Ascii"), "XDigit": _PROPERTIES.pop("Xdigit")}
_CASED = ("Lower", "Upper", "Lu", "Ll", "Lt")
_NO_LINE_END = tree.CharSet((tree.CharPart(_ranges_of(LINE_ENDS)),), is_negated=True)


class JavaPattern:
    """`group_count` is the number of its groups, `group_names` has those with a name."""

    def __init__(self, text: str) -> None:
        """Raises ValueError, which names the faulty or unsupported construct."""
        if len(text) > _CHARS_MAX:
            raise ValueError(f"is longer than {_CHARS_MAX} letters")
        parser = _Parser(text)
        root = parser.parse()
        self.text = text
        self.group_count = parser.group_count
        self.group_names = parser.group_names
        self._code = code_of(root)

    def matches(self, text: str) -> bool:
        """Whether the whole of `text` is a match. Raises ValueError if that takes too long."""
        return self._try(text, 0, set(), [0], is_whole=True) is not None

    def replace(self, text: str, replacement: str, *, all_of_them: bool) -> str:
        """`text` with each match replaced, or the first. Raises ValueError for a `replacement` that makes no sense, if
        there is a match, or if this takes too long."""
        pieces: list[str] = []
        done = 0
        for groups in self._found(text):
            pieces.append(text[done : groups[0]])
            for part in self._parts(replacement):
                pieces.append(part if isinstance(part, str) else _text_of(text, groups, part))
            done = groups[1]
            if not all_of_them:
                break
        return "".join([*pieces, text[done:]])

    def _parts(self, replacement: str) -> Iterator[str | int]:
        """Text, and the numbers of groups whose text stands there: $1, ${name}, and a letter behind a backslash."""
        at = 0
        while at < len(replacement):
            if replacement[at] == "$":
                number, at = self._reference(replacement, at + 1)
                yield number
                continue
            at += replacement[at] == "\\"
            if at == len(replacement):
                raise ValueError(f"ends the replacement {replacement[:_SHOWN_CHARS]!r} with a backslash")
            yield replacement[at]
            at += 1

    def _reference(self, text: str, at: int) -> tuple[int, int]:
        """The number of a group, and where it ends."""
        if text[at : at + 1] == "{":
            name, brace, _ = text[at + 1 :].partition("}")
            if not brace or name not in self.group_names:
                raise ValueError(f"has ${{{name[:_SHOWN_CHARS]}, and its pattern has no group of that name")
            return self.group_names[name], at + len(name) + 2
        digits = 0
        while text[at + digits : at + digits + 1] in _DIGITS:
            if digits and int(text[at : at + digits + 1]) > self.group_count:
                break
            digits += 1
        if not digits:
            raise ValueError("has a $ without the number of a group")
        number = int(text[at : at + digits])
        if number > self.group_count:
            raise ValueError(f"has ${number}, and its pattern has {self.group_count} groups")
        return number, at + digits

    def _found(self, text: str) -> Iterator[Groups]:
        """Start and end of each match and of its groups."""
        steps = [0]
        start = 0
        while start <= len(text):
            failed: set[int] = set()
            groups = None
            while groups is None and start <= len(text):
                groups = self._try(text, start, failed, steps)
                start += 1
            if groups is None:
                return
            yield groups
            start = groups[1] + (groups[0] == groups[1])

    def _try(
        self, text: str, start: int, failed: set[int], steps: list[int], *, is_whole: bool = False
    ) -> Groups | None:
        groups = (-1, -1) * self.group_count
        found = run(self._code, text, start, groups, failed, steps, is_whole=is_whole)
        return None if found is None else (start, found[0], *found[1])


def _text_of(text: str, groups: Groups, number: int) -> str:
    start, end = groups[2 * number : 2 * number + 2]
    return text[start:end] if start >= 0 else ""


class _Parser:
    """By recursive descent, as Pattern is itself."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._flags = tree.Flags()
        self._depth = 0
        self._alone = 0
        self.group_count = 0
        self.group_names: dict[str, int] = {}

    def parse(self) -> Any:
        root = self._choice()
        if self._at < len(self._text):
            self._senseless("a ) that closes nothing")
        return root

    def _senseless(self, what: str) -> NoReturn:
        raise ValueError(f"has {what}, in {self._text[:_SHOWN_CHARS]!r}")

    def _unknown(self, what: str, why: str = "") -> NoReturn:
        raise ValueError(f"has {what}, which kafkalite does not know{why}, in {self._text[:_SHOWN_CHARS]!r}")

    def _peek(self, count: int = 1) -> str:
        return self._text[self._at : self._at + count]

    def _take(self, count: int = 1) -> str:
        taken = self._peek(count)
        self._at += count
        return taken

    def _choice(self) -> Any:
        branches = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            branches.append(self._sequence())
        return tree.Alternation(tuple(branches)) if len(branches) > 1 else branches[0]

    def _sequence(self) -> Any:
        parts = []
        while (char := self._peek()) not in ("", "|", ")"):
            before = self.group_count
            if char in "*+?":
                self._senseless(f"a {char} that repeats nothing")
            if char == "{":
                self._unknown("a { that repeats nothing", "; as a letter it is \\{")
            atom = self._group() if char == "(" else self._atom()
            if atom is not None:
                parts.append(self._repeated(atom, has_groups=self.group_count > before))
        return tree.Concatenation(tuple(parts))

    def _repeated(self, atom: Any, *, has_groups: bool) -> Any:
        char = self._peek()
        if char == "{":
            least, most = self._bounds()
        elif char and char in "*+?":
            self._at += 1
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        else:
            return atom
        kind = self._take() if self._peek() in ("?", "+") else ""
        if isinstance(atom, tree.Concatenation):
            self._unknown("a quotation that is repeated")
        if most != 1 and can_be_empty(atom):
            self._unknown("a group that can be empty and is repeated")
        if kind == "+" and has_groups:
            self._unknown("a possessive repetition with a group in it", "; write (?:...)")
        return tree.Repetition(atom, least, most, kind)

    def _bounds(self) -> tuple[int, int | None]:
        self._at += 1
        least, comma, most = self._take_until("}", "a { without a }").partition(",")
        if not _is_number(least) or (most and not _is_number(most)):
            self._senseless(f"a repetition {{{least}{comma}{most}}}")
        bounds = int(least), int(most) if most else None if comma else int(least)
        if bounds[1] is not None and bounds[1] < bounds[0]:
            self._senseless(f"a repetition {{{least},{most}}}, of which the end is below the start")
        return bounds

    def _take_until(self, end: str, missing: str) -> str:
        found = self._text.find(end, self._at)
        if found < 0:
            self._senseless(missing)
        return self._take(found - self._at + 1)[:-1]

    def _group(self) -> Any:
        start, flags = self._at, self._flags
        self._at += 1
        make: Callable[[Any], Any] = _plain
        number, is_alone = 0, False
        if self._peek() == "?":
            self._at += 1
            kind = self._take()
            if kind == "<" and self._peek() not in ("=", "!"):
                number = self._named_group()
            elif kind in (">", "=", "!"):
                is_alone, make = True, _ALONE_GROUPS[kind]
            elif kind == "<":
                self._unknown("(?<" + self._peek())
            elif kind != ":":
                self._at -= 1
                if self._take_flags():
                    return None
        else:
            number = self._new_group()
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            self._unknown(f"groups that are nested more than {_DEPTH_MAX} times")
        self._alone += is_alone
        body = self._choice()
        self._alone -= is_alone
        self._depth -= 1
        if self._take() != ")":
            self._senseless(f"a ( without a ): {self._text[start : start + 10]!r}")
        self._flags = flags
        return Group(number, body) if number else make(body)

    def _new_group(self) -> int:
        if self._alone:  # Java keeps such groups when it tries something else
            self._unknown("a group that is kept, inside of a lookahead or an atomic group", "; write (?:...)")
        self.group_count += 1
        return self.group_count

    def _named_group(self) -> int:
        name = self._take_until(">", "a name of a group that does not end")
        if not name or not name.isascii() or not name.isalnum() or name[0] in _DIGITS or name in self.group_names:
            self._senseless(f"a group with the name {name[:_SHOWN_CHARS]!r}")
        number = self._new_group()
        self.group_names[name] = number
        return number

    def _take_flags(self) -> bool:
        """Whether they are for the rest of the group around, as in (?i), not for one of their own, as in (?i:...)."""
        sign = True
        while (char := self._take()) not in (")", ":"):
            if char == "i":
                self._flags = self._flags._replace(is_folded=sign)
            elif char == "s":
                self._flags = self._flags._replace(is_dot_all=sign)
            elif char == "-" and sign:
                sign = False
            else:
                self._unknown(f"(?{char}" if char else "(?")
        return char == ")"

    def _atom(self) -> Any:
        char = self._take()
        if char == "[":
            return self._class()
        if char == ".":
            return tree.ANY if self._flags.is_dot_all else _NO_LINE_END
        if char == "^":
            return tree.Assertion(tree.BEGIN_TEXT)
        if char == "$":
            return tree.Assertion(tree.END_LAST_LINE)
        if char != "\\":
            return self._literal(char)
        if self._peek() == "Q":
            self._at += 1
            end = self._text.find("\\E", self._at)
            quoted = self._take((end if end >= 0 else len(self._text)) - self._at)
            self._at += 2
            if not quoted:
                self._unknown("\\Q with nothing behind it")
            return tree.Concatenation(tuple(map(self._literal, quoted)))
        place = {"A": tree.BEGIN_TEXT, "z": tree.END_TEXT, "Z": tree.END_LAST_LINE}.get(self._peek())
        if place is not None:
            self._at += 1
            return tree.Assertion(place)
        found = self._escape()
        return self._literal(found) if isinstance(found, str) else tree.CharSet((found,))

    def _folding(self) -> int:
        return tree.ASCII_FOLDING if self._flags.is_folded else tree.EXACT

    def _literal(self, char: str) -> tree.CharSet:
        return tree.CharSet((tree.CharPart(((ord(char), ord(char)),)),), folding=self._folding())

    def _escape(self) -> str | tree.CharPart:
        """Behind a backslash: a character, or a set of them."""
        char = self._take()
        if not char:
            self._senseless("a backslash at its end")
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char in "xu":
            return self._code_point(char)
        if char in "pP":
            return self._property(is_negated=char == "P")
        if (known := _CLASSES.get(char.lower())) is not None:
            return tree.CharPart(known, is_negated=char.isupper())
        if char == "b":
            self._unknown("\\b", ", since it is one thing in Java 18 and another in Java 19")
        if char.isascii() and char.isalnum():
            self._unknown(f"\\{char}")
        return char

    def _code_point(self, kind: str) -> str:
        if kind == "x" and self._peek() == "{":
            self._at += 1
            digits = self._take_until("}", "\\x{ without a }")
        else:
            digits = self._take(2 if kind == "x" else 4)
            if len(digits) < (2 if kind == "x" else 4):
                self._senseless(f"\\{kind}{digits}")
        if not digits or not _HEX.issuperset(digits) or int(digits, 16) > 0x10FFFF:
            self._senseless(f"\\{kind}{digits[:_SHOWN_CHARS]}")
        if 0xD800 <= int(digits, 16) <= 0xDFFF:
            self._unknown(f"\\{kind}{digits}")
        return chr(int(digits, 16))

    def _property(self, *, is_negated: bool) -> tree.CharPart:
        name = self._take()
        if name == "{":
            name = self._take_until("}", "\\p{ without a }")
        if name not in _PROPERTIES and (name not in tree.CATEGORIES or name.startswith("C")):
            self._unknown(f"\\p{{{name[:_SHOWN_CHARS]}}}")
        if self._flags.is_folded and name in _CASED:
            self._unknown(f"\\p{{{name}}} behind (?i)", ", since it changed in Java 15")
        if name in _PROPERTIES:
            return tree.CharPart(_PROPERTIES[name], is_negated=is_negated)
        return tree.CharPart((), (name,), is_negated)

    def _class(self) -> tree.CharSet:
        """Parses a class in brackets."""
        is_negated = self._peek() == "^"
        self._at += is_negated
        ranges: list[tuple[int, int]] = []
        parts: list[tree.CharPart] = []
        is_first = True
        while (char := self._take()) != "]" or is_first:
            is_first = False
            if not char:
                self._senseless("a [ without a ]")
            if char == "[" or (char == "&" and self._peek() == "&"):
                self._unknown(f"a {char if char == '[' else '&&'} within brackets", f"; as a letter it is \\{char}")
            low = self._escape() if char == "\\" else char
            if isinstance(low, str) and self._peek() == "-" and self._peek(2) not in ("-", "-]"):
                ranges.append((ord(low), ord(self._range_end(low))))
            elif isinstance(low, str):
                ranges.append((ord(low), ord(low)))
            else:
                parts.append(low)
        return tree.CharSet((tree.CharPart(tree.merged(ranges)), *parts), is_negated, self._folding())

    def _range_end(self, low: str) -> str:
        self._at += 1
        char = self._take()
        if char == "[":
            self._unknown("a [ within brackets", "; as a letter it is \\[")
        high = self._escape() if char == "\\" else char
        if not isinstance(high, str) or high < low:
            self._senseless(f"a range that begins with {low!r} and ends with {char!r}")
        return high


def _plain(body: Any) -> Any:
    return body if not isinstance(body, tree.Concatenation) else tree.Alternation((body,))


def _is_number(text: str) -> bool:
    return bool(text) and set(text) <= _DIGITS and len(text) <= 6


_ALONE_GROUPS: dict[str, Callable[[Any], Any]] = {
    ">": Alone,
    "=": lambda body: Alone(body, True),
    "!": lambda body: Alone(body, False),
}


def in_case(name: str, case: str | None) -> str:
    """`name` in lower letters for "L", in upper ones for "U"."""
    return name.lower() if case == "L" else name.upper() if case == "U" else name
