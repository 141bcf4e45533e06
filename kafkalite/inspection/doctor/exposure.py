"""Endpoints as seen by clients, and warnings about settings: open to others, readable on the way, easy to guess.

Each check takes the settings and the endpoints and yields findings. Nothing is opened, no broker is asked.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from kafkalite.common.errors import ConfigError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.jaas import LoginModule, login_module, plain_users
from kafkalite.config.listeners import ListenerConfig, metrics_listener
from kafkalite.security.principal import user
from kafkalite.security.sasl.scram import weakness


class Finding(NamedTuple):
    """Both are sentences without a full stop."""

    fault: str
    remedy: str


_EVERY_HOST = ("", "0.0.0.0", "::", "0:0:0:0:0:0:0:0")


class Endpoint(NamedTuple):
    """`address` is where it listens; `advertised` the one that clients dial (None: the address that they dialled).
    `ca`: the file with the authorities that sign certificates, if it is known. `client_auth`: none, requested or
    required. `token_url`: where tokens of OAUTHBEARER are given; `service`: the first part of the broker's principal of
    Kerberos; both if they are known."""

    listener: str
    protocol: str
    address: str
    advertised: str | None = None
    mechanisms: tuple[str, ...] = ()
    client_auth: str = "none"
    ca: str | None = None
    is_bound_to_all: bool = False
    takes_unsecured_tokens: bool = False
    token_url: str | None = None
    service: str | None = None

    @property
    def dialled(self) -> str:
        """The address for clients to begin with."""
        return self.advertised or self.address

    @property
    def port(self) -> str:
        return self.address.rpartition(":")[2]

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    @property
    def is_open(self) -> bool:
        """Whether other machines can reach it."""
        return self.is_bound_to_all or not is_loopback(host_of(self.address))

    @property
    def requires_authentication(self) -> bool:
        """Whether every client must authenticate."""
        return self.has_sasl or (self.has_tls and self.client_auth == "required")


def endpoints_of(config: BrokerConfig, machine: str) -> list[Endpoint]:
    """The listeners of a broker with these settings. `machine` is the name of the host, by which clients reach
    listeners of every interface."""
    found = []
    for one in config.listeners:
        to_all = one.host in _EVERY_HOST
        advertised = config.advertised(one.name)
        auth = config.listener_setting(one.name, "ssl.client.auth")
        if one.protocol == "SASL_SSL" and not config.is_set_for_listener(one.name, "ssl.client.auth"):
            auth = "none"  # as in Kafka
        found.append(
            Endpoint(
                one.name,
                one.protocol,
                (one._replace(host=machine) if to_all else one).address,
                advertised.address if advertised is not None else None,
                config.listener_setting(one.name, "sasl.enabled.mechanisms") if "SASL" in one.protocol else (),
                auth if one.protocol.endswith("SSL") else "none",
                _authorities(config, one.name),
                to_all,
                _takes_unsecured_tokens(config, one),
                config.listener_setting(one.name, "sasl.oauthbearer.token.endpoint.url", "OAUTHBEARER"),
                _service(config, one.name),
            )
        )
    return found


def _authorities(config: BrokerConfig, listener: str) -> str | None:
    """The broker's own trust store is likely to have the authority of its certificate."""
    path: str | None = config.listener_setting(listener, "ssl.truststore.location")
    return path if path is not None and not path.endswith((".p12", ".pfx", ".jks")) else None


def _takes_unsecured_tokens(config: BrokerConfig, listener: ListenerConfig) -> bool:
    mechanisms = config.listener_setting(listener.name, "sasl.enabled.mechanisms")
    if not listener.protocol.startswith("SASL_") or "OAUTHBEARER" not in mechanisms:
        return False
    handler = config.listener_setting(listener.name, "sasl.server.callback.handler.class", "OAUTHBEARER") or ""
    return not handler.endswith(".OAuthBearerValidatorCallbackHandler")  # a start needs one, or options that say so


def _service(config: BrokerConfig, listener: str) -> str | None:
    """The one of the settings, or that of the principal whose keys the broker has."""
    named: str | None = config.listener_setting(listener, "sasl.kerberos.service.name", "GSSAPI")
    if named:
        return named
    with contextlib.suppress(ConfigError):  # a start names the fault
        found = login_module(config, listener, "GSSAPI")
        if found is not None and found.module.name.endswith("Krb5LoginModule"):
            return found.module.options.get("principal", "").partition("@")[0].partition("/")[0] or None
    return None


def host_of(address: str) -> str:
    return address.rpartition(":")[0].removeprefix("[").removesuffix("]")


def is_loopback(host: str) -> bool:
    """Whether no other machine is reached, or reaches, there."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


ANONYMOUS = user("ANONYMOUS")


def exposures(config: BrokerConfig, endpoints: Sequence[Endpoint]) -> Iterator[Finding]:
    """All findings, the worst kind first."""
    for check in (
        _open_doors,
        _unsigned_tokens,
        _readable,
        _authorizer,
        _between_brokers,
        _passwords,
        _zookeeper,
        _metrics,
    ):
        yield from check(config, endpoints)


def _open_doors(config: BrokerConfig, endpoints: Sequence[Endpoint]) -> Iterator[Finding]:
    """Listeners that other machines reach without authentication."""
    for one in endpoints:
        if not one.is_open or one.requires_authentication:
            continue
        may = "may do everything" if _may_everything(config) else "is let in as User:ANONYMOUS"
        why = "has no authentication" if one.client_auth != "requested" else "lets clients in without a certificate"
        yield Finding(
            f"listener {one.listener} ({one.protocol}) {why}: any client that reaches {one.address} {may}",
            "use SASL_SSL, or SSL with ssl.client.auth=required; or bind the listener to 127.0.0.1",
        )


def _unsigned_tokens(config: BrokerConfig, endpoints: Sequence[Endpoint]) -> Iterator[Finding]:
    for one in endpoints:
        if one.is_open and one.takes_unsecured_tokens:
            yield Finding(
                f"listener {one.listener} takes unsigned tokens: any client that reaches {one.address} can "
                "claim any name",
                "set sasl.server.callback.handler.class=org.apache.kafka.common.security.oauthbearer."
                "OAuthBearerValidatorCallbackHandler and sasl.oauthbearer.jwks.endpoint.url",
            )


def _readable(config: BrokerConfig, endpoints: Sequence[Endpoint]) -> Iterator[Finding]:
    for one in endpoints:
        if one.has_tls or not one.is_open:
            continue
        if "PLAIN" in one.mechanisms:
            yield Finding(
                f"listener {one.listener} ({one.protocol}) takes PLAIN without TLS: passwords can be read on their way",
                "use SASL_SSL, or SCRAM-SHA-512 in place of PLAIN",
            )
        elif one.has_sasl:
            yield Finding(
                f"listener {one.listener} ({one.protocol}) has no TLS: records can be read and changed on their way",
                "use SASL_SSL",
            )


def _authorizer(config: BrokerConfig, endpoints: Sequence[Endpoint]) -> Iterator[Finding]:
    is_open = any(one.is_open for one in endpoints)
    if not config.authorizer_class_name:
        if is_open and any(one.is_open and one.requires_authentication for one in endpoints):
            yield Finding(
                "there is no authorizer: every user that logs in may do everything, to every topic",
                "set authorizer.class.name=kafka.security.authorizer.AclAuthorizer and super.users",
            )
        return
    if config.allow_everyone_if_no_acl_found:
        yield Finding(
            "allow.everyone.if.no.acl.found=true: resources without an access control list are open to every user",
            "set it to false, and give lists to what clients need",
        )
    if not config.super_users:
        yield Finding(
            "super.users is empty: no user may add the first access control list",
            "set super.users=User:NAME",
        )
    if ANONYMOUS in config.super_users:
        for one in endpoints:
            if one.is_open and not one.requires_authentication:
                yield Finding(
                    f"{ANONYMOUS} is in super.users: every client at {one.address} ({one.listener}) is a super user",
                    "let brokers meet at a SASL or SSL listener, and take ANONYMOUS out of super.users",
                )


def _may_everything(config: BrokerConfig) -> bool:
    return not config.authorizer_class_name or ANONYMOUS in config.super_users


def _between_brokers(config: BrokerConfig, endpoints: Sequence[Endpoint]) -> Iterator[Finding]:
    listener = config.inter_broker_listener
    if config.zookeeper_connect is None or listener is None:
        return
    if listener.protocol.endswith("SSL") and not config.listener_setting(
        listener.name, "ssl.endpoint.identification.algorithm"
    ):
        yield Finding(
            "ssl.endpoint.identification.algorithm is empty: brokers do not look whose certificate they are shown",
            "leave it at https",
        )
    mechanism = config.sasl_mechanism_inter_broker_protocol
    module = _module(config, listener.name, mechanism)
    if not listener.protocol.startswith("SASL_") or module is None:
        return
    url = urlsplit(config.listener_setting(listener.name, "sasl.oauthbearer.token.endpoint.url", mechanism) or "")
    if mechanism == "OAUTHBEARER" and url.scheme == "http" and not is_loopback(url.hostname or ""):
        yield Finding(
            f"sasl.oauthbearer.token.endpoint.url is asked without TLS: clientSecret and tokens can be read on "
            f"the way to {url.hostname}",
            "take its https address",
        )
    name = _own_name(config, listener.name, mechanism, module)
    if mechanism == "PLAIN" and plain_users(module).get(name or "") != module.options.get("password"):
        yield Finding(
            f"{name} is this broker at the others, and is not a user of PLAIN with this password here",
            f'add user_{name}="..." with the same password to the login module of each broker',
        )
    if config.authorizer_class_name and name is not None and user(name) not in config.super_users:
        yield Finding(
            f"{user(name)} is this broker at the others, and is not in super.users: they refuse what brokers ask",
            f"add {user(name)} to super.users, or allow it ClusterAction on the cluster",
        )


def _own_name(config: BrokerConfig, listener: str, mechanism: str, module: LoginModule) -> str | None:
    """The user that this broker is at the others; None where an authority or rules say so."""
    if mechanism == "OAUTHBEARER":
        claim = module.options.get("unsecuredLoginPrincipalClaimName", "sub")
        return module.options.get(f"unsecuredLoginStringClaim_{claim}")
    if mechanism == "GSSAPI":
        rules = config.listener_setting(listener, "sasl.kerberos.principal.to.local.rules")
        principal: str = module.options.get("principal", "")
        return principal.partition("@")[0].partition("/")[0] if rules == ("DEFAULT",) and principal else None
    return module.options.get("username", "")


def _passwords(config: BrokerConfig, endpoints: Sequence[Endpoint]) -> Iterator[Finding]:
    for one in endpoints:
        for mechanism in one.mechanisms:
            module = _module(config, one.listener, mechanism)
            if module is None:
                continue
            known = plain_users(module)
            name = module.options.get("username", "")
            if name and mechanism != "PLAIN":
                known[name] = module.options.get("password", "")
            for each, password in sorted(known.items()):
                if fault := weakness(each, password):
                    yield Finding(
                        f"the password of {each} ({mechanism} at {one.listener}) {fault}",
                        "take a long random one: openssl rand -base64 24",
                    )


def _module(config: BrokerConfig, listener: str, mechanism: str) -> LoginModule | None:
    with contextlib.suppress(ConfigError):  # a start names the fault
        found = login_module(config, listener, mechanism)
        return None if found is None else found.module
    return None


def _zookeeper(config: BrokerConfig, endpoints: Sequence[Endpoint]) -> Iterator[Finding]:
    if config.zookeeper_connect is None:
        return
    hosts = [server.rpartition(":")[0].strip("[]") for server in config.zookeeper_connect.partition("/")[0].split(",")]
    if all(map(is_loopback, hosts)):
        return
    if not config.zookeeper_set_acl:
        yield Finding(
            "zookeeper.set.acl=false: any client of ZooKeeper can change users, access control lists and topics",
            "set zookeeper.set.acl=true with zookeeper.digest, zookeeper.sasl.* or a certificate",
        )
    if not config.zookeeper_ssl_client_enable:
        yield Finding(
            "ZooKeeper is asked without TLS: what brokers keep there can be read and changed on its way",
            "set zookeeper.ssl.client.enable=true and zookeeper.ssl.truststore.location",
        )


def _metrics(config: BrokerConfig, endpoints: Sequence[Endpoint]) -> Iterator[Finding]:
    if config.metrics_listener and not is_loopback(metrics_listener(config.metrics_listener).host):
        yield Finding(
            f"metrics.listener={config.metrics_listener} shows the names of topics and groups without a login",
            "bind it to 127.0.0.1, or let a firewall guard it",
        )
    if config.console_listener and not is_loopback(metrics_listener(config.console_listener).host):
        yield Finding(
            f"console.listener={config.console_listener} shows pages without TLS, logins and records among them",
            "bind it to 127.0.0.1, and let a proxy with TLS stand before it",
        )
