"""The authorizer of a running broker, kept up to date with the access control lists of its cluster.

Source: kafka.security.authorizer.AclAuthorizer (its listener of changes).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kafkalite.api.request.admission import AdmissionEpoch
from kafkalite.api.request.request_context import Access
from kafkalite.common.clock import Clock
from kafkalite.common.log_lines import RateLimitedLogger
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.metadata.cluster_metadata import Change, ClusterMetadata
from kafkalite.security.acl.acl import Resource
from kafkalite.security.acl.authorizer import Authorizer

_audit_log = logging.getLogger("kafkalite.authorizer")


def follow_acls(
    config: BrokerConfig, metadata: ClusterMetadata, epoch: AdmissionEpoch, clock: Clock
) -> tuple[Access, Callable[[], None]]:
    """The access to this broker, and a function that ends its updates. Each change advances `epoch`."""
    authorizer = Authorizer(config.super_users, allow_everyone_if_no_acl_found=config.allow_everyone_if_no_acl_found)
    for resource, entries in metadata.acls.items():
        authorizer.acls.put(resource, entries)

    def on_change(change: Change, name: str) -> None:
        if change is Change.ACLS:
            resource = Resource.parse(name)
            authorizer.acls.put(resource, metadata.acls.get(resource, ()))
            authorizer.changed()
            epoch.advance()

    return Access(authorizer, RateLimitedLogger(clock, _audit_log.info)), metadata.listen(on_change)
