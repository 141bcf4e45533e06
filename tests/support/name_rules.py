"""Draws rules that make users of names, of what such rules are made of, and names for them.

Most are rules as people write them, and one part of a dozen is a mistake, or what few people know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")
LETTERS = [*"aAbBcC01 _-.:@,=üß\u2028\u00a0\t&]}\r\n", r"\/", r"\.", r"\+", r"\ü"]
ESCAPES = [
    *(rf"\{letter}" for letter in "dDwWsShHvVtnrfaezZA_-/@\\{}[]"),
    *(r"\x41", r"\x{fc}", r"\u00fc", r"\p{Alpha}", r"\P{Alnum}", r"\p{L}", r"\pL", r"\p{Lu}", r"\p{Punct}"),
]
RARE_ESCAPES = [*(rf"\{letter}" for letter in "bBGRQEpkNcxu019"), r"\p{IsLatin}", r"\p{javaLowerCase}", r"\Qa.b\E"]
CLASS_PARTS = ["a-c", "A-Z", "0-9", "a", "b", "-", ",", "=", ".", "ü", "$", "&", *ESCAPES[:8]]
RARE_CLASS_PARTS = ["^", "]", "[", "&&", "a-", "-z", "c-a", r"\d-", r"a-\w", *RARE_ESCAPES, *ESCAPES]
USUAL = [".", ".*", ".*?", "(.*)", "(.*?)", "(.+)", "([^,]+)", "([^,]*)", "CN=", ",OU=", "a", "b", "A", "^", "$"]
COUNTS = ["", "", "", "*", "+", "?", "*?", "+?", "??", "*+", "?+", "{2}", "{1,2}", "{0,3}?", "{1,}"]
RARE_COUNTS = ["{", "{a}", "{2,1}", "**", "+*", "{2}{2}"]
OPENINGS = ["(", "(", "(?:", "(?i:", "(?-i:", "(?>", "(?=", "(?!"]
RARE_OPENINGS = ["(?i)", "(?s)", "(?<=", "(?<n>", "(?x)", "(?u)", "(?"]
REFERENCES = ["$1", "$1", "$2", "$0", "$10", "$12x", "x", "@", r"\$", r"\\", "ü", "ß", "-", ","]
RARE_REFERENCES = ["$", "$9", "${n}", "\\", "$99999999999"]
NAME_PARTS = [
    "a",
    "A",
    "b",
    "B",
    "0",
    "1",
    "ab",
    " ",
    ",",
    "=",
    ".",
    "ü",
    "ß",
    "Σ",
    "\n",
    "\r",
    "\u2028",
    "İ",
    "-",
    "CN=",
]
OIDS = ["0603550403", "060355040a", "060355040b", "0603550406", "0603550407", "0603550408", "0603550409"]
RARE_OIDS = [
    "060a0992268993f22c640119",
    "060a0992268993f22c640101",
    "06092a864886f70d010901",
    "0603550404",
    "060355040c",
    "06028837",
]


def _der(tag: int, *contents: bytes) -> bytes:
    content = b"".join(contents)
    size = bytes([len(content)]) if len(content) < 128 else bytes([0x82, *len(content).to_bytes(2, "big")])
    return bytes([tag]) + size + content


class Drawn:
    """The rules and names of one seed."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)

    def one(self, usual: Sequence[T], rare: Sequence[T] | None = None) -> T:
        return self._chance.choice(rare if rare is not None and self._chance.random() < 0.08 else usual)

    def text(self, letters: Sequence[str], most: int, least: int = 0) -> str:
        return "".join(self.one(letters) for _ in range(self._chance.randint(least, most)))

    def pattern(self) -> str:
        parts = [self._part(2) for _ in range(self._chance.randint(1, 3))]
        return self.one(["", "", "^", "^CN=", "CN=", "(?i)"]) + "".join(parts) + self.one(["", "$", ".*$", ".*", ".*"])

    def _part(self, depth: int) -> str:
        dice = self._chance.random()
        if dice < 0.45:
            return self.one(USUAL)
        if dice < 0.65 and depth:
            branches = [
                "".join(self._part(depth - 1) for _ in range(self._chance.randint(1, 2)))
                for _ in range(self.one([1, 1, 2]))
            ]
            return f"{self.one(OPENINGS, RARE_OPENINGS)}{'|'.join(branches)}){self.one(COUNTS, RARE_COUNTS)}"
        if dice < 0.8:
            parts = [self.one(CLASS_PARTS, RARE_CLASS_PARTS) for _ in range(self._chance.randint(1, 4))]
            atom = f"[{self.one(['', '', '^'])}{''.join(parts)}]"
        else:
            atom = self.one(LETTERS) if dice < 0.9 else self.one(ESCAPES, RARE_ESCAPES)
        return atom + self.one(COUNTS, RARE_COUNTS)

    def replacement(self) -> str:
        return "".join(self.one(REFERENCES, RARE_REFERENCES) for _ in range(self._chance.randint(0, 3)))

    def mapping_rules(self) -> str:
        """A value of ssl.principal.mapping.rules."""
        separator = self.one([",", ",", ", ", " , ", ",,", ",\n"], [" ", "\n", ", ,"])
        rules = [self._mapping_rule() for _ in range(self._chance.randint(1, 3))]
        return separator.join(rules) + self.one(["", "", ",", " ", ",DEFAULT"])

    def _mapping_rule(self) -> str:
        rare = ["DEFAULT", "", " ", "DEFAULTS", "default", "RULE:a/b", "RULE:", "nonsense", "RULE://", "RULE:a//", "\t"]
        if self.one([False], [True]):
            return self.one(rare)
        return f"RULE:{self.pattern()}/{self.replacement()}/{self.one(['', '', 'L', 'U'], ['l', 'LU', 'x', '/', 'g'])}"

    def name(self) -> str:
        """A distinguished name, or another text."""
        if self._chance.random() < 0.4:
            return self.text(NAME_PARTS, 8)
        name = self.one(["a", "Alice", "müller", "a\\,b", "host-1.example", "", "ab"])
        return (
            f"CN={name},OU={self.one(['a', 'Users', 'b+c', 'üb'])}{self.one(['', ',O=Org,C=DE', ',OU=x'], [chr(10)])}"
        )

    def distinguished_name(self) -> bytes:
        """A name in DER: parts of one or more attributes, of known and of other kinds, whose values are of any kind."""
        return _der(0x30, *(self._relative_name() for _ in range(self._chance.randint(0, 4))))

    def _relative_name(self) -> bytes:
        return _der(0x31, *(self._attribute() for _ in range(self.one([1], [2]))))

    def _attribute(self) -> bytes:
        tag = self.one([0x0C, 0x13, 0x16, 0x0C], [0x14, 0x1B, 0x1E, 0x12, 0x1C, 0x03, 0x04])
        text = self.text([*NAME_PARTS, *'\\+<>;"#\0\t\x7f', "\U0001f600", " "], 5)
        encoding = {0x1E: "utf-16-be", 0x1C: "utf-32-be"}.get(tag) or self.one(["utf-8"], ["latin-1"])
        value = _der(tag, *([b"\0"] if tag == 0x03 else []), text.encode(encoding, "replace"))
        return _der(0x30, bytes.fromhex(self.one(OIDS, RARE_OIDS)), value)

    def kerberos_rules(self) -> list[str]:
        """A value of sasl.kerberos.principal.to.local.rules."""
        return [self._kerberos_rule() for _ in range(self._chance.randint(1, 3))]

    def _kerberos_rule(self) -> str:
        if self._chance.random() < 0.15:
            return self.one(["DEFAULT"], ["", "RULE", "RULE:[1]", "DEFAULT ", "default"])
        form = self.one(["$1", "$1@$0", "x$1", "$1-$1"], ["$2", "$0", "@", "-$2$1", "$", "$3", "", "$01"])
        match = self.one(["", "(.*)", "(.*@OTHER)", "(a.*)", f"({self.pattern()})"])
        old = self.one(["@.*", "a", "(.)b", "-", "", self.pattern(), self.pattern()])
        change = self.one(["", f"s/{old}/{self.replacement()}/{self.one(['', 'g'])}"])
        end = self.one(["", "", "/L", "/U", "L", "U", "/"], ["/X", " ", "//L"])
        return f"RULE:[{self.one('12', ['', '0', '3', '١', '01'])}:{form}]{match}{change}{end}"

    def principal(self) -> str:
        """The name of a principal of Kerberos."""
        parts = [self.text("abAB-.üß1", 4) for _ in range(self.one([1, 1, 2, 2], [3]))]
        return "/".join(parts) + self.one(["@OURS", "@OURS", "@OTHER"], ["", "@", "@a@b", "\n@OURS"])


def drawn(make: Callable[[Drawn], T]) -> st.SearchStrategy[T]:
    return st.integers(0, 2**63).map(lambda seed: make(Drawn(seed)))
