"""Rules that make users of certificates and Kerberos principals; Kafka's own verdicts are in tests/golden/security."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.security.principal_rules import map_name, parse_mapping_rules, short_names
from tests.support.name_rules import Drawn
from tests.support.verdicts import golden, name_verdict, names_agree

DN = "CN=Alice,OU=ServiceUsers,O=Org,C=DE"
SSL_CASES = [case for case in golden("name_rules.json") if case[0] == "ssl"]


@pytest.mark.parametrize("case", SSL_CASES, ids=range(len(SSL_CASES)))
def test_the_user_of_a_certificate_is_that_of_kafka(case: list[str]) -> None:
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
def test_drawn_mapping_rules_make_a_user_or_a_value_error(drawn: Drawn) -> None:
    verdict, _ = name_verdict("ssl", drawn.name(), [drawn.mapping_rules()])
    assert verdict in ("config", "nobody") or verdict.startswith("=")


REALM = "EXAMPLE.ORG"
KERBEROS_CASES = [case for case in golden("name_rules.json") if case[0] == "kerberos"]


@pytest.mark.parametrize("case", KERBEROS_CASES, ids=range(len(KERBEROS_CASES)))
def test_the_user_of_a_kerberos_principal_is_that_of_kafka(case: list[str]) -> None:
    kind, theirs, name, *rules = case
    ours, why = name_verdict(kind, name, rules)
    assert names_agree(ours, why, theirs), (ours, why)


@given(st.integers(0, 2**63).map(Drawn))
def test_drawn_kerberos_rules_make_a_user_or_a_value_error(drawn: Drawn) -> None:
    verdict, _ = name_verdict("kerberos", drawn.principal(), drawn.kerberos_rules())
    assert verdict in ("config", "nobody") or verdict.startswith("=")


@pytest.mark.parametrize(
    ("rules", "principal", "name"),
    [
        (["DEFAULT"], "alice@EXAMPLE.ORG", "alice"),
        (["DEFAULT"], "kafka/host.example.org@EXAMPLE.ORG", "kafka"),
        (["DEFAULT"], "alice", "alice"),  # without a realm it is taken as it is
        (["RULE:[1:$1@$0](.*@OTHER)s/@.*//", "DEFAULT"], "bob@OTHER", "bob"),
        (["RULE:[1:$1@$0](.*@OTHER)s/@.*//", "DEFAULT"], "alice@EXAMPLE.ORG", "alice"),
        (["RULE:[2:$1-$2](app-.*)s/-/_/g"], "app/one-two@ANY", "app_one_two"),
        (["RULE:[2:$1-$2](app-.*)s/-/_/"], "app/one-two@ANY", "app_one-two"),
        (["RULE:[1:$1]/U"], "alice@ANY", "ALICE"),
        (["RULE:[1:$1](A.*)/L"], "ALICE@ANY", "alice"),
        (["RULE:[1:$1](App\\..*)s/App\\.(.*)/$1-service/"], "App.orders@ANY", "orders-service"),
        (["RULE:[2:$2$1]"], "one/two@ANY", "twoone"),
    ],
)
def test_the_first_rule_that_applies_names_the_user(rules: list[str], principal: str, name: str) -> None:
    assert short_names(rules, REALM)(principal) == name


@pytest.mark.parametrize(
    ("rules", "principal", "words"),
    [
        (["DEFAULT"], "alice@OTHER", "no rule of sasl.kerberos.principal.to.local.rules applies"),
        (["RULE:[2:$1]"], "alice@EXAMPLE.ORG", "no rule"),
        (["RULE:[1:$1](b.*)"], "alice@EXAMPLE.ORG", "no rule"),
        (["RULE:[1:$1@$0]"], "alice@EXAMPLE.ORG", "with an @ or a / in it"),
        (["RULE:[1:$2]"], "alice@EXAMPLE.ORG", r"'RULE:\[1:\$2\]' has \$2, and the principal has 1 parts"),
        (["RULE:[1:$1](\\w+)"], "müller@EXAMPLE.ORG", "no rule"),
        (["DEFAULT"], "a/b/c@EXAMPLE.ORG", "is invalid"),
        (["DEFAULT"], "a@b@EXAMPLE.ORG", "is invalid"),
    ],
)
def test_whoever_has_no_name_is_nobody(rules: list[str], principal: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        short_names(rules, REALM)(principal)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("RULE", "neither DEFAULT nor RULE"),
        ("DEFAULTS", "neither DEFAULT nor RULE"),
        (" DEFAULT", "neither DEFAULT nor RULE"),
        ("RULE:[١:$1]", "neither DEFAULT nor RULE"),
        ("RULE:[:$1]", "has no number of parts"),
        ("RULE:[1:$1](()", r"which has a \( without a \)"),
        ("RULE:[1:$1](a\\b)", r"which has \\b, which kafkalite does not know"),
    ],
)
def test_a_rule_that_makes_no_sense_is_named(rule: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        short_names([rule], REALM)
