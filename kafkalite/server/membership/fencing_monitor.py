"""Detects, without ZooKeeper, that this broker was removed from the cluster, by asking the other brokers.

A broker that is cut off from ZooKeeper does not see its own session expire. If the other brokers still reach ZooKeeper,
they have removed it from their list of brokers by then. If ZooKeeper is down for all, their lists still contain this
broker. So one broker without this one in its list, a witness, is sufficient reason to stop leading; no answer, or a
list with this broker in it, is not.

An answer counts only if it comes from this cluster, from a broker that is in its own list, and with metadata at least
as new as this broker's registration: a broker that lost ZooKeeper before the registration lacks this one as well. (The
ordinary Metadata response is not sufficient: it lists only brokers that have the listener of the request.)
Kafka has no equivalent: its brokers continue to lead until they reach ZooKeeper again.
Source: Metadata, with kafkalite's own tagged field.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from kafkalite.client.broker_channel import BrokerChannel, BrokerUnreachable, SecurityTo, without_security
from kafkalite.common.clock import Clock, Timer, within
from kafkalite.config.listeners import ListenerConfig
from kafkalite.metadata.cluster_metadata import BrokerRecord, Change, ClusterMetadata, RegistrationState
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.server.membership.inter_broker_requests import inter_broker_endpoints

logger = logging.getLogger(__name__)

_ASK_AGAIN_MS = 1_000
_BROKERS_MAX = 32  # one witness is enough
_VERSION = 9  # the first with tagged fields

FindWitness = Callable[[], Awaitable[int | None]]
"""Returns the id of a broker that reports that this one is no member; None if no broker does."""


class FencingMonitor:
    """Calls `find_witness` when ZooKeeper has been out of reach for `session_timeout_ms`, and every second from then
    on. If it returns a witness, calls `fence` with the reason to stop leading."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        clock: Clock,
        session_timeout_ms: int,
        find_witness: FindWitness,
        fence: Callable[[str], None],
    ) -> None:
        self.session_timeout_ms = session_timeout_ms
        self._metadata = metadata
        self._clock = clock
        self._find_witness = find_witness
        self._fence = fence
        self._timer: Timer | None = None
        self._asking: asyncio.Task[None] | None = None
        self._unlisten: Callable[[], None] = lambda: None

    def start(self) -> None:
        self._unlisten = self._metadata.listen(self._on_change)

    async def stop(self) -> None:
        self._unlisten()
        self._unlisten = lambda: None
        asking = self._asking
        self._cancel()
        if asking is not None:
            await asyncio.wait({asking})

    def _is_disconnected(self) -> bool:
        return self._metadata.registration_state is RegistrationState.DISCONNECTED

    def _on_change(self, change: Change, name: str) -> None:
        if change is not Change.REGISTRATION:
            return
        if not self._is_disconnected():
            self._cancel()
        elif self._timer is None and self._asking is None:
            self._timer = self._clock.call_later(self.session_timeout_ms, self._begin_asking)

    def _begin_asking(self) -> None:
        self._timer = None
        self._asking = asyncio.ensure_future(self._ask())

    async def _ask(self) -> None:
        try:
            witness = await self._find_witness()
        finally:
            self._asking = None
        if not self._is_disconnected():
            return
        if witness is not None:
            self._fence(
                f"it cannot reach ZooKeeper, and broker {witness} reports that the cluster continues without it"
            )
        else:
            self._timer = self._clock.call_later(_ASK_AGAIN_MS, self._begin_asking)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._asking is not None:
            self._asking.cancel()


async def find_witness(
    us: BrokerRecord,
    cluster_id: str,
    others: Iterable[BrokerRecord],
    clock: Clock,
    timeout_ms: float,
    *,
    listener: ListenerConfig | None = None,
    security_to: SecurityTo = without_security,
) -> int | None:
    """The first of `others` to report that `us` is no member of `cluster_id`; None if no broker does within
    `timeout_ms`. All are asked at the same time, at their last known addresses: at `listener` if they have it, else at
    all listeners. Raises only CancelledError."""
    addresses = [(each.broker_id, endpoint) for each in others for endpoint in inter_broker_endpoints(each, listener)]

    async def first() -> int | None:
        questions: dict[asyncio.Future[bool], int] = {}
        for broker_id, endpoint in addresses[:_BROKERS_MAX]:
            find = {broker_id: endpoint}.get
            channel = BrokerChannel(find, clock, "kafkalite-peer", int(timeout_ms), security_to, broker_id)
            questions[asyncio.ensure_future(_misses(us, cluster_id, channel))] = broker_id
        pending = set(questions)
        try:
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for question in done:
                    if question.result():
                        return questions[question]
            return None
        finally:
            for question in questions:
                question.cancel()
            await asyncio.gather(*questions, return_exceptions=True)

    try:
        return await within(clock, timeout_ms, first())
    except TimeoutError:
        return None


async def _misses(us: BrokerRecord, cluster_id: str, channel: BrokerChannel) -> bool:
    """Whether the broker there knows the cluster and has no such broker in it. False if it cannot be asked."""
    try:
        response = await channel.ask(MetadataRequest(topics=[], is_missing=us.broker_id), _VERSION)
    except BrokerUnreachable as error:
        logger.debug("no answer to whether this broker is a member: %s", error)
        return False
    finally:
        channel.close()
    return bool(response.cluster_id == cluster_id and response.missing_at >= us.epoch)
