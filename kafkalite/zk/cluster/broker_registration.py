"""This broker's own node, /brokers/ids/N. If the node exists already, its owner decides:

    none                 create it
    this session         keep it: an answer was lost
    an own old session   a killed process or an expired session left it: delete it at once
    our addresses        perhaps an own old session that was not recorded: wait until it would have ended
    any other            two brokers have the same id, and this one does not start

Each registration has a number, which is the version of the node /kafkalite/registrations/N. That node stays when the
broker leaves. A registration raises it by a conditional write, and creates /brokers/ids/N in one transaction with a
check of it, so that a late request of an earlier process, or of an earlier session, registers nothing. In between a
broker whose logs may have lost records leaves ISRs and ELRs (`lost_tail`). The number is raised once more, and the node
marked, when the broker begins to stop. Fetches carry the number: KIP-903, with ZooKeeper.
Source: kafka.zk.KafkaZkClient.CheckedEphemeral (KAFKA-7165), kafka.server.KafkaServer.createBrokerInfo.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC
from typing import TYPE_CHECKING

from kafkalite.common.clock import Clock
from kafkalite.common.errors import ConfigError
from kafkalite.common.timestamps import format_timestamp
from kafkalite.config.listeners import ListenerConfig
from kafkalite.metadata.cluster_metadata import NO_REGISTRATION
from kafkalite.zk.client.operations import (
    BadVersion,
    Check,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    SetData,
)
from kafkalite.zk.cluster.registration_files import RegistrationFiles
from kafkalite.zk.cluster.session_file import SessionFile
from kafkalite.zk.znodes import znode_data, znode_paths

if TYPE_CHECKING:
    from kafkalite.zk.client.session import ZooKeeperSession

logger = logging.getLogger(__name__)

_MARGIN_MS = 3_000  # ZooKeeper ends sessions at a tick, which is 2 s or 3 s

Gone = Callable[[str, int], Awaitable[bool]]
"""Waits until there is no node at a path, or until a deadline of the monotonic clock. Returns whether it is gone."""


LeaveLists = Callable[[Check], Awaitable[None]]
"""Takes this broker out of the ISRs and ELRs of all partitions, by writes that go with this check."""


class BrokerRegistration:
    """The nodes of broker `broker_id` (negative until the start has generated one). `endpoints` is None as long as the
    registration is not wanted, `number` is that of the last one that was begun.

    Invariant: the number is raised before each registration, and the files have it before the broker is registered.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        own_sessions: SessionFile,
        files: RegistrationFiles,
        broker_id: int,
        clock: Clock,
        gone: Gone,
        leave_lists: LeaveLists,
    ) -> None:
        self._session = session
        self._own_sessions = own_sessions
        self._files = files
        self.broker_id = broker_id
        self._clock = clock
        self._gone = gone
        self._leave_lists = leave_lists
        self.endpoints: tuple[ListenerConfig, ...] | None = None
        self.rack: str | None = None
        self.number = NO_REGISTRATION
        self._version = NO_REGISTRATION  # of the node: one more than the number if the stop has been announced
        self._is_stopping = False
        self._was_registered = False  # by this process, which has lost no records since
        self._turn = asyncio.Lock()  # two registrations at once would outdate each other's number

    @property
    def path(self) -> str:
        return znode_paths.broker(self.broker_id)

    @property
    def number_path(self) -> str:
        return znode_paths.registration(self.broker_id)

    @property
    def paths(self) -> tuple[str, str]:
        return self.path, self.number_path

    def want(self, endpoints: tuple[ListenerConfig, ...], rack: str | None) -> None:
        """Set the registration for `hold`."""
        self.endpoints, self.rack, self._is_stopping = endpoints, rack, False

    def is_outdated(self, version: int) -> bool:
        """Whether the number has been raised, to this version of its node, by another writer."""
        return version > self._version

    async def remember_session(self) -> None:
        """Record this session on the disk before it owns a node: the next process needs it after a crash."""
        await asyncio.get_running_loop().run_in_executor(None, self._own_sessions.add, self._session.session_id)

    async def clear_old(self) -> None:
        """Delete the nodes that own old sessions left behind: the registration, and /controller."""
        held = [self.path, znode_paths.CONTROLLER]
        for path, node in zip(held, await self._session.read(held), strict=True):
            if node is not None and self._is_old(node):
                await self._clear(path, node)

    async def check_is_free(self, endpoints: tuple[ListenerConfig, ...]) -> None:
        """Raises ConfigError when the node belongs to a broker with other addresses than `endpoints`. Called by a start
        before it changes the disk."""
        (node,) = await self._session.read([self.path])
        if node is not None and not self._is_ours(node) and not _names(node, endpoints):
            raise self._taken(node)

    async def hold(self, *, patience_ms: int = 0) -> Node:
        """Ensure that the node exists and belongs to this session. If it may belong to an own old session, wait up to
        `patience_ms` (plus a margin) for its end, unless `patience_ms` is 0. Raises ConfigError, which names the broker
        that has the id, and Unavailable."""
        assert self.endpoints is not None
        broker = znode_data.BrokerNode(self.endpoints, self.rack, timestamp_ms=self._clock.wall_ms())
        data = znode_data.broker_json(broker)
        deadline_ms = self._clock.monotonic_ms() + (patience_ms + _MARGIN_MS if patience_ms else 0)
        await self.remember_session()
        while self.endpoints is not None:
            async with self._turn:
                node, life = await self._session.read([self.path, self.number_path])
                is_ours = node is not None and node.ephemeral_owner == self._session.session_id
                if node is None or (is_ours and (life is None or life.version != self._version)):
                    with suppress(NodeExists, BadVersion):  # another number, another session: read again
                        await self._begin_life(life, Create(self.path, data, ephemeral=True) if node is None else None)
                    continue
            if is_ours:
                if node.data != data and not _names(node, broker.endpoints, self.rack):
                    node = await self._renew(node, data)
                self._was_registered = True
                return node
            if self._is_old(node):
                await self._clear(self.path, node)
            elif patience_ms and _names(node, broker.endpoints):
                logger.warning(
                    "%s was left by a session 0x%x that names this broker's own addresses; waiting for its end",
                    self.path,
                    node.ephemeral_owner,
                )
                if not await self._gone(self.path, deadline_ms):
                    raise self._taken(node)
            else:
                raise self._taken(node)
        raise ConfigError(f"broker {self.broker_id} has left meanwhile")

    async def _begin_life(self, node: Node | None, registration: Create | None) -> None:
        """Raise the number, whose `node` was read, and register with it; None: this session is registered already.
        Raises OperationFailed when another writer was faster, and Unavailable."""
        if node is None:
            await self._session.make_paths([znode_paths.REGISTRATIONS])
            await self._session.write([Create(self.number_path, self._life_json(is_intact=False))])
        is_intact = not self._files.is_distrusted and (self._was_registered or self._files.vouch(node))
        before = 0 if node is None else node.version
        version = before + 1
        if is_intact:  # first: should this process be killed in between, the files are still known to be of this life
            await self._record(version)
        await self._session.write([SetData(self.number_path, self._life_json(is_intact=is_intact), before)])
        check = Check(self.number_path, version)
        if not is_intact:  # the files stay old until that is done: if this process cannot, the next one must
            await self._leave_lists(check)
            await self._record(version)
        self._version = version
        self.number = version - self._is_stopping  # leaders check it, and add no broker that stops to an ISR
        if registration is not None:
            await self._session.write([check, registration])
            addresses = _addresses(self.endpoints or ())
            logger.info("broker %d is registered at %s, with number %d", self.broker_id, addresses, self.number)

    def _life_json(self, *, is_intact: bool) -> bytes:
        return znode_data.registration_json(znode_data.RegistrationNode(self._is_stopping, is_intact))

    async def _record(self, number: int) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._files.record, number)

    async def announce_stop(self) -> None:
        """Mark the registration, and those that follow, as about to end. Raises Unavailable, after which it may have
        been marked, and OperationFailed."""
        self._is_stopping = True
        async with self._turn:
            (life,) = await self._session.read([self.number_path])
            if life is not None and life.version == self._version == self.number:
                known = znode_data.parse_registration(life.data)._replace(stopping=True)
                write = SetData(self.number_path, znode_data.registration_json(known), life.version)
                self._version += 1  # also if the answer is lost: no other writer uses this version
                with suppress(BadVersion, NoNode):
                    await self._session.write([write])

    async def release(self) -> None:
        """Delete the node if it belongs to this session."""
        self.endpoints = None
        if self._files.is_distrusted:  # the write to the disk may have failed: no file has the number that follows
            with suppress(NoNode, BadVersion):
                await self._session.write([SetData(self.number_path, self._life_json(is_intact=False), self._version)])
        (node,) = await self._session.read([self.path])
        if node is not None and node.ephemeral_owner == self._session.session_id:
            await self._clear(self.path, node)

    async def _renew(self, node: Node, data: bytes) -> Node:
        await self._session.write([SetData(self.path, data, node.version)])
        (now,) = await self._session.read([self.path])
        return now or node

    def _is_ours(self, node: Node) -> bool:
        return node.ephemeral_owner == self._session.session_id or self._is_old(node)

    def _is_old(self, node: Node) -> bool:
        owner = node.ephemeral_owner
        return owner != 0 and owner != self._session.session_id and owner in self._own_sessions

    async def _clear(self, path: str, node: Node) -> None:
        if self._is_old(node):
            logger.info("%s is of this broker's old session 0x%x and is deleted", path, node.ephemeral_owner)
        with suppress(NoNode, BadVersion):  # it expired, or was created again; callers read it again
            await self._session.write([Delete(path, node.version)])

    def _taken(self, node: Node) -> ConfigError:
        owner = f"session 0x{node.ephemeral_owner:x}" if node.ephemeral_owner else "made by hand"
        try:
            broker = znode_data.parse_broker(node.data)
        except ValueError:
            return ConfigError(f"broker.id={self.broker_id} is taken: {self.path} exists in ZooKeeper ({owner})")
        since = format_timestamp(broker.timestamp_ms, UTC, absent="an unknown time", unit="seconds")
        return ConfigError(
            f"broker.id={self.broker_id} is taken: the broker at {_addresses(broker.endpoints)} has been registered "
            f"with it since {since} ({owner}); give one of the two another broker.id"
        )


def _names(node: Node, endpoints: tuple[ListenerConfig, ...], rack: str | None = None) -> bool:
    """Whether the node has exactly these addresses and, if `rack` is given, this rack."""
    try:
        broker = znode_data.parse_broker(node.data)
    except ValueError:
        return False
    return set(map(str, broker.endpoints)) == set(map(str, endpoints)) and rack in (None, broker.rack)


def _addresses(endpoints: tuple[ListenerConfig, ...]) -> str:
    return ", ".join(map(str, endpoints)) or "an unknown address"
