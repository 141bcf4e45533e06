"""Rules for the names of certificates; the examples are those of KIP-371."""

from __future__ import annotations

import pytest

from kafkalite.security.principal_mapping import map_name, parse_mapping_rules

DN = "CN=Alice,OU=ServiceUsers,O=Org,C=DE"


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        ("DEFAULT", DN, DN),
        ("", DN, DN),
        (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", DN, "Alice"),
        (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,DEFAULT", DN, "alice"),
        (r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/U", DN, "ALICE@SERVICEUSERS"),
        (r"RULE:^CN=(.*?)$/$1/ , DEFAULT", "OU=none", "OU=none"),
        (r"RULE:CN=Alice/$1/,DEFAULT", DN, DN),
        (r"RULE:CN=(Alice).*/a$1$7\$/", DN, "aAlice$7$"),
        (r"RULE:^.*?CN=(a\/b).*$/$1/", "CN=a/b", "a/b"),
        (r"RULE:CN=x/y/", DN, None),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_counts(rules: str, name: str, user: str | None) -> None:
    assert map_name(parse_mapping_rules(rules), name) == user


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("DEFAULT RULE:a/b/", "'DEFAULT RULE:a/b/' is not"),
        ("RULE:a/b", "'RULE:a/b' is not"),
        ("RULE:(/b/", "a pattern that makes no sense"),
        ("nonsense", "must be a list of DEFAULT and RULE:pattern/replacement/"),
        ("RULE:a/b/X", "is not"),
    ],
)
def test_a_mistake_is_named(text: str, words: str) -> None:
    with pytest.raises(ValueError) as refusal:
        parse_mapping_rules(text)
    assert words in str(refusal.value)
