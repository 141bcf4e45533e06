"""RunCleaner as the console sends it: compaction of some partitions, begun and not waited for."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalite.client.blocking_client import BlockingClient, Unanswered, name_of_error
from kafkalite.protocol.messages.cleaner import RunCleanerRequest

_VERSION = 0


def compact(client: BlockingClient, topic: str, partitions: Sequence[int], rolls: bool) -> dict[int, str | None]:
    """The broker's sentence about each partition, None for one that is queued. Raises Unanswered for a refusal."""
    request = RunCleanerRequest(topic=topic, partitions=list(partitions), rolls=rolls, waits=False, timeout_ms=0)
    answer = client.ask(request, _VERSION)
    if answer.error_code:
        raise Unanswered(answer.error_message or name_of_error(answer.error_code))
    return {
        one.partition_index: one.message or (name_of_error(one.error_code) if one.error_code else None)
        for one in answer.partitions
    }
