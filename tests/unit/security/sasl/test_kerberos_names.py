"""Principals of Kerberos as names of users. Kafka's own answers: `tests/compatibility/interop/test_kerberos.py`."""

from __future__ import annotations

import pytest

from kafkalite.security.sasl.kerberos_names import short_names

REALM = "EXAMPLE.ORG"


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
        (["DEFAULT"], "a/b/c@EXAMPLE.ORG", "makes no sense"),
        (["DEFAULT"], "a@b@EXAMPLE.ORG", "makes no sense"),
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
        ("RULE:[:$1]", "is no rule"),
        ("RULE:[1:$1](()", "is no rule"),
        ("RULE:[1:$2]", r"\$2 is more than the 1 parts"),
    ],
)
def test_a_rule_that_makes_no_sense_is_named(rule: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        short_names([rule], REALM)
