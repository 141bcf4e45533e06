"""The nodes of access control lists and of delegation tokens, as Kafka writes them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.security.acl.acl import Entry, Operation, PatternType, Permission, Resource, ResourceType
from kafkalite.security.delegation_tokens import DelegationToken
from kafkalite.zk.znodes import security_nodes
from kafkalite.zk.znodes.security_nodes import parse_token, token_json, token_of, token_path

PREFIX = Resource(ResourceType.TRANSACTIONAL_ID, "tx-", PatternType.PREFIXED)
TOPIC = Resource(ResourceType.TOPIC, "orders")
GOLDEN = (
    b'{"acls":[{"principal":"User:CN=a,C=DE","permissionType":"Allow","host":"*","operation":"DescribeConfigs"},'
    b'{"principal":"User:*","permissionType":"Deny","host":"10.0.0.1","operation":"Read"}],"version":1}'
)
ENTRIES = (
    Entry("User:CN=a,C=DE", Permission.ALLOW, Operation.DESCRIBE_CONFIGS),
    Entry("User:*", Permission.DENY, Operation.READ, "10.0.0.1"),
)


def test_a_list_is_written_as_kafka_writes_it() -> None:
    assert security_nodes.acl_json(ENTRIES) == GOLDEN
    assert security_nodes.parse_acls(GOLDEN) == ENTRIES
    assert security_nodes.parse_acls(b"") == ()


@pytest.mark.parametrize(
    ("resource", "path"),
    [
        (TOPIC, "/kafka-acl/Topic/orders"),
        (PREFIX, "/kafka-acl-extended/prefixed/TransactionalId/tx-"),
        (Resource(ResourceType.CLUSTER, "kafka-cluster"), "/kafka-acl/Cluster/kafka-cluster"),
        (Resource(ResourceType.TOPIC, "*"), "/kafka-acl/Topic/*"),
    ],
)
def test_paths(resource: Resource, path: str) -> None:
    assert security_nodes.acl_path(resource) == path
    assert security_nodes.resource_of(path) == resource


@pytest.mark.parametrize(
    "path",
    [
        "/kafka-acl",
        "/kafka-acl/Topic",
        "/kafka-acl/Topics/a",
        "/kafka-acl/Topic/a/b",
        "/kafka-acl-changes/acl_changes_1",
    ],
)
def test_other_paths_are_of_no_resource(path: str) -> None:
    assert security_nodes.resource_of(path) is None


def test_notifications() -> None:
    assert security_nodes.acl_change(TOPIC) == ("/kafka-acl-changes/acl_changes_", b"TOPIC:orders")
    path, data = security_nodes.acl_change(PREFIX)
    assert path == "/kafka-acl-extended-changes/acl_changes_"
    assert data == b'{"version":1,"resourceType":"TRANSACTIONAL_ID","name":"tx-","patternType":"PREFIXED"}'


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b'{"version":2,"acls":[]}',
        b'{"version":1}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Any","host":"*"}]}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Perhaps","operation":"Read","host":"*"}]}',
        b'{"version":1,"acls":[{"permissionType":"Allow","operation":"Read","host":"*"}]}',
    ],
)
def test_a_list_that_is_not_understood(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"version|acls|operation|permissionType|principal"):
        security_nodes.parse_acls(data)


TOKEN = DelegationToken("id", "User:a b*", "User:é:x", ("User:b",), 1, 3, 2)
PRINCIPALS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).map(lambda name: f"User:{name}")
TIMES = st.integers(0, (1 << 63) - 1)


@given(PRINCIPALS, PRINCIPALS, st.lists(PRINCIPALS, max_size=3), TIMES, TIMES, TIMES)
def test_what_is_written_is_read(
    owner: str, requester: str, renewers: list[str], issued_ms: int, max_ms: int, expiry_ms: int
) -> None:
    token = DelegationToken("id", owner, requester, tuple(renewers), issued_ms, max_ms, expiry_ms)
    assert parse_token(token_json(token), "id") == token


def test_names_are_sanitized() -> None:
    written = json.loads(token_json(TOKEN))
    assert (written["owner"], written["tokenRequester"]) == ("User%3Aa%20b%2A", "User%3A%C3%A9%3Ax")


def test_before_version_3_the_owner_is_the_requester() -> None:
    source = json.loads(token_json(TOKEN)) | {"version": 2}
    del source["tokenRequester"]
    assert parse_token(json.dumps(source).encode(), "id").requester == TOKEN.owner


@pytest.mark.parametrize(
    "change",
    [{"version": 4}, {"version": 0}, {"owner": "alice"}, {"owner": None}, {"renewers": "x"}, {"renewers": [1]},
     {"tokenId": "other"}, {"maxTimestamp": "1"}, {"expiryTimestamp": -1}, {"issueTimestamp": 1 << 63}],
)  # fmt: skip
def test_nodes_that_make_no_sense(change: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        parse_token(json.dumps(json.loads(token_json(TOKEN)) | change).encode(), "id")


def test_paths_of_tokens() -> None:
    assert token_of(token_path("id")) == "id"
    for path in ("/delegation_token/tokens", "/delegation_token/tokens/", "/delegation_token/tokens/a/b", "/brokers/a"):
        assert token_of(path) is None
