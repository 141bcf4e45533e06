"""How clients authenticate at the SASL listeners of a broker.

Users of PLAIN stand in the login module of their listener, those of SCRAM in the entity configs of the cluster, so that
they can be changed while the broker runs.
Source: kafka.network.Processor (channel builder), org.apache.kafka.common.network.SaslChannelBuilder.
"""

from __future__ import annotations

import hmac
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kafkalite.api.sasl_authenticator import SaslAuthenticator, SaslSettings
from kafkalite.common.clock import Clock
from kafkalite.common.errors import ConfigError
from kafkalite.common.log_lines import RateLimitedLogger
from kafkalite.common.names import java_trim, sanitized
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.jaas import login_module, plain_users, property_of
from kafkalite.metadata.cluster_metadata import Change, ClusterMetadata
from kafkalite.network.client_connection import ClientConnection, Handler
from kafkalite.security.principal import name_of
from kafkalite.security.sasl import gssapi, oauthbearer, scram
from kafkalite.security.sasl.exchange import PLAIN, Exchange, PlainExchange
from kafkalite.security.sasl.jwt import TokenRules, verify_unsecured
from kafkalite.security.sasl.scram import Decoys, TokenCredentials
from kafkalite.server import jwks

logger = logging.getLogger(__name__)
_log = logging.getLogger("kafkalite.authentication")
_CONCERNS = re.compile(r"sasl\.|connections\.max\.reauth\.ms\Z|connection\.failed\.authentication")
_SPOKEN = (PLAIN, *scram.MECHANISMS, oauthbearer.MECHANISM, gssapi.MECHANISM)
_SIGNED_TOKENS = "OAuthBearerValidatorCallbackHandler"
_UNSECURED_TOKENS = "OAuthBearerUnsecuredValidatorCallbackHandler"
_BLANK = scram.ScramCredential(bytes(24), bytes(64), bytes(64), scram.ITERATIONS_MIN).text
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+\Z")
_INT_MAX = (1 << 31) - 1
Exchanges = Mapping[str, Callable[[], Exchange]]
MakeKeys = Callable[["jwks.KeySource", TokenRules, "jwks.RefreshRules"], "jwks.RefreshingKeys"]


class SaslListeners:
    """Makes an authenticator for each connection to one of the listeners with SASL. Raises ConfigError for settings
    that no client could log in with. Keys for tokens that are not `known` are waited for here if this `may_wait`, and
    later they are not: `key_sources` names the keys to read before."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: ClusterMetadata,
        serve: Handler,
        clock: Clock,
        known: jwks.KnownKeys,
        *,
        may_wait: bool,
    ) -> None:
        decoys = _follow_decoys(config, metadata)
        self._may_wait = may_wait

        def keys(source: jwks.KeySource, rules: TokenRules, refresh: jwks.RefreshRules) -> jwks.RefreshingKeys:
            wait = self._may_wait
            return jwks.RefreshingKeys(source, rules, refresh, clock.wall_ms, clock.monotonic_ms, known, may_wait=wait)

        self._make: Callable[[BrokerConfig, str], SaslSettings] = lambda config, name: _settings(
            config, name, metadata, serve, clock, decoys, keys
        )
        self._config = config
        self._settings = {name: self._make(config, name) for name in _with_sasl(config)}
        self._may_wait = False

    def authenticator(self, listener: str) -> Callable[[ClientConnection], Handler]:
        """Raises ConfigError if no client could log in there."""
        if listener not in self._settings:
            self._settings[listener] = self._make(self._config, listener)
        return lambda _: SaslAuthenticator(self._settings[listener])

    def check(self, config: BrokerConfig) -> None:
        """Raises ConfigError if clients could not log in with these settings."""
        for name in self._changed(config):
            self._make(config, name)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Use these settings for new connections; a listener with invalid ones stays as before."""
        changed = self._changed(config)
        self._config = config
        for name in changed:
            try:
                self._settings[name] = self._make(config, name)
            except ConfigError as fault:
                logger.error("clients log in at listener %s as before: %s", name, fault)

    def _changed(self, config: BrokerConfig) -> list[str]:
        """The listeners of `config` whose logins are new or changed; the others keep the fetched keys for tokens."""
        has_changed = _concerning(config) != _concerning(self._config)
        return [name for name in _with_sasl(config) if has_changed or name not in self._settings]


def _with_sasl(config: BrokerConfig) -> list[str]:
    return [one.name for one in config.listeners if one.protocol.startswith("SASL_")]


def key_sources(config: BrokerConfig) -> Iterator[jwks.KeySource]:
    """Where the listeners' keys for tokens are. Raises ConfigError."""
    for listener in _with_sasl(config):
        if oauthbearer.MECHANISM in config.listener_setting(listener, "sasl.enabled.mechanisms"):
            source = _key_source(config, listener)
            if source is not None:
                yield source


def _key_source(config: BrokerConfig, listener: str) -> jwks.KeySource | None:
    """The source of the keys; None if tokens are not validated by keys. Raises ConfigError."""
    handler = config.listener_setting(listener, "sasl.server.callback.handler.class", oauthbearer.MECHANISM) or ""
    if handler.rpartition(".")[2] != _SIGNED_TOKENS:
        return None
    url = config.listener_setting(listener, jwks.SETTING, oauthbearer.MECHANISM)
    if not url:
        raise ConfigError(f"{jwks.SETTING} is missing for listener {listener}: the keys by which tokens are judged")
    found = login_module(config, listener, oauthbearer.MECHANISM)
    options = {} if found is None else found.module.options
    return jwks.KeySource(url, tuple(sorted(each for each in options.items() if each[0].startswith("ssl."))))


def _concerning(config: BrokerConfig) -> list[dict[str, str]]:
    """The explicit settings that concern logins."""
    layers = (config.explicit, config.dynamic_default, config.dynamic)
    return [{name: text for name, text in layer.items() if _CONCERNS.search(name)} for layer in layers]


def _settings(
    config: BrokerConfig,
    listener: str,
    metadata: ClusterMetadata,
    serve: Handler,
    clock: Clock,
    decoys: Decoys,
    keys: MakeKeys,
) -> SaslSettings:
    return SaslSettings(
        _exchanges(config, listener, metadata, clock, decoys, keys),
        serve,
        clock,
        failure_delay_ms=config.connection_failed_authentication_delay_ms,
        max_reauth_ms=int(config.listener_setting(listener, "connections.max.reauth.ms")),
        token_bytes_max=int(config.listener_setting(listener, "sasl.server.max.receive.size")),
        warn=RateLimitedLogger(clock, _log.warning).about,
    )


def _follow_decoys(config: BrokerConfig, metadata: ClusterMetadata) -> Decoys:
    """Keep the decoys like the present users. Their secret is that of the cluster's delegation tokens. Without one they
    are equal on all its brokers, too, but a client that may log in and knows the id of the cluster can recognize them.
    """
    decoys = Decoys(hmac.digest(config.token_secret.encode(), f"decoys {metadata.cluster_id}".encode(), "sha256"))
    for path, stored in metadata.entity_configs.items():
        decoys.put(path, stored)

    def on_change(change: Change, path: str) -> None:
        if change is Change.ENTITY_CONFIG:
            decoys.put(path, metadata.entity_configs.get(path, {}))

    metadata.listen(on_change)  # as long as the broker runs
    return decoys


def _exchanges(
    config: BrokerConfig, listener: str, metadata: ClusterMetadata, clock: Clock, decoys: Decoys, keys: MakeKeys
) -> Exchanges:
    names = config.listener_setting(listener, "sasl.enabled.mechanisms")
    unknown = [name for name in names if name not in _SPOKEN]
    if unknown or not names:
        raise ConfigError(
            f"sasl.enabled.mechanisms={','.join(names)} of listener {listener}: kafkalite speaks {', '.join(_SPOKEN)}"
        )
    exchanges: dict[str, Callable[[], Exchange]] = {}
    tokens = TokenCredentials(lambda: metadata.delegation_tokens, config.token_secret, clock.wall_ms)
    for name in names:
        if name == PLAIN:
            users = _users_of_plain(config, listener)
            exchanges[name] = lambda users=users: PlainExchange(users)  # type: ignore[misc]
        elif name == oauthbearer.MECHANISM:
            exchanges[name] = _bearer_tokens(config, listener, clock, keys)
        elif name == gssapi.MECHANISM:
            from kafkalite.server.kerberos import kerberos_exchanges  # imports an optional package

            exchanges[name] = kerberos_exchanges(config, listener, clock)
        else:
            exchanges[name] = lambda name=name: scram.ScramExchange(  # type: ignore[misc]
                name,
                lambda user: _credential(metadata, user, name),
                decoys.credential,
                lambda token: _token(tokens, token, name),
            )
    return exchanges


def _bearer_tokens(config: BrokerConfig, listener: str, clock: Clock, make_keys: MakeKeys) -> Callable[[], Exchange]:
    """Raises ConfigError unless settings say how tokens are validated; unsecured tokens must be enabled explicitly."""

    def setting(name: str) -> Any:
        return config.listener_setting(listener, name, oauthbearer.MECHANISM)

    handler = (setting("sasl.server.callback.handler.class") or "").rpartition(".")[2]
    skew_ms = setting("sasl.oauthbearer.clock.skew.seconds") * 1000
    log = RateLimitedLogger(clock, _log.warning)

    def refused(why: str) -> None:
        log.about(f"listener {listener}", "token", f"a token of OAUTHBEARER is refused: {why}")

    source = _key_source(config, listener)
    if source is not None:
        names = {
            name: setting(name) for name in ("sasl.oauthbearer.sub.claim.name", "sasl.oauthbearer.scope.claim.name")
        }
        for name, value in names.items():
            if not value:
                raise ConfigError(f"{name} of listener {listener} must name a claim")
        issuer, audience = setting("sasl.oauthbearer.expected.issuer"), setting("sasl.oauthbearer.expected.audience")
        rules = TokenRules(issuer or None, audience, skew_ms, *names.values())
        refresh = ("refresh.ms", "retry.backoff.ms", "retry.backoff.max.ms")
        times = jwks.RefreshRules(*(setting(f"sasl.oauthbearer.jwks.endpoint.{each}") for each in refresh))
        keys = make_keys(source, rules, times)
        return lambda: oauthbearer.OAuthBearerExchange(keys.verify, clock.wall_ms, refused)
    found = login_module(config, listener, oauthbearer.MECHANISM)
    options = {} if found is None else found.module.options
    if handler != _UNSECURED_TOKENS and not any(name.startswith("unsecuredValidator") for name in options):
        raise ConfigError(
            f"listener {listener} has OAUTHBEARER, and nothing says how tokens are judged: set "
            f"listener.name.{listener.lower()}.oauthbearer.sasl.server.callback.handler.class="
            f"org.apache.kafka.common.security.oauthbearer.{_SIGNED_TOKENS} and {jwks.SETTING}"
        )
    rules = _unsecured_rules(options)
    return lambda: oauthbearer.OAuthBearerExchange(
        lambda token: verify_unsecured(token, rules, clock.wall_ms()), clock.wall_ms, refused
    )


def _unsecured_rules(options: Mapping[str, str]) -> TokenRules:
    """Raises ConfigError."""

    def setting(name: str, default: str) -> str:
        return java_trim(options.get(f"unsecuredValidator{name}", "")) or default

    skew, scope = setting("AllowableClockSkewMs", "0"), setting("RequiredScope", "").split(" ")
    if not (skew.isascii() and skew.isdigit() and len(skew) <= 10 and int(skew) <= _INT_MAX):
        raise ConfigError("unsecuredValidatorAllowableClockSkewMs must be a number of milliseconds")
    if not all(_SCOPE.match(one) for one in scope if one):
        raise ConfigError("unsecuredValidatorRequiredScope must be scopes with blanks between, in ASCII without quotes")
    return TokenRules(
        skew_ms=int(skew),
        name_claim=setting("PrincipalClaimName", "sub"),
        scope_claim=setting("ScopeClaimName", "scope"),
        scope=tuple(filter(None, scope)),
    )


def _users_of_plain(config: BrokerConfig, listener: str) -> dict[str, str]:
    found = login_module(config, listener, PLAIN)
    if found is None:
        name = property_of(listener, PLAIN)
        raise ConfigError(f'{name} is missing: it has the users of PLAIN, as user_NAME="PASSWORD"')
    users = plain_users(found.module)
    if not users:
        raise ConfigError(f'{found.where} has no user: add user_NAME="PASSWORD" before its ;')
    return users


def _token(tokens: TokenCredentials, token_id: str, mechanism: str) -> tuple[scram.ScramCredential, str, int] | None:
    found = tokens.find(mechanism, token_id)
    return None if found is None else (found[0], name_of(found[1]), found[2])


def _credential(metadata: ClusterMetadata, user: str, mechanism: str) -> scram.ScramCredential | None:
    text = metadata.entity_configs.get(f"users/{sanitized(user)}", {}).get(mechanism)
    try:
        credential = scram.parse_credential(text or _BLANK)  # takes as long for an unknown user
        return None if text is None else credential
    except ValueError as fault:
        _log.warning("a credential of a user for %s is ignored: %s", mechanism, fault)
        return None
