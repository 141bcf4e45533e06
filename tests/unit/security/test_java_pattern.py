"""Java's regular expressions. What Java itself says of them: `tests/compatibility/interop/test_name_rules.py`."""

from __future__ import annotations

import pytest

from kafkalite.security.java_matcher import STEPS_MAX
from kafkalite.security.java_pattern import JavaPattern


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (r"\w+", "müller", False),
        (r"\d", "١", False),
        (r"\s", "\u00a0", False),
        (r".", "\u2028", False),
        (r"(?s).", "\u2028", True),
        (r"a$", "a\n", False),
        (r"a$\r\n", "a\r\n", True),
        (r"a\r$\n", "a\r\n", False),
        (r"(?i)ü", "Ü", False),
        (r"(?i:a)b", "Ab", True),
        (r"a(?i)b|c", "C", True),
        (r"a++a", "aa", False),
        (r"(?:ab|a)(?:bc)?", "abc", True),
        (r"(?>ab|a)(?:bc)", "abc", False),
        (r"(?!b)[a-c]", "a", True),
        (r"[]a]+", "]a", True),
        (r"[\d-z]+", "1-z", True),
        (r"[^a-c]", "d", True),
        (r"\x{fc}\u00fc\xfc", "üüü", True),
        (r"\p{Punct}\P{Alpha}\pL", "!1ü", True),
        (r"\Qa.b\E.", "a.bc", True),
        (r"a{2,3}", "aaaa", False),
    ],
)
def test_whether_the_whole_text_matches(pattern: str, text: str, matches: bool) -> None:
    assert JavaPattern(pattern).matches(text) is matches


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (r"a\b", r"has \b, which kafkalite does not know, since it is one thing in Java 18 and another in Java 19"),
        (r"(a)\1", r"has \1, which kafkalite does not know"),
        (r"[a-c&&b]", r"has a && within brackets, which kafkalite does not know; as a letter it is \&"),
        (r"[[a]]", r"has a [ within brackets, which kafkalite does not know; as a letter it is \["),
        (r"(?<=a)b", "has (?<=, which kafkalite does not know"),
        (r"(?x)a", "has (?x, which kafkalite does not know"),
        (r"(a?)*", "has a group that can be empty and is repeated, which kafkalite does not know"),
        (r"(?=(a))a", "has a group that is kept, inside of a lookahead or an atomic group, which"),
        (r"(a)*+", "has a possessive repetition with a group in it, which kafkalite does not know"),
        (r"a{2}{2}", r"has a { that repeats nothing, which kafkalite does not know; as a letter it is \{"),
        (r"\p{IsGreek}", r"has \p{IsGreek}, which kafkalite does not know"),
        (r"(?i)\p{Lu}", r"has \p{Lu} behind (?i), which kafkalite does not know, since it changed in Java 15"),
        (r"\Qab\E+", "has a quotation that is repeated, which kafkalite does not know"),
        ("(" * 101 + ")" * 101, "has groups that are nested more than 100 times, which kafkalite does not know"),
        ("a{9999}", "is too large when what it repeats is written out"),
        ("a" * 10_001, "is longer than 10000 letters"),
        (r"(a", "has a ( without a )"),
        (r"a)", "has a ) that closes nothing"),
        (r"[a", "has a [ without a ]"),
        (r"[b-a]", "has a range that begins with 'b' and ends with 'a'"),
        (r"*a", "has a * that repeats nothing"),
        (r"a**", "has a * that repeats nothing"),
        (r"a{2,1}", "has a repetition {2,1}, of which the end is below the start"),
        ("\\", "has a backslash at its end"),
    ],
)
def test_what_makes_no_sense_or_is_not_known_is_named(pattern: str, words: str) -> None:
    with pytest.raises(ValueError) as refusal:
        JavaPattern(pattern)
    assert words in str(refusal.value)


@pytest.mark.parametrize("pattern", ["(a+)+b", "(?:a|a)+b", "(?:a|ab?|a)+c", "(?:.*a){12}b"])
def test_no_pattern_takes_exponential_time(pattern: str) -> None:
    """`re` would need some 2^60 steps for these."""
    assert not JavaPattern(pattern).matches("a" * 400)


def test_a_text_that_takes_too_many_steps_is_refused() -> None:
    pattern = JavaPattern("(?:.*a){12}b")
    with pytest.raises(ValueError, match="takes too long for the name 'aaa"):
        pattern.matches("a" * (STEPS_MAX // 24))


def test_every_match_is_replaced_or_the_first() -> None:
    pattern = JavaPattern("(?<x>a)|(b)")
    assert pattern.replace("abab", r"${x}-$2$0\$", all_of_them=True) == "a-a$-bb$a-a$-bb$"
    assert pattern.replace("abab", "$1$12", all_of_them=False) == "aa2bab"
    assert pattern.replace("x", "$9", all_of_them=True) == "x"  # read when there is a match, as in Java
    for wrong in ("$9", "$", "${y}", "${x", "\\", "$x"):
        with pytest.raises(ValueError):
            pattern.replace("a", wrong, all_of_them=True)
