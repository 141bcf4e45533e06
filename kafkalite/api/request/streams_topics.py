"""The internal topics of groups of Kafka Streams, created for members that lack them and with their rights.

A heartbeat does not wait for them: it says that they are missing, and a later one finds them. The error of a creation
that failed is kept for two heartbeats, and the topic is not tried again meanwhile.
Source: kafka.server.AutoTopicCreationManager (createStreamsInternalTopics, ExpiringErrorCache; 4.3).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

from kafkalite.api.request.request_context import RequestContext, Runtime
from kafkalite.common.errors import ErrorCode
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.coordinator.group.streams.topology import UNDECIDED, InternalTopic
from kafkalite.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
)

logger = logging.getLogger(__name__)

ERRORS_MAX = 1_000
_BY_DEFAULT = -1  # a replication factor

CreateTopics = Callable[[list[CreatableTopic], RequestContext], Awaitable[Sequence[CreatableTopicResult]]]


class _Failure(NamedTuple):
    message: str
    until_ms: int


class StreamsTopics:
    """`create` creates topics with the rights and the quota of the client of a request."""

    def __init__(self, runtime: Runtime, create: CreateTopics) -> None:
        self._runtime = runtime
        self._create = create
        self._in_flight: set[str] = set()
        self._failures: dict[str, _Failure] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def create(self, topics: Iterable[InternalTopic], context: RequestContext, keep_errors_ms: int) -> None:
        """Begin to create the topics, but for those that are being created or have failed lately."""
        now_ms = self._runtime.clock.monotonic_ms()
        failed = {name for name, failure in self._failures.items() if failure.until_ms > now_ms}
        wanted = [each for each in topics if each.name not in self._in_flight | failed]
        if not wanted:
            return
        self._in_flight.update(each.name for each in wanted)
        task = self._runtime.loop.create_task(self._carry_out(wanted, context, keep_errors_ms))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def errors_of(self, names: Collection[str]) -> dict[str, str]:
        """The errors of late creations, by topic."""
        now_ms = self._runtime.clock.monotonic_ms()
        found = ((name, self._failures.get(name)) for name in names)
        return {name: failure.message for name, failure in found if failure is not None and failure.until_ms > now_ms}

    async def close(self) -> None:
        """Creations that were begun end."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _carry_out(self, topics: Sequence[InternalTopic], context: RequestContext, keep_errors_ms: int) -> None:
        try:
            results = await self._create([_creatable(each) for each in topics], context)
        except Exception as fault:
            logger.exception("internal topics could not be created")
            errors = dict.fromkeys((each.name for each in topics), str(fault) or type(fault).__name__)
        else:
            errors = {
                each.name: each.error_message or ErrorCode(each.error_code).name for each in results if each.error_code
            }
        finally:
            self._in_flight.difference_update(each.name for each in topics)
        until_ms = self._runtime.clock.monotonic_ms() + keep_errors_ms
        for name, message in errors.items():
            logger.warning("internal topic %s could not be created: %s", name, message)
            self._keep(name, _Failure(message, until_ms))

    def _keep(self, name: str, failure: _Failure) -> None:
        now_ms = self._runtime.clock.monotonic_ms()
        self._failures = {each: known for each, known in self._failures.items() if known.until_ms > now_ms}
        self._failures[name] = failure
        if len(self._failures) > ERRORS_MAX:
            del self._failures[min(self._failures, key=lambda each: self._failures[each].until_ms)]


def _creatable(topic: InternalTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=_BY_DEFAULT if topic.replication_factor == UNDECIDED else topic.replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in topic.configs],
    )
