"""Tokens of OAUTHBEARER, judged beside Kafka's own validators: the same principal and end, or refused by both.

What is refused here alone stands in docs/differences.md, with its reason; nothing is taken that Kafka refuses.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from kafkalite.security.sasl.jwt import Keys
from tests.compatibility.interop.java_verdicts import token_verdicts
from tests.support.drawn_tokens import NOW_MS, DrawnToken, Keyring
from tests.support.verdicts import in_javas_alphabet, token_verdict, tokens_agree

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
COUNT = 6_000


def test_the_same_tokens_pass(tmp_path: Path) -> None:
    keyring = Keyring()
    keys = Keys(keyring.jwks)
    jwks = tmp_path / "jwks.json"
    jwks.write_text(keyring.jwks)
    cases = [DrawnToken(keyring, seed).case() for seed in range(COUNT)]
    java = token_verdicts(jwks, NOW_MS, list(map(in_javas_alphabet, cases)))
    counts: Counter[str] = Counter()
    wrong = []
    for case, theirs in zip(cases, java, strict=True):
        ours, why = token_verdict(keys, case, NOW_MS)
        agreement = tokens_agree(case.kind, ours, why, theirs)
        if agreement is None:
            wrong.append((case, theirs, ours, why))
        else:
            counts[agreement] += 1
    assert not wrong, wrong[:10]
    assert min(counts["signed, ="], counts["unsecured, ="]) > COUNT / 10 and counts["stricter"] < COUNT / 10, counts
