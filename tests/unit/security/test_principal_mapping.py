"""Rules for the names of certificates; what Kafka makes of them is told by its own class (tests/golden/security)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.security.principal_mapping import map_name, parse_mapping_rules
from tests.support.name_rules import Drawn
from tests.support.verdicts import golden, name_verdict, names_agree

DN = "CN=Alice,OU=ServiceUsers,O=Org,C=DE"
CASES = [case for case in golden("name_rules.json") if case[0] == "ssl"]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_the_user_is_that_of_kafka(case: list[str]) -> None:
    kind, theirs, name, *rules = case
    ours, why = name_verdict(kind, name, rules)
    assert names_agree(ours, why, theirs), (ours, why)


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        ("DEFAULT", DN, DN),
        ("", DN, None),  # no rule, so nobody
        (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,DEFAULT", DN, "alice"),
        (r"RULE:CN=(.*)/$1-/", "CN=a", "a-"),
        (r"RULE:(.*)/$1-/", "a", "a--"),  # as in Java: the name matches, and so does nothing behind it
        (r"RULE:CN=(\w+)/$1/,DEFAULT", "CN=müller", "CN=müller"),
        (r"RULE:CN=([^\W]+)/$1/,DEFAULT", "CN=müller", "CN=müller"),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_counts(rules: str, name: str, user: str | None) -> None:
    assert map_name(parse_mapping_rules(rules), name) == user


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("DEFAULT RULE:a/b/", "'DEFAULT RULE:a/b/' is neither"),
        ("RULE:a/b,RULE:c/d/", "'RULE:a/b,RULE:c/d/' is neither"),
        ("RULE:(/b/", "has a rule 'RULE:(/b/' that has a ( without a )"),
        ("nonsense", "must be a list of DEFAULT and RULE:pattern/replacement/"),
        ("RULE:a/b/X", "is neither"),
        (r"DEFAULT,RULE:(a)\1/b/", r"that has \1, which kafkalite does not know"),
    ],
)
def test_a_mistake_is_named(text: str, words: str) -> None:
    with pytest.raises(ValueError) as refusal:
        parse_mapping_rules(text)
    assert words in str(refusal.value)


def test_a_rule_that_cannot_make_a_user_makes_nobody_of_those_it_matches() -> None:
    rules = parse_mapping_rules("RULE:CN=Alice/$1/,DEFAULT")
    assert map_name(rules, DN) == DN
    with pytest.raises(ValueError, match=r"ssl.principal.mapping.rules: 'RULE:CN=Alice/\$1/' has \$1, and its pattern"):
        map_name(rules, "CN=Alice")


@given(st.integers(0, 2**63).map(Drawn))
def test_drawn_rules_make_a_user_or_a_value_error(drawn: Drawn) -> None:
    verdict, _ = name_verdict("ssl", drawn.name(), [drawn.mapping_rules()])
    assert verdict in ("config", "nobody") or verdict.startswith("=")
