"""Every warning about a broker's settings: the settings that draw it, and those that do not."""

from __future__ import annotations

import pytest

from kafkalite.config.broker_config import BrokerConfig
from kafkalite.inspection.doctor.exposure import endpoints_of, exposures, is_loopback

OAUTH = "org.apache.kafka.common.security.oauthbearer"
TOKENS = {
    "listeners": "SASL_SSL://:9093",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.server.callback.handler.class": f"{OAUTH}.OAuthBearerValidatorCallbackHandler",
    "sasl.login.callback.handler.class": f"{OAUTH}.OAuthBearerLoginCallbackHandler",
}
BY_TOKEN = "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config"
BEARER = f"{OAUTH}.OAuthBearerLoginModule required"
URL = "sasl.oauthbearer.token.endpoint.url"
BY_TICKET = "listener.name.sasl_ssl.gssapi.sasl.jaas.config"
KRB5 = 'com.sun.security.auth.module.Krb5LoginModule required principal="kafka/host@REALM";'
ACLS = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:admin"}
LONG = "ckvBW2nR0aXoQm"
JAAS = "listener.name.sasl_ssl.plain.sasl.jaas.config"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SASL = {"listeners": "SASL_SSL://:9093", "sasl.enabled.mechanisms": "PLAIN"}
CLUSTER = {"zookeeper.connect": "localhost:2181", "inter.broker.listener.name": "SASL_SSL"}
BETWEEN_TOKENS = {**TOKENS, **CLUSTER, **ACLS, "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER"}
BETWEEN_TICKETS = {"listeners": "SASL_SSL://:9093", **CLUSTER, **ACLS, BY_TICKET: KRB5}
BETWEEN = {**SASL, **CLUSTER, **ACLS, "sasl.mechanism.inter.broker.protocol": "PLAIN"}


def warnings(settings: dict[str, str]) -> str:
    config = BrokerConfig.load(settings)
    return "\n".join(each.fault for each in exposures(config, endpoints_of(config, "machine")))


@pytest.mark.parametrize(
    ("settings", "warning"),
    [
        ({"listeners": "PLAINTEXT://:9092"}, "has no authentication: any client that reaches machine:9092 may do"),
        ({"listeners": "PLAINTEXT://10.0.0.1:9092", **ACLS}, "reaches 10.0.0.1:9092 is let in as User:ANONYMOUS"),
        ({"listeners": "SSL://:9093", "ssl.client.auth": "requested"}, "lets clients in without a certificate"),
        ({"listeners": "SASL_PLAINTEXT://:9093", "sasl.enabled.mechanisms": "PLAIN"}, "takes PLAIN without TLS"),
        ({"listeners": "SASL_PLAINTEXT://:9093", "sasl.enabled.mechanisms": "SCRAM-SHA-256"}, "records can be read"),
        (SASL, "there is no authorizer: every user that logs in may do everything"),
        ({**SASL, **ACLS, "allow.everyone.if.no.acl.found": "true"}, "without an access control list are open"),
        ({**SASL, **ACLS, "super.users": ""}, "super.users is empty"),
        ({"listeners": "PLAINTEXT://:9092", **ACLS, "super.users": "User:ANONYMOUS"}, "ANONYMOUS is in super.users"),
        ({**SASL, JAAS: f'{MODULE} user_bob="kafka1";'}, "of bob (PLAIN at SASL_SSL) is one of the first"),
        ({**SASL, JAAS: f'{MODULE} user_bob="bob-secret";'}, "of bob (PLAIN at SASL_SSL) is made of the user's name"),
        ({**SASL, JAAS: f'{MODULE} user_bob="x7Pq";'}, "is shorter than 12 characters"),
        ({**BETWEEN, JAAS: f'{MODULE} username="b" password="{LONG}";'}, "at the others, and is not a user"),
        ({**BETWEEN, JAAS: f'{MODULE} username="b" password="{LONG}";'}, "is this broker at the others, and is not in"),
        ({**BETWEEN, "ssl.endpoint.identification.algorithm": ""}, "do not look whose certificate"),
        (
            {**TOKENS, **ACLS, "sasl.server.callback.handler.class": "", BY_TOKEN: f"{BEARER} unsecuredValidatorX=1;"},
            "takes unsigned tokens: any client that reaches machine:9093 can claim any name",
        ),
        ({**BETWEEN_TOKENS, URL: "http://login.example/t", BY_TOKEN: f"{BEARER};"}, "on the way to login.example"),
        ({**BETWEEN_TOKENS, BY_TOKEN: f'{BEARER} unsecuredLoginStringClaim_sub="b";'}, "User:b is this broker at the"),
        (BETWEEN_TICKETS, "User:kafka is this broker at the others, and is not in super.users"),
        ({"zookeeper.connect": "zk1:2181"}, "any client of ZooKeeper can change users"),
        ({"zookeeper.connect": "zk1:2181"}, "ZooKeeper is asked without TLS"),
        ({"metrics.listener": "0.0.0.0:9404"}, "metrics.listener=0.0.0.0:9404 shows the names of topics"),
        ({"console.listener": "0.0.0.0:9080"}, "console.listener=0.0.0.0:9080 shows pages without TLS"),
    ],
)  # fmt: skip
def test_a_warning(settings: dict[str, str], warning: str) -> None:
    assert warning in warnings(settings)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"listeners": "PLAINTEXT://localhost:9092,SASL_PLAINTEXT://[::1]:9093", "sasl.enabled.mechanisms": "PLAIN"},
        {"listeners": "SSL://:9093", "ssl.client.auth": "required", **ACLS},
        {**SASL, **ACLS, JAAS: f'{MODULE} user_bob="{LONG}";'},
        {**BETWEEN, "super.users": "User:b", JAAS: f'{MODULE} username="b" password="{LONG}" user_b="{LONG}";'},
        {**BETWEEN_TOKENS, URL: "https://login.example/t", BY_TOKEN: f'{BEARER} clientId="b" clientSecret="c";'},
        {**BETWEEN_TICKETS, "super.users": "User:kafka"},
        {**BETWEEN_TICKETS, "sasl.kerberos.principal.to.local.rules": "RULE:[2:$2],DEFAULT"},
        {"zookeeper.connect": "localhost:2181,[::1]:2182/kafka", "metrics.listener": "127.0.0.1:9404"},
    ],
)
def test_no_warning(settings: dict[str, str]) -> None:
    assert warnings(settings) == ""


def test_a_secret_is_in_no_warning() -> None:
    assert "x7Pq" not in warnings({**SASL, JAAS: f'{MODULE} user_bob="x7Pq";'})


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        ("localhost", True),
        ("127.3.2.1", True),
        ("::1", True),
        ("LOCALHOST.", True),
        ("10.0.0.1", False),
        ("a.b", False),
    ],
)
def test_loopback(host: str, is_ours: bool) -> None:
    assert is_loopback(host) is is_ours


def test_an_endpoint_knows_where_tokens_and_tickets_come_from() -> None:
    (tokens,) = endpoints_of(BrokerConfig.load({**TOKENS, URL: "https://login.example/t"}), "machine")
    assert tokens.token_url == "https://login.example/t" and not tokens.takes_unsecured_tokens
    (tickets,) = endpoints_of(BrokerConfig.load({**BETWEEN_TICKETS, BY_TICKET: KRB5.replace("kafka/", "bus/")}), "m")
    assert tickets.service == "bus"
