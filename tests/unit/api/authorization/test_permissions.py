"""The table of permissions, and each API as a principal meets it that may do one thing and no other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from kafkalite.api.authorization.permissions import PERMISSIONS, Cluster, Each, Named, Special
from kafkalite.api.dispatch import HANDLERS
from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.apis import API_OF_REQUEST, APIS, SERVED
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.messages import metadata
from kafkalite.security.acl.acl import Entry, Operation, Permission, Resource, ResourceType
from kafkalite.server.broker import Broker
from tests.support.authorization_cases import C31, CASES, G30, T29, X53, Names
from tests.unit.api.conftest import Asker

ALICE = "User:alice"
ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
NONE = ErrorCode.NONE
REFUSALS = {T29, G30, C31, X53, ErrorCode.OPERATION_NOT_ATTEMPTED}


def test_every_api_has_a_row_and_every_special_rule_a_function() -> None:
    missing = {api.name for api in SERVED.values()} - PERMISSIONS.keys()
    assert not missing, "APIs without a row"
    assert HANDLERS.keys() <= PERMISSIONS.keys()
    for rules in PERMISSIONS.values():
        for rule in rules:
            assert isinstance(rule, Cluster | Named | Each | Special)


def test_the_fields_that_rules_name_exist() -> None:
    for api in SERVED.values():
        for rule in PERMISSIONS[api.name]:
            if isinstance(rule, Named):
                assert rule.field in api.request.__fields__


def codes(message: Message) -> Iterable[int]:
    """All error codes in an answer."""
    for name, field in message.__fields__.items():
        value = getattr(message, name)
        if name.endswith("error_code"):
            yield value
        elif field.is_array and value and isinstance(value[0], Message):
            for each in value:
                yield from codes(each)


def be_alice(broker: Broker) -> None:
    running: Any = broker._running
    for processor in running.server.processors:
        for connection in processor.connections:
            connection.client.principal = ALICE


async def allow(broker: Broker, needs: Iterable[tuple[Operation, ResourceType]]) -> None:
    running: Any = broker._running
    for operation, type_ in needs:
        entry = Entry(ALICE, Permission.ALLOW, operation)
        await running.metadata.change_acls(
            Resource(type_, Names().of(type_)), lambda there, entry=entry: (*there, entry)
        )


ONE_BY_ONE = [(name, missing) for name, (_, _, needs) in CASES.items() for missing in (None, *needs)]


@pytest.mark.parametrize(("name", "missing"), ONE_BY_ONE)
def test_each_need_is_enough_and_is_needed(
    tell: Callable[..., None], name: str, missing: tuple[Operation, ResourceType] | None
) -> None:
    make, version, needs = CASES[name]

    async def story(asker: Asker, broker: Broker) -> None:
        running: Any = broker._running
        if name != "create a topic":
            await running.topic_admin.create("t", 1, {})
        await running._services.offsets_topic.ensure()
        await asker.ask(metadata.MetadataRequest(topics=[]), 9)  # accepted
        be_alice(broker)
        await allow(broker, [each for each in needs if each != missing])
        found = set(codes(await asker.ask(make(Names()), version)))
        if missing is None:
            assert not found & REFUSALS
        else:
            assert needs[missing] in found, found
            assert found <= {NONE, needs[missing]}

    tell(story, authorizer_class_name=ACL_AUTHORIZER, super_users="User:admin", auto_create_topics_enable=False)


def test_all_cases_together_know_every_api_with_a_rule() -> None:
    told = {API_OF_REQUEST[type(make(Names()))].name for make, _, _ in CASES.values()}
    beside = {
        "ListGroups",
        "ListTransactions",
        "DescribeCluster",
        "AlterReplicaLogDirs",
        "CreateDelegationToken",  # these need a login: tests/system/security/test_delegation_tokens.py
        "RenewDelegationToken",
        "ExpireDelegationToken",
        "DescribeDelegationToken",
    }
    ruled = {api.name for api in APIS.values() if PERMISSIONS[api.name]}
    assert ruled - told <= beside
