"""Rules that make users of names, beside Kafka's own classes: the same user, or nobody, for all that is drawn."""

from __future__ import annotations

from collections import Counter

import pytest

from kafkalite.security.principal import subject_of
from tests.compatibility.interop.java_verdicts import distinguished_names, name_verdicts
from tests.support.name_rules import Drawn
from tests.support.verdicts import name_verdict, names_agree

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
COUNT = 4_000


@pytest.mark.parametrize("kind", ["ssl", "kerberos"])
def test_the_same_user_or_nobody(kind: str) -> None:
    cases = [
        (one.name(), [one.mapping_rules()]) if kind == "ssl" else (one.principal(), one.kerberos_rules())
        for one in map(Drawn, range(COUNT))
    ]
    java = name_verdicts(kind, [(name, *rules) for name, rules in cases])
    counts: Counter[str] = Counter()
    wrong = []
    for (name, rules), theirs in zip(cases, java, strict=True):
        ours, why = name_verdict(kind, name, rules)
        agreement = names_agree(ours, why, theirs)
        if agreement is None:
            wrong.append((name, rules, theirs, ours, why))
        else:
            counts[agreement] += 1
    assert not wrong, wrong[:20]
    assert counts["a user"] > COUNT / 10 and counts["refused at the start"] < COUNT / 5, counts


def test_the_same_text_of_a_distinguished_name() -> None:
    """In a certificate of five fields, of which the subject is the last one that counts."""
    names = [one.distinguished_name() for one in map(Drawn, range(COUNT))]
    wrong = []
    for name, theirs in zip(names, distinguished_names(names), strict=True):
        fields = b"\x05\0" * 4 + name
        size = len(fields).to_bytes(2, "big")
        whole = b"\x30\x82" + (len(fields) + 4).to_bytes(2, "big") + b"\x30\x82" + size + fields
        try:
            ours = f"={subject_of(whole)}"
        except ValueError:
            ours = "nobody"
        if ours != theirs:
            wrong.append((name.hex(), theirs, ours))
    assert not wrong, (len(wrong), wrong[:20])
