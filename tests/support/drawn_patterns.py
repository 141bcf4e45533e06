"""Draws regular expressions of RE2's syntax, and texts for them. One in a few has a mistake."""

from __future__ import annotations

from random import Random

LETTERS = [*"aabbcABk019.-_", "\n", "é", "\u212a", "ß", "\U0001f600"]
TEXT_LETTERS = [*"aaabbbcABkK019.-_s \n]^*", "é", "É", "\u212a", "\u017f", "ß", "\U0001f600", "\u0301"]
ATOMS = [
    *(
        ".",
        ".",
        r"\d",
        r"\D",
        r"\w",
        r"\W",
        r"\s",
        r"\S",
        r"\.",
        r"\-",
        r"\_",
        r"\n",
        r"\t",
        r"\x41",
        r"\x{e9}",
        r"\101",
    ),
    *(
        r"\pL",
        r"\p{Lu}",
        r"\P{Nd}",
        r"\p{^N}",
        r"\p{Any}",
        r"\pM",
        r"\p{Nd}",
        r"\Qa.b\E",
        r"\Q.\E",
        "^",
        "$",
        r"\A",
        r"\z",
    ),
    *(r"\b", r"\B", "()", "(?:)", "(?i)", "(?s)", "(?m)", "(?-i)"),
]
RARE_ATOMS = [
    *(
        r"\Z",
        r"\1",
        r"\8",
        r"\0",
        r"\07",
        r"\C",
        r"\E",
        r"\Q",
        r"\h",
        r"\é",
        r"\p{Foo}",
        r"\p{",
        r"\x",
        r"\x{}",
        r"\xg",
        "\\",
    ),
    *(
        "*",
        "+",
        "?",
        "{",
        "{2}",
        "}",
        "]",
        ")",
        "[",
        "(",
        "(?",
        "(?P<a>b)",
        "(?<b>a)",
        "(?=a)",
        "(?!a)",
        "(?<=a)",
        "(?>a)",
    ),
    *(
        "(?x)",
        "(?U)a*",
        "(?i-s)",
        "(?-)",
        "[]",
        "[^]",
        "[b-a]",
        "[[:foo:]]",
        "[a-\\d]",
        "a{1001}",
        "a{2,1}",
        "a{01}",
        "a{,2}",
    ),
]
CLASS_PARTS = [
    *(
        "a",
        "b",
        "c",
        "k",
        "K",
        "-",
        ".",
        "^",
        "0-9",
        "a-c",
        "A-Z",
        "a-z",
        "é",
        "\n",
        r"\n",
        r"\d",
        r"\W",
        r"\s",
        r"\-",
        r"\]",
    ),
    *(
        "[:alpha:]",
        "[:^digit:]",
        "[:punct:]",
        "[:space:]",
        r"\pL",
        r"\P{Lu}",
        "s",
        "[",
        r"\x{61}-\x{63}",
        r"\x{0}-\x{10ffff}",
    ),
]
COUNTS = ["", "", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,3}?", "{1,}", "{0}", "{0,1}"]
RARE_COUNTS = ["**", "*+", "{2}{2}", "{12}", "{1001}", "{", "{a}", "???"]
OPENINGS = ["(", "(", "(?:", "(?i:", "(?s:", "(?m:", "(?-i:", "(?is-m:"]
NAMES = "abcd"


class DrawnPattern:
    """`text` is the expression, `texts` what it may match."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.text = self._branches(3)
        self.texts = [
            "",
            *("".join(self._random.choices(TEXT_LETTERS, k=self._random.randrange(1, 7))) for _ in range(12)),
        ]
        plain = [letter for letter in self.text if letter not in "()[]{}*+?|\\^$"]
        self.texts += ["".join(plain[start : start + 3]) for start in range(min(len(plain), 4))]

    def _branches(self, depth: int) -> str:
        count = self._random.choice((1, 1, 1, 2, 3))
        return "|".join(self._sequence(depth) for _ in range(count))

    def _sequence(self, depth: int) -> str:
        return "".join(self._item(depth) for _ in range(self._random.choice((0, 1, 1, 2, 2, 3, 4))))

    def _item(self, depth: int) -> str:
        counts = RARE_COUNTS if self._random.random() < 0.01 else COUNTS
        return self._atom(depth) + self._random.choice(counts)

    def _atom(self, depth: int) -> str:
        random = self._random
        kind = random.random()
        if kind < 0.02:
            return random.choice(RARE_ATOMS)
        if kind < 0.3 and depth:
            opening = random.choice(OPENINGS)
            if random.random() < 0.1:
                opening = f"(?{random.choice(['P', ''])}<{random.choice(NAMES)}{random.randrange(9)}>"
            return f"{opening}{self._branches(depth - 1)})"
        if kind < 0.45:
            parts = "".join(random.choices(CLASS_PARTS, k=random.randrange(1, 4)))
            return f"[{random.choice(['', '', '^'])}{parts}]"
        return random.choice(ATOMS if kind < 0.7 else LETTERS)
