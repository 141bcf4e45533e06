"""Settings of logins that are refused at the start, or are read as Kafka reads them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.security.sasl.exchange import Exchange
from kafkalite.server.sasl_listeners import SaslListeners
from tests.support.manual_clock import ManualClock
from tests.support.tokens import TokenAuthority, unsecured

PREFIX = "listener.name.sasl_plaintext.oauthbearer"
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearer"
METADATA: Any = SimpleNamespace(cluster_id="c", entity_configs={}, delegation_tokens={}, listen=lambda _: None)
AUTHORITY = TokenAuthority()
CLOCK = ManualClock()
NOW_S = CLOCK.wall_ms() / 1000
GOOD: dict[str, Any] = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 3_600}


def exchange(settings: dict[str, str]) -> Exchange:
    config = BrokerConfig.load(
        {"listeners": "SASL_PLAINTEXT://127.0.0.1:9092", "sasl.enabled.mechanisms": "OAUTHBEARER"} | settings, {}
    )
    listeners: Any = SaslListeners(config, METADATA, lambda *_: None, CLOCK, {}, may_wait=True)  # type: ignore[arg-type]
    made: Exchange = listeners._settings["SASL_PLAINTEXT"].mechanisms["OAUTHBEARER"]()
    return made


def by_keys(tmp_path: Path, **settings: str) -> Exchange:
    named = {f"sasl.oauthbearer.{name.replace('_', '.')}": value for name, value in settings.items()}
    address = {"sasl.oauthbearer.jwks.endpoint.url": AUTHORITY.write(tmp_path / "jwks.json")}
    return exchange(
        {f"{PREFIX}.sasl.server.callback.handler.class": f"{HANDLER}ValidatorCallbackHandler"} | address | named
    )


def without_keys(**options: str) -> Exchange:
    text = " ".join(f'unsecuredValidator{name}="{value}"' for name, value in options.items())
    return exchange(
        {
            f"{PREFIX}.sasl.server.callback.handler.class": f"{HANDLER}UnsecuredValidatorCallbackHandler",
            f"{PREFIX}.sasl.jaas.config": f"{HANDLER}LoginModule required {text};",
        }
    )


def name(made: Exchange, token: str) -> str | None:
    return made.evaluate(f"n,,\x01auth=Bearer {token}\x01\x01".encode()).name


def test_an_issuer_of_blanks_is_none_and_names_are_trimmed(tmp_path: Path) -> None:
    assert name(by_keys(tmp_path, expected_issuer=" "), AUTHORITY.sign(**GOOD)) == "alice"
    claims = GOOD | {"user": "bob", "iss": "me"}
    assert name(by_keys(tmp_path, expected_issuer=" me ", sub_claim_name=" user "), AUTHORITY.sign(**claims)) == "bob"
    assert name(by_keys(tmp_path, expected_issuer="you"), AUTHORITY.sign(**claims)) is None


@pytest.mark.parametrize("setting", ["sub_claim_name", "scope_claim_name"])
def test_a_claim_has_a_name(tmp_path: Path, setting: str) -> None:
    with pytest.raises(ConfigError, match=r"sasl.oauthbearer\.(sub|scope).claim.name of listener .* must name a claim"):
        by_keys(tmp_path, **{setting: " "})


def test_options_of_unsecured_tokens() -> None:
    assert name(without_keys(PrincipalClaimName=" ", AllowableClockSkewMs=" 0 "), unsecured(**GOOD)) == "alice"
    claims = GOOD | {"user": "bob", "scope": ["read"]}
    assert name(without_keys(PrincipalClaimName=" user ", RequiredScope=" read "), unsecured(**claims)) == "bob"
    assert name(without_keys(RequiredScope="read write"), unsecured(**claims)) is None
    for options in ({"AllowableClockSkewMs": "-1"}, {"AllowableClockSkewMs": "2147483648"}, {"RequiredScope": "ü"}):
        with pytest.raises(ConfigError, match=r"unsecuredValidator(AllowableClockSkewMs|RequiredScope) must be"):
            without_keys(**options)
