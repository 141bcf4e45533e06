"""Random access control lists: Apache Kafka's AclAuthorizer and kafkalite's decide alike.

    pytest -m long tests/compatibility/differential/test_random_acls.py

Each round gives a user (an address) a few entries on topics, groups, transactional ids and the cluster, of all
operations, patterns and permissions; asks what it may do with three topics, two groups and the cluster, whether it may
be an idempotent and a transactional producer; and takes the entries away again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bench.reference import ReferenceUnavailable
from kafkalite.network.client_connection import ANONYMOUS
from kafkalite.protocol.messages.acls import AclCreation, CreateAclsRequest, DeleteAclsFilter, DeleteAclsRequest
from kafkalite.protocol.messages.groups import DescribeGroupsRequest
from kafkalite.protocol.messages.metadata import DescribeClusterRequest, MetadataRequest, MetadataRequestTopic
from kafkalite.protocol.messages.transactions import InitProducerIdRequest
from kafkalite.security.acl.acl import ANY_NAME, CLUSTER_NAME, OPERATIONS_OF, Operation, PatternType, Permission
from tests.compatibility.differential.brokers import kafkalite_broker, secured_kafka
from tests.compatibility.differential.cases_authorization import closed_to_others
from tests.compatibility.differential.engine import Story, Teller
from tests.support.authorization_cases import CLUSTER, GROUP, TOPIC, TRANSACTIONAL_ID

ROUNDS = 3_000
USER = "127.9.9.9"
TOPICS = ("aa", "ab", "b")
GROUPS = ("ga", "gb")
TRANSACTIONAL = "ta"
NAMES = {
    TOPIC: (*TOPICS, "a", "", ANY_NAME),
    GROUP: (*GROUPS, "g", ANY_NAME),
    CLUSTER: (CLUSTER_NAME,),
    TRANSACTIONAL_ID: (TRANSACTIONAL, "t", ANY_NAME),
}


def random_entries(rng: Random) -> list[AclCreation]:
    entries = []
    for _ in range(rng.randint(0, 5)):
        type_ = rng.choice((TOPIC, TOPIC, TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID))
        name = rng.choice(NAMES[type_]) or "aaa"
        pattern = PatternType.LITERAL
        if type_ is not CLUSTER and name != ANY_NAME and rng.random() < 0.4:
            pattern = PatternType.PREFIXED
        entries.append(
            AclCreation(
                resource_type=type_,
                resource_name=name,
                resource_pattern_type=pattern,
                principal=rng.choice((ANONYMOUS, ANONYMOUS, "User:*", "User:other")),
                host=USER,
                operation=rng.choice((Operation.ALL, *OPERATIONS_OF[type_])),
                permission_type=rng.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
            )
        )
    return entries


def decisions(t: Teller, entries: list[AclCreation]) -> list[Any]:
    """The bit fields and error codes of one round."""
    gone = DeleteAclsFilter(
        resource_type_filter=1, pattern_type_filter=1, host_filter=USER, operation=1, permission_type=1
    )
    if entries:
        made = t.aside(CreateAclsRequest(creations=entries), 2)
        assert not any(each.error_code for each in made.results), made
    named = [MetadataRequestTopic(name=each) for each in TOPICS]
    about_topics = t.aside(MetadataRequest(topics=named, include_topic_authorized_operations=True), 9, by=USER)
    about_groups = t.aside(DescribeGroupsRequest(groups=list(GROUPS), include_authorized_operations=True), 4, by=USER)
    cluster = t.aside(DescribeClusterRequest(include_cluster_authorized_operations=True), 0, by=USER)
    found: list[Any] = sorted(
        (each.name, each.error_code, each.topic_authorized_operations) for each in about_topics.topics
    )
    found += sorted((each.group_id, each.error_code, each.authorized_operations) for each in about_groups.groups)
    found.append(cluster.cluster_authorized_operations)
    for name in (None, TRANSACTIONAL):
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1_000)
        found.append(t.aside(request, 4, by=USER).error_code)
    t.aside(DeleteAclsRequest(filters=[gone]), 2)
    return found


@contextlib.contextmanager
def teller(address: tuple[str, int]) -> Iterator[Teller]:
    told = Teller(address, "random-acls", Story(closed_to_others, (0,)), 0)
    try:
        closed_to_others(told)
        for name in TOPICS:
            told.named_topic(name, name)
        for name in GROUPS:
            told.coordinated(name)
        told.coordinated_id(TRANSACTIONAL)
        yield told
    finally:
        told.close()


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_both_decide_alike(tmp_path: Path) -> None:
    rng = Random(290)
    with contextlib.ExitStack() as stack:
        try:
            theirs = stack.enter_context(teller(stack.enter_context(secured_kafka(tmp_path / "theirs"))))
        except ReferenceUnavailable as reason:
            pytest.skip(str(reason))
        ours = stack.enter_context(teller(stack.enter_context(kafkalite_broker(tmp_path / "ours", "authorization"))))
        for number in range(ROUNDS):
            entries = random_entries(rng)
            assert decisions(ours, entries) == decisions(theirs, entries), f"round {number}: {entries}"
