"""The client's first message of OAUTHBEARER, and how a refusal is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.security.sasl.exchange import AuthenticationFailed, Step
from kafkalite.security.sasl.jwt import BearerToken, TokenRefused, TokenRules, claims_of, verify_unsecured
from kafkalite.security.sasl.oauthbearer import (
    OAuthBearerClient,
    OAuthBearerExchange,
    OwnToken,
    RefreshRules,
    UnsecuredTokens,
    extensions_of,
    read_token,
    refresh_at_ms,
)
from tests.support.tokens import unsecured

WALL_MS = 1_000_000.0


class Judge:
    def __init__(self) -> None:
        self.told: list[str] = []

    def verify(self, token: str) -> BearerToken:
        if token != "good.token":
            raise TokenRefused(f"it is {token}")
        return BearerToken("alice", WALL_MS + 5_000)

    def exchange(self) -> OAuthBearerExchange:
        return OAuthBearerExchange(self.verify, lambda: WALL_MS, self.told.append)


@pytest.mark.parametrize(
    "message",
    [
        b"n,,\x01auth=Bearer good.token\x01\x01",
        b"n,a=alice,\x01auth=bearer good.token\x01\x01",
        b"n,,\x01host=here\x01auth=BEARER  good.token\x01port=9092\x01\x01",
    ],
)
def test_a_good_token(message: bytes) -> None:
    step = Judge().exchange().evaluate(message)
    assert step == Step(b"", "alice", 5_000)


def test_a_wrong_authorization_id_fits_into_an_answer_and_a_line() -> None:
    wanted = b"bob\r\nfake line \x1b[0m" + b"y" * 40_000
    with pytest.raises(AuthenticationFailed, match=r"id \(bob\\r\\nfake line ") as failure:
        Judge().exchange().evaluate(b"n,a=" + wanted + b",\x01auth=Bearer good.token\x01\x01")
    assert len(str(failure.value)) < 500 and str(failure.value).isprintable()


@pytest.mark.parametrize("answer", [b"\x01", b"", b"\x01\x01", b"n,,\x01auth=Bearer good.token\x01\x01"])
def test_a_refused_token_is_told_in_two_steps(answer: bytes) -> None:
    judge = Judge()
    exchange = judge.exchange()
    assert exchange.evaluate(b"n,,\x01auth=Bearer bad\x01\x01") == Step(b'{"status":"invalid_token"}', None, None)
    assert judge.told == ["it is bad"]
    with pytest.raises(AuthenticationFailed, match="invalid_token" if answer == b"\x01" else "invalid credentials"):
        exchange.evaluate(answer)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01\x01",
        b"y,,\x01auth=Bearer good.token\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer good.token\x01\x01",
        b"n,,\x01auth=Bearer good.token\x01",
        b"n,,\x01auth=Basic good.token\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer good token\x01\x01",
        b"n,,\x01host=here\x01\x01",
        b"n,,\x01auth=Bearer good.token\x01\x01\xff",
        b"n,,\x01auth=Bearer good.token\x01\x01more",
    ],
)
def test_what_is_no_first_message(message: bytes) -> None:
    judge = Judge()
    with pytest.raises(AuthenticationFailed, match="invalid credentials with SASL mechanism OAUTHBEARER"):
        judge.exchange().evaluate(message)
    assert not judge.told


def test_nobody_is_somebody_else() -> None:
    with pytest.raises(AuthenticationFailed, match="different from the token's principal name"):
        Judge().exchange().evaluate(b"n,a=admin,\x01auth=Bearer good.token\x01\x01")


NOW_MS = 1_000_000_000.0
OPTIONS = {"unsecuredLoginStringClaim_sub": "broker"}


def server() -> OAuthBearerExchange:
    def verify(token: str):  # type: ignore[no-untyped-def]
        return verify_unsecured(token, TokenRules(), NOW_MS)

    return OAuthBearerExchange(verify, lambda: NOW_MS, lambda _: None)


@pytest.mark.parametrize("extensions", [{}, {"traceId": "12 3", "tenant": "x=y"}])
def test_both_sides_are_content(extensions: dict[str, str]) -> None:
    client = OAuthBearerClient(UnsecuredTokens(OPTIONS).make(NOW_MS), extensions)
    step = server().evaluate(client.first())
    assert (step.name, step.lifetime_ms) == ("broker", 3_600_000)
    assert step.token is not None and client.answer(step.token) is None


def test_a_token_that_is_refused_is_acknowledged() -> None:
    client = OAuthBearerClient(UnsecuredTokens(OPTIONS).make(NOW_MS - 4_000_000), {})
    exchange = server()
    step = exchange.evaluate(client.first())
    assert step.name is None and step.token is not None
    acknowledged = client.answer(step.token)
    assert acknowledged == b"\x01"
    with pytest.raises(AuthenticationFailed, match="invalid_token"):
        exchange.evaluate(acknowledged)
    with pytest.raises(ValueError, match="more than belongs"):
        client.answer(b"and more")


def test_a_failure_of_any_length_is_not_read() -> None:
    with pytest.raises(ValueError, match="more than belongs"):
        OAuthBearerClient(UnsecuredTokens(OPTIONS).make(NOW_MS), {}).answer(bytes(5000))


def test_extensions_are_those_of_kafkas_options() -> None:
    options = {"extension_tenant": "blue", "clientId": "c", "unsecuredLoginExtension_tenant": "red"}
    assert extensions_of(options, "extension_") == {"tenant": "blue"}
    assert extensions_of(options, "unsecuredLoginExtension_") == {"tenant": "red"}


@pytest.mark.parametrize(
    "options", [{"extension_a1": "x"}, {"extension_auth": "x"}, {"extension_a": "secret\x01b=c"}, {"extension_a": ""}]
)
def test_an_extension_that_could_be_something_else(options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="extension_") as refusal:
        extensions_of(options, "extension_")
    assert "secret" not in str(refusal.value)


def test_what_a_token_tells() -> None:
    text = unsecured(sub="a", client="c", exp=2000, iat=1000)
    assert read_token(text) == OwnToken(text, "a", 1_000_000, 2_000_000)
    assert read_token(text, "client").name == "c"
    assert text not in repr(read_token(text))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "no JWT in the compact form"),
        ("opaque-and-secret", "no JWT in the compact form"),
        ("a.b.c d", "no JWT in the compact form"),
        ("a" * 300_000 + ".a.a", "no JWT in the compact form"),
        ("a.b.c", "is invalid"),
        (unsecured(sub="a"), "has no exp"),
        (unsecured(exp=1), "has no claim sub"),
        (unsecured(sub=7, exp=1), "has no claim sub"),
        (unsecured(sub="a", exp="soon"), "its claim exp is no time"),
        (unsecured(sub="a", exp=1, iat=-1), "its claim iat is no time"),
    ],
)
def test_a_token_that_cannot_be_used(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault) as refusal:
        read_token(text)
    assert not text or text not in str(refusal.value)


@given(st.text(max_size=100))
def test_whatever_an_authority_gives(text: str) -> None:
    with pytest.raises(ValueError):
        read_token(text)


HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("life_ms", "age_ms", "chance", "after_ms"),
    [
        (HOUR_MS, 0, 0, 0.8 * HOUR_MS),
        (HOUR_MS, 0, 1, 0.85 * HOUR_MS),
        (1_000_000, 0, 1, 700_000),  # five minutes before the end
        (400_000, 0, 0, 100_000),
        (400_000, 350_000, 0, 0.8 * 50_000),  # no room for these: the window of what is left
        (100_000, 0, 0, 80_000),
        (1_000_000, 630_000, 0, 70_000),
        (1_000_000, 639_000, 0, 61_000),
        (-5, 0, 0, 0),
    ],
)
def test_when_a_token_is_replaced(life_ms: float, age_ms: float, chance: float, after_ms: float) -> None:
    token = OwnToken("", "a", NOW_MS - age_ms, NOW_MS - age_ms + life_ms)
    assert refresh_at_ms(token, NOW_MS, RefreshRules(), chance) == pytest.approx(NOW_MS + after_ms)


def test_a_token_that_does_not_say_since_when_it_holds() -> None:
    token = OwnToken("", "a", None, NOW_MS + HOUR_MS)
    assert refresh_at_ms(token, NOW_MS, RefreshRules(), 0) == NOW_MS + 0.8 * HOUR_MS


def test_claims_of_unsecured_tokens() -> None:
    options = {
        "unsecuredLoginStringClaim_name": "a",
        "unsecuredLoginNumberClaim_level": "5",
        "unsecuredLoginListClaim_scope": "|x|y",
        "unsecuredLoginPrincipalClaimName": "name",
        "unsecuredLoginLifetimeSeconds": "60",
    }
    token = UnsecuredTokens(options).make(NOW_MS)
    assert (token.name, token.expires_ms) == ("a", NOW_MS + 60_000)
    rules = TokenRules(name_claim="name", scope=("x", "y"))
    assert verify_unsecured(token.text, rules, NOW_MS).name == "a"
    with pytest.raises(TokenRefused, match="lacks"):
        verify_unsecured(token.text, rules._replace(scope=("z",)), NOW_MS)


@pytest.mark.parametrize(
    ("text", "elements"),
    [("", []), (",", []), (",,", []), (",1,2,", ["1", "2"]), ("|a||b", ["a", "", "b"]), (".a.", ["a"])],
)
def test_lists_are_split_as_java_does(text: str, elements: list[str]) -> None:
    token = UnsecuredTokens({**OPTIONS, "unsecuredLoginListClaim_scope": text}).make(NOW_MS)
    assert claims_of(token.text)["scope"] == elements


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({}, r'has no unsecuredLoginStringClaim_sub="NAME"'),
        ({"unsecuredLoginNumberClaim_sub": "1"}, "has no unsecuredLoginStringClaim_sub"),
        ({**OPTIONS, "unsecuredLoginNumberClaim_exp": "1"}, "the claim exp is made here"),
        ({**OPTIONS, "unsecuredLoginNumberClaim_level": "NaN"}, "must be a number"),
        ({**OPTIONS, "unsecuredLoginLifetimeSeconds": "long"}, "must be a number of seconds"),
        ({**OPTIONS, "unsecuredLoginLifetimeSeconds": "0"}, "must be a number of seconds"),
        ({**OPTIONS, "unsecuredLoginLifetimeSeconds": "9" * 99}, "must be a number of seconds"),
    ],
)
def test_options_that_make_no_token(options: dict[str, str], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        UnsecuredTokens(options)
