"""Numbers of the requests of share groups, for metrics.

Source: org.apache.kafka.server.share.metrics.ShareGroupMetrics, the share metrics of BrokerTopicMetrics, and
kafka.server.share.DelayedShareFetch (4.3).
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkalite.common.metrics import LatestValues
from kafkalite.protocol.messages.share_fetch import AcknowledgementBatch


class ShareTraffic:
    """Since the start of this broker. Requests count once for each of their topics, as in Kafka.

    `acknowledged` are records by the type of their acknowledgement, `fetch_ratios` of each group the percentage of the
    partitions of a fetch that had something to acquire or room for it.
    """

    __slots__ = (
        "acknowledged", "acknowledgements", "expired_fetches", "failed_acknowledgements", "failed_fetches",
        "fetch_ratios", "fetches",
    )  # fmt: skip

    def __init__(self) -> None:
        self.fetches = 0
        self.failed_fetches = 0
        self.expired_fetches = 0  # they waited for as long as their clients wanted
        self.acknowledgements = 0
        self.failed_acknowledgements = 0
        self.acknowledged: dict[int, int] = {}
        self.fetch_ratios: dict[str, LatestValues] = {}

    def count_acknowledged(self, batches: Iterable[AcknowledgementBatch]) -> None:
        """Count the records of acknowledgements that were made."""
        acknowledged = self.acknowledged
        for batch in batches:
            types = batch.acknowledge_types
            if len(types) == 1:
                count = batch.last_offset - batch.first_offset + 1
                acknowledged[types[0]] = acknowledged.get(types[0], 0) + count
            else:
                for kind in set(types):
                    acknowledged[kind] = acknowledged.get(kind, 0) + types.count(kind)

    def count_ratio(self, group_id: str, ready: int, asked: int) -> None:
        """Count a fetch of which `ready` of the `asked` partitions could be acquired from."""
        ratios = self.fetch_ratios.get(group_id)
        if ratios is None:
            ratios = self.fetch_ratios[group_id] = LatestValues()
        ratios.add(100 * ready // asked)

    def forget_group(self, group_id: str) -> None:
        """The group has no session here."""
        self.fetch_ratios.pop(group_id, None)
