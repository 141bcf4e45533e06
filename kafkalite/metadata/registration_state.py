"""The states of this broker's registration with its cluster, as a table.

    UNREGISTERED -> MEMBER -> DISCONNECTED -> FENCED
                    ^ ^  |         |           |
                    | |  +---------|---------> |      the session has expired
                    | +------------+           |      connected again within the session
                    +--------------------------+      registered again

A broker that leaves its cluster (`ClusterMetadata.unregister`) is UNREGISTERED from any state. Absence from the table
means "not allowed": an event that comes too late for a state changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class RegistrationState(Enum):
    """The value is what the log says of it."""

    UNREGISTERED = "not registered"
    MEMBER = "registered"
    DISCONNECTED = "registered when it was last heard of: it may go on with what it leads, but nothing can be changed"
    FENCED = "the others have gone on without it: it leads nothing until it is registered again"


UNREGISTERED, MEMBER, DISCONNECTED, FENCED = RegistrationState

ENTERED_FROM: Mapping[RegistrationState, frozenset[RegistrationState]] = {
    UNREGISTERED: frozenset({MEMBER, DISCONNECTED, FENCED}),
    MEMBER: frozenset({UNREGISTERED, DISCONNECTED, FENCED}),
    DISCONNECTED: frozenset({MEMBER}),
    FENCED: frozenset({MEMBER, DISCONNECTED}),
}
