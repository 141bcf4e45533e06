"""Access control lists as an administrator sees and changes them: requests of our own commands and the mirror.

Source: org.apache.kafka.clients.admin.KafkaAdminClient (describeAcls, createAcls, deleteAcls).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafkalite.client.blocking_client import name_of_error
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.common.errors import Unanswered
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.protocol.messages import acls as wire
from kafkalite.protocol.messages.metadata import AUTHORIZED_OPERATIONS_OMITTED
from kafkalite.security.acl.acl import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType

_VERSION = 2


FIELDS = ("resource", "name", "pattern", "principal", "host", "operation", "permission")
"""The fields of an entry in words."""
RESOURCES = tuple(one.name.lower() for one in ResourceType if one is not ResourceType.ANY)
PATTERNS = tuple(one.name.lower() for one in (PatternType.LITERAL, PatternType.PREFIXED))
OPERATIONS = tuple(one.name for one in Operation if one is not Operation.ANY)
PERMISSIONS = tuple(one.name for one in (Permission.ALLOW, Permission.DENY))


def operation_names(bits: int) -> list[str] | None:
    """The operations of a bit field of authorized operations (KIP-430); None if the broker did not report them."""
    return None if bits == AUTHORIZED_OPERATIONS_OMITTED else [one.name for one in Operation if bits >> one & 1]


class Entry(NamedTuple):
    """An entry, or with ANY and None a filter for entries."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    @classmethod
    def of(cls, words: Mapping[str, str]) -> Entry:
        """The entry of the words that `words` returns."""
        resource = ResourceType[words["resource"].upper()]
        return cls(
            resource,
            CLUSTER_NAME if resource is ResourceType.CLUSTER else words["name"],
            PatternType[words["pattern"].upper()],
            words["principal"],
            words["host"],
            Operation[words["operation"]],
            Permission[words["permission"]],
        )

    def words(self) -> tuple[str | None, ...]:
        """The entry in words, in the order of FIELDS."""
        return (
            ResourceType(self.resource_type).name.lower(),
            self.resource_name,
            PatternType(self.pattern_type).name.lower(),
            self.principal,
            self.host,
            Operation(self.operation).name,
            Permission(self.permission).name,
        )


ALL = Entry(ResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY)
"""The filter that finds every entry."""


def list_entries(cluster: ClusterClient, wanted: Entry) -> list[Entry]:
    """The entries that a filter finds. Raises Unanswered."""
    request = wire.DescribeAclsRequest(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.resource_name,
        pattern_type_filter=wanted.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )
    answer = cluster.first.ask(request, _VERSION)
    if answer.error_code:
        raise Unanswered(
            f"the access control lists cannot be read: {answer.error_message or name_of_error(answer.error_code)}"
        )
    return sorted(
        Entry(
            each.resource_type,
            each.resource_name,
            each.pattern_type,
            one.principal,
            one.host,
            one.operation,
            one.permission_type,
        )
        for each in answer.resources
        for one in each.acls
    )


def add_entries(cluster: ClusterClient, entries: Sequence[Entry]) -> None:
    """Raises Unanswered for the first entry that is refused."""
    creations = [
        wire.AclCreation(
            resource_type=one.resource_type,
            resource_name=one.resource_name or "",
            resource_pattern_type=one.pattern_type,
            principal=one.principal or "",
            host=one.host or "",
            operation=one.operation,
            permission_type=one.permission,
        )
        for one in entries
    ]
    answer = cluster.controller().ask(wire.CreateAclsRequest(creations=creations), _VERSION)
    for result in answer.results:
        if result.error_code:
            raise Unanswered(f"an entry is not added: {result.error_message or name_of_error(result.error_code)}")


def remove_entries(cluster: ClusterClient, filters: Sequence[Entry]) -> int:
    """Removes all entries that these filters find. Returns how many. Raises Unanswered."""
    wanted = [
        wire.DeleteAclsFilter(
            resource_type_filter=one.resource_type,
            resource_name_filter=one.resource_name,
            pattern_type_filter=one.pattern_type,
            principal_filter=one.principal,
            host_filter=one.host,
            operation=one.operation,
            permission_type=one.permission,
        )
        for one in filters
    ]
    answer = cluster.controller().ask(wire.DeleteAclsRequest(filters=wanted), _VERSION)
    removed = 0
    for result in answer.filter_results:
        for one in (result, *result.matching_acls):
            if one.error_code:
                raise Unanswered(f"entries are not removed: {one.error_message or name_of_error(one.error_code)}")
        removed += len(result.matching_acls)
    return removed
