"""Tokens: what is signed by a known key, for us, and now, passes; nothing else does, whatever it says of itself."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.security.sasl.jwt import Keys, TokenRefused, TokenRules, verify_signed, verify_unsecured
from tests.support.drawn_tokens import NOW_MS as GOLDEN_NOW_MS
from tests.support.drawn_tokens import DrawnToken, Keyring, TokenCase
from tests.support.tokens import TokenAuthority, part, unsecured
from tests.support.verdicts import GOLDEN, golden, token_verdict, tokens_agree

NOW_S = 1_700_000_000
NOW_MS = NOW_S * 1000.0
AUTHORITY = TokenAuthority()
KEYS = Keys(AUTHORITY.jwks)
RULES = TokenRules(issuer="https://issuer", audience=("kafka", "other"))
GOOD: dict[str, Any] = {
    "sub": "alice",
    "iat": NOW_S - 10,
    "exp": NOW_S + 60,
    "iss": "https://issuer",
    "aud": "kafka",
}


CASES = [(case[0], TokenCase(case[1], tuple(case[2]), case[3])) for case in golden("tokens.json")]
GOLDEN_KEYS = Keys((GOLDEN / "jwks.json").read_text())
KEYRING = Keyring()


@pytest.mark.parametrize(("theirs", "case"), CASES, ids=range(len(CASES)))
def test_a_token_passes_as_at_kafka(theirs: str, case: TokenCase) -> None:
    ours, why = token_verdict(GOLDEN_KEYS, case, GOLDEN_NOW_MS)
    assert tokens_agree(case.kind, ours, why, theirs), (ours, why)


@given(st.integers(0, 2**63).map(lambda seed: DrawnToken(KEYRING, seed).case()))
def test_a_drawn_token_passes_or_is_refused(case: TokenCase) -> None:
    verdict, _ = token_verdict(Keys(KEYRING.jwks), case, GOLDEN_NOW_MS)
    assert verdict == "refused" or verdict.startswith("=")


def verify(token: str, rules: TokenRules = RULES) -> str:
    return verify_signed(token, KEYS, rules, NOW_MS).name


@pytest.mark.parametrize(
    ("kid", "algorithm"), [("first", "RS256"), ("first", "RS512"), ("first", "PS384"), ("curve", "ES256")]
)
def test_a_signed_token_passes(kid: str, algorithm: str) -> None:
    token = AUTHORITY.sign(kid, algorithm, **GOOD)
    assert verify(token) == "alice"
    assert verify_signed(token, KEYS, RULES, NOW_MS).expires_ms == (NOW_S + 60) * 1000


@pytest.mark.parametrize(
    "wrong",
    [
        {"aud": "somebody"},
        {"aud": None},
        {"iss": "https://other"},
        {"iss": None},
        {"exp": NOW_S - 31},
        {"exp": None},
        {"exp": "soon"},
        {"exp": True},
        {"iat": None},
        {"iat": -1},
        {"nbf": NOW_S + 31},
        {"nbf": "now"},
        {"nbf": NOW_S + 20, "exp": NOW_S + 10},
        {"iat": NOW_S + 20, "exp": NOW_S + 10},
        {"exp": NOW_S - 29.5},
        {"exp": 2**63},
        {"exp": 2**60},
        {"exp": 10**400},
        {"exp": 1e300},
        {"aud": 5},
        {"aud": ["kafka", 5]},
        {"aud": {"kafka": 1}},
        {"aud": []},
        {"iss": ["https://issuer"]},
        {"iss": 5},
        {"jti": 5},
        {"scope": ""},
        {"scope": ["read", " read"]},
        {"scope": ["read", 5]},
        {"sub": None},
        {"sub": ""},
        {"sub": " "},
        {"sub": ["alice"]},
        {"sub": "a" * 10_001},
        {"sub": "\ud800"},
    ],
)
def test_claims_that_do_not_fit(wrong: dict[str, Any]) -> None:
    claims = {name: value for name, value in (GOOD | wrong).items() if value is not None}
    with pytest.raises(TokenRefused):
        verify(signed(claims))


@pytest.mark.parametrize("exp", [10**15, 10**18, 2**63, 10**400, 1e300])
def test_the_end_of_the_world_is_near_enough_for_64_bits(exp: float) -> None:
    """Clients count a session's milliseconds in 64 bits, and in nanoseconds."""
    found = [verify_unsecured(unsecured(**GOOD | {"exp": exp}), RULES, NOW_MS)]
    if exp == 10**15:
        found.append(verify_signed(AUTHORITY.sign(**GOOD | {"exp": exp}), KEYS, RULES, NOW_MS))
    for each in found:
        assert 3e12 < each.expires_ms - NOW_MS < 2**63 / 1e6


@pytest.mark.parametrize(
    "claims", [{"aud": "kafka"}, {"aud": ["kafka"]}, {"aud": []}, {"aud": 5}, {"iss": 5}, {"iss": []}]
)
def test_where_no_audience_is_expected_none_may_be_named_and_an_issuer_is_text(claims: dict[str, Any]) -> None:
    """The claims of tokens for other services that trust the same authority."""
    open_rules = TokenRules()
    good = {name: value for name, value in GOOD.items() if name not in ("aud", "iss")}
    assert verify(AUTHORITY.sign(**good), open_rules) == "alice"
    assert verify(AUTHORITY.sign(**good | {"iss": "https://any"}), open_rules) == "alice"
    with pytest.raises(TokenRefused, match=r"its (aud|iss) is"):
        verify(signed(good | claims), open_rules)


def test_a_token_may_be_issued_in_the_future_as_at_kafka() -> None:
    assert verify(AUTHORITY.sign(**GOOD | {"iat": NOW_S + 50})) == "alice"


def test_a_name_is_stripped_as_java_does_it() -> None:
    assert verify(AUTHORITY.sign(**GOOD | {"sub": " \talice\u00a0 "})) == "alice\u00a0"
    assert verify_unsecured(unsecured(**GOOD | {"sub": " alice "}), RULES, NOW_MS).name == " alice "


@pytest.mark.parametrize("more", [', "sub": "admin"', ', "a": {"b": 1, "b": 2}', ', "n": NaN', ', "n": -Infinity'])
def test_claims_that_are_no_json_or_have_a_name_twice(more: str) -> None:
    with pytest.raises(TokenRefused, match="it is no JWT"):
        verify(signed(json.dumps(GOOD)[:-1] + more + "}"))
    with pytest.raises(TokenRefused, match="it is no JWT"):
        verify(signed(json.dumps(GOOD), "utf-16"))


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({"cty": "JWT"}, "in another form"),
        ({"b64": False}, "in another form"),
        ({"cty": 5}, "its cty is no text"),
        ({"kid": 5}, "its kid is no text"),
        ({"x5t": 5}, "its x5t is no text"),
    ],
)
def test_headers_that_mean_something_else(header: dict[str, Any], words: str) -> None:
    with pytest.raises(TokenRefused, match=words):
        verify(signed(json.dumps(GOOD), header=header))


@pytest.mark.parametrize("more", [{"key_ops": ["sign"]}, {"use": "enc"}, {"kid": 5}, {"alg": 5}])
def test_a_key_that_is_not_for_signatures_is_none(more: dict[str, Any]) -> None:
    told = json.loads(AUTHORITY.jwks)
    told["keys"][0] |= more
    with pytest.raises(TokenRefused, match="no key"):
        verify_signed(AUTHORITY.sign(**GOOD), Keys(json.dumps(told)), RULES, NOW_MS)


def test_a_token_that_names_a_certificate_is_for_a_key_with_that() -> None:
    told = json.loads(AUTHORITY.jwks)
    told["keys"][0] |= {"x5c": ["AAAA"]}
    keys = Keys(json.dumps(told))
    right, wrong = ({"x5t": part_of(hashlib.sha1(bytes(3)).digest())}, {"x5t": "AAAA"})
    assert verify_signed(signed(json.dumps(GOOD), header=right), keys, RULES, NOW_MS).name == "alice"
    with pytest.raises(TokenRefused, match="no key"):
        verify_signed(signed(json.dumps(GOOD), header=wrong), keys, RULES, NOW_MS)


def test_without_a_kid_the_first_key_of_its_kind_counts() -> None:
    both = TokenAuthority()
    both.add_rsa("second")
    keys = Keys(both.jwks)
    claims = json.dumps(GOOD)
    assert verify_signed(signed(claims, header={"kid": None}, authority=both), keys, RULES, NOW_MS).name == "alice"
    with pytest.raises(TokenRefused, match="signature"):
        verify_signed(signed(claims, header={"kid": None}, authority=both, kid="second"), keys, RULES, NOW_MS)


def signed(
    claims: dict[str, Any] | str,
    encoding: str = "utf-8",
    *,
    header: dict[str, Any] | None = None,
    authority: TokenAuthority = AUTHORITY,
    kid: str = "first",
) -> str:
    """A token whose claims and header may be any."""
    text = claims if isinstance(claims, str) else json.dumps(claims)
    head = {"alg": "RS256", "kid": kid} | (header or {})
    content = (
        f"{part({name: value for name, value in head.items() if value is not None})}.{part_of(text.encode(encoding))}"
    )
    return f"{content}.{part_of(authority.keys[kid].sign(content.encode(), PKCS1v15(), SHA256()))}"


def part_of(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def test_headers_that_ask_for_more_are_refused() -> None:
    for more in ({"crit": ["exp"]}, {"crit": []}, {"crit": ["b64"], "b64": False}, {"crit": "x", "x": 1}):
        said = f"{part({'alg': 'RS256', 'kid': 'first', **more})}.{part(GOOD)}.AAAA"
        with pytest.raises(TokenRefused, match="crit"):
            verify(said)


def test_a_key_is_used_for_its_own_algorithm_and_weak_ones_for_none() -> None:
    told = json.loads(AUTHORITY.jwks)
    for one in told["keys"]:
        one["alg"] = "RS256" if one["kty"] == "RSA" else "ES256"
    keys = Keys(json.dumps(told))
    assert verify_signed(AUTHORITY.sign(**GOOD), keys, RULES, NOW_MS).name == "alice"
    with pytest.raises(TokenRefused, match="algorithm"):
        verify_signed(AUTHORITY.sign("first", "PS256", **GOOD), keys, RULES, NOW_MS)
    weak = TokenAuthority()
    weak.keys = {"weak": rsa.generate_private_key(public_exponent=65537, key_size=1024)}
    with pytest.raises(ValueError, match="2048 bits or more"):
        Keys(weak.jwks)


@pytest.mark.parametrize("depth", [100, 900, 950, 980, 1_000, 100_000])
def test_json_however_deep_is_refused_in_good_order(depth: int) -> None:
    deep = '{"alg":"RS256","kid":"first","a":' + "[" * depth + "]" * depth + "}"
    with pytest.raises(TokenRefused):
        verify(f"{urlsafe_b64encode(deep.encode()).decode().rstrip('=')}.{part(GOOD)}.AAAA")


def test_clocks_may_differ_a_little() -> None:
    assert verify(AUTHORITY.sign(**GOOD | {"exp": NOW_S - 29, "iat": NOW_S - 60})) == "alice"
    assert verify(AUTHORITY.sign(**GOOD | {"nbf": NOW_S + 30})) == "alice"


def test_without_a_signature_nothing_passes() -> None:
    with pytest.raises(TokenRefused, match="no signed JWT"):
        verify(unsecured(**GOOD))
    with pytest.raises(TokenRefused, match="algorithm is 'none'"):
        verify(f"{unsecured(**GOOD)}AAAA")
    head, claims, _ = AUTHORITY.sign(**GOOD).split(".")
    for signature in ("", "AAAA"):
        with pytest.raises(TokenRefused):
            verify(f"{head}.{claims}.{signature}")
    for other in ("nOnE", "HS256", "", None, 5, ["RS256"]):
        with pytest.raises(TokenRefused):
            verify(f"{part({'alg': other, 'kid': 'first'})}.{claims}.")


def test_the_public_key_is_no_secret_to_sign_with() -> None:
    signed = f"{part({'alg': 'HS256', 'kid': 'first'})}.{part(GOOD)}"
    signature = (
        urlsafe_b64encode(hmac.digest(AUTHORITY.public_pem(), signed.encode(), hashlib.sha256)).decode().rstrip("=")
    )
    with pytest.raises(TokenRefused, match="algorithm is 'HS256'"):
        verify(f"{signed}.{signature.rstrip('=')}")


def test_keys_are_found_by_their_ids() -> None:
    stranger = TokenAuthority()
    with pytest.raises(TokenRefused, match="its signature is not by its key"):
        verify(stranger.sign(**GOOD))
    stranger.add_rsa("unknown")
    with pytest.raises(TokenRefused, match="no key has its kid"):
        verify(stranger.sign("unknown", **GOOD))
    with pytest.raises(TokenRefused, match="no key has its kid"):
        verify(f"{part({'alg': 'ES256', 'kid': 'first'})}.{part(GOOD)}.AAAA")  # of another type


def test_claims_changed_behind_the_signature() -> None:
    head, _, signature = AUTHORITY.sign(**GOOD).split(".")
    with pytest.raises(TokenRefused):
        verify(f"{head}.{part(GOOD | {'sub': 'admin'})}.{signature}")


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda data: urlsafe_b64encode(data).decode() + ".e30.x"))
def test_what_is_no_token(text: str) -> None:
    for check in (verify, lambda one: verify_unsecured(one, TokenRules(), NOW_MS).name):
        with pytest.raises(TokenRefused):
            check(text)


def test_a_jwks_has_to_have_keys() -> None:
    for text in ("[]", "{}", '{"keys": []}', '{"keys": [{"kty": "oct", "k": "AAAA"}]}', "no json"):
        with pytest.raises(ValueError):
            Keys(text)
    assert Keys(json.dumps({"keys": [{"kty": "RSA", "kid": "broken"}, *json.loads(AUTHORITY.jwks)["keys"]]})).has(
        "first"
    )


def test_unsecured_tokens_where_they_are_wanted() -> None:
    rules = TokenRules(skew_ms=0, name_claim="name", scope_claim="rights", scope=("read", "write"))
    good = {"name": "bob", "exp": NOW_S + 1, "rights": ["write", "read", "more"]}
    assert verify_unsecured(unsecured(**good), rules, NOW_MS).name == "bob"
    for wrong in (
        {"rights": "read"},
        {"rights": "read write"},  # a text is one scope
        {"rights": None},
        {"iat": None},
        {"iat": NOW_S + 1},
        {"nbf": NOW_S + 1},
        {"rights": 5},
        {"exp": NOW_S},
        {"exp": float("inf")},
        {"name": 7},
        {"iat": NOW_S + 5},
    ):
        with pytest.raises(TokenRefused):
            verify_unsecured(unsecured(**good | wrong), rules, NOW_MS)
    with pytest.raises(TokenRefused, match="algorithm is not none"):
        verify_unsecured(".".join([*AUTHORITY.sign(**good).split(".")[:2], ""]), rules, NOW_MS)
