"""The znodes of access control lists, with data as Apache Kafka 3.9.1 wrote them."""

from __future__ import annotations

import pytest

from kafkalite.security.acl.acl import Entry, Operation, PatternType, Permission, Resource, ResourceType
from kafkalite.zk.znodes import acl_nodes

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
    assert acl_nodes.acl_json(ENTRIES) == GOLDEN
    assert acl_nodes.parse_acls(GOLDEN) == ENTRIES
    assert acl_nodes.parse_acls(b"") == ()


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
    assert acl_nodes.path_of(resource) == path
    assert acl_nodes.resource_of(path) == resource


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
    assert acl_nodes.resource_of(path) is None


def test_notifications() -> None:
    assert acl_nodes.change_of(TOPIC) == ("/kafka-acl-changes/acl_changes_", b"TOPIC:orders")
    path, data = acl_nodes.change_of(PREFIX)
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
        acl_nodes.parse_acls(data)
