"""The users of SCRAM of a broker that does not run: in its journal, or in the ZooKeeper of its cluster.

So users exist before the first start: brokers that log in to each other by SCRAM need them then. In ZooKeeper they are
written as kafka-configs --zookeeper does it, and brokers that run take them over at once.
Source: kafka.admin.ConfigCommand (Kafka 2.7), kafka.zk.AdminZkClient.changeUserOrUserClientIdConfig.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from kafkalite.common.clock import SystemClock
from kafkalite.common.errors import ConfigError
from kafkalite.common.names import desanitized, sanitized
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.log.directories.log_directories import LogDirectories
from kafkalite.log.directories.log_manager import LogManager
from kafkalite.metadata.cluster_metadata import ChangeConfig
from kafkalite.metadata.metadata_journal import JOURNAL_NAME
from kafkalite.security.sasl.scram import MECHANISMS, ScramCredential, parse_credential
from kafkalite.server.membership.single_broker import SingleBroker
from kafkalite.zk.client.operations import BadVersion, Create, NodeExists, NoNode, OperationFailed, SetData, Unavailable
from kafkalite.zk.client.session import ZooKeeperSession
from kafkalite.zk.client.zookeeper_config import ZooKeeperConfig
from kafkalite.zk.znodes import znode_paths
from kafkalite.zk.znodes.znode_data import config_change_json, config_json, parse_config

_ATTEMPTS = 10
_PREFIX = "users/"
_DEFAULT = "<default>"
Credentials = Mapping[str, ScramCredential]
"""By mechanism."""


ReadAll = Callable[[], Awaitable[Mapping[str, Mapping[str, str]]]]
"""The configs of users, by their paths as in `ClusterMetadata.entity_configs`."""


class StoredUsers:
    """Users by name. A user with quotas only, without credentials, is left out. `change` is as in `MetadataWrites`."""

    def __init__(self, read_all: ReadAll, change: Callable[[str, ChangeConfig], Awaitable[None]]) -> None:
        self._read_all = read_all
        self._change = change

    async def all(self) -> dict[str, Credentials]:
        """All users with their credentials. Raises ValueError for an invalid credential."""
        found = {}
        for path, config in (await self._read_all()).items():
            name = path.removeprefix(_PREFIX)
            credentials = {each: parse_credential(config[each]) for each in MECHANISMS if each in config}
            if credentials and path != name and "/" not in name and name != _DEFAULT:
                found[desanitized(name)] = credentials
        return dict(sorted(found.items()))

    async def put(self, name: str, credentials: Credentials) -> None:
        """Add these to the user, in place of those of the same mechanisms."""
        texts = {mechanism: credential.text for mechanism, credential in credentials.items()}
        await self._change(_PREFIX + sanitized(name), lambda there: {**there, **texts})

    async def remove(self, name: str, mechanisms: frozenset[str]) -> None:
        await self._change(
            _PREFIX + sanitized(name),
            lambda there: {key: text for key, text in there.items() if key not in mechanisms},
        )


@asynccontextmanager
async def stored_users(config: BrokerConfig) -> AsyncIterator[StoredUsers]:
    """The users of the broker with these settings. Raises ConfigError if they cannot be reached, or not be kept."""
    async with AsyncExitStack() as closing:
        if config.zookeeper_connect is None:
            yield await _in_journal(config, closing)
        else:
            users = await _in_zookeeper(config, closing)
            try:
                yield users
            except (Unavailable, OperationFailed) as fault:
                raise ConfigError(f"zookeeper.connect={config.zookeeper_connect}: {fault}") from None


def _has_journal(directories: LogDirectories) -> bool:
    return any(os.path.exists(each.path_of(JOURNAL_NAME)) for each in directories.online)


async def _in_journal(config: BrokerConfig, closing: AsyncExitStack) -> StoredUsers:
    logs = LogManager(config.data_dirs, SystemClock(asyncio.get_running_loop()), config)
    closing.callback(logs.close)
    directories = logs.directories
    if (directories.was_used_by_another or not _has_journal(directories)) and directories.stored_topics():
        raise ConfigError(
            f"another broker was the last to run on {config.data_dirs[0]}: start kafkalite on it once, so that it "
            "takes over what is there, and add users then"
        )
    metadata = SingleBroker(config, directories, adopts=False).metadata
    await metadata.start()
    closing.push_async_callback(metadata.stop)

    async def read_all() -> Mapping[str, Mapping[str, str]]:
        return metadata.entity_configs

    return StoredUsers(read_all, metadata.change_entity_config)


async def _in_zookeeper(config: BrokerConfig, closing: AsyncExitStack) -> StoredUsers:
    session = ZooKeeperSession(ZooKeeperConfig.of(config), on_change=lambda _: None, on_state=lambda _: None)
    await session.start()
    closing.push_async_callback(session.stop)

    async def read_all() -> Mapping[str, Mapping[str, str]]:
        parent = f"{znode_paths.CONFIG}/{znode_paths.CONFIG_USERS}"
        (names,) = await session.children([parent])
        paths = [_PREFIX + name for name in names or ()]
        nodes = await session.read([f"{znode_paths.CONFIG}/{path}" for path in paths])
        return {path: parse_config(node.data) for path, node in zip(paths, nodes, strict=True) if node is not None}

    async def change_config(path: str, change: ChangeConfig) -> None:
        node_path = f"{znode_paths.CONFIG}/{path}"
        await session.make_paths((node_path.rpartition("/")[0], znode_paths.CONFIG_CHANGES))
        notification = Create(znode_paths.CONFIG_CHANGE, config_change_json(path), sequential=True)
        for _ in range(_ATTEMPTS):
            (node,) = await session.read([node_path])
            data = config_json(change(parse_config(node.data) if node is not None else {}))
            write = Create(node_path, data) if node is None else SetData(node_path, data, node.version)
            with suppress(BadVersion, NodeExists, NoNode):
                await session.write([write, notification])
                return
        raise ConfigError(f"others keep changing {node_path} in ZooKeeper at the same time; try again")

    return StoredUsers(read_all, change_config)
