"""The limit of partitions in one request of an administrator.

A partition takes four bytes of a request and hundreds in memory, so that a request of allowed size could name millions.
No cluster has that many; who has more than the limit asks in several requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized

from kafkalite.common.errors import Disconnect

PARTITIONS_MAX = 100_000


def check_partition_count(topics: Iterable[Sized]) -> None:
    """Raises Disconnect for too many partitions, given those of each topic: some of these requests have no room for an
    error of their own."""
    count = sum(map(len, topics))
    if count > PARTITIONS_MAX:
        raise Disconnect(f"a request for {count} partitions: more than {PARTITIONS_MAX}")
