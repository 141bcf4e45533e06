"""Authorized operations as bit fields: without an authorizer, all operations of the resource type.

Source: org.apache.kafka.common.acl.AclOperation, kafka.security.authorizer.AclEntry, KIP-430.
"""

from __future__ import annotations

from kafkalite.security.acl.acl import OPERATIONS_OF, ResourceType


def _all_of(type_: ResourceType) -> int:
    return sum(1 << operation for operation in OPERATIONS_OF[type_])


NOT_ASKED = -(1 << 31)
TOPIC_OPERATIONS = _all_of(ResourceType.TOPIC)
CLUSTER_OPERATIONS = _all_of(ResourceType.CLUSTER)
GROUP_OPERATIONS = _all_of(ResourceType.GROUP)
