"""A cluster as a producer sees it: leaders of partitions, limits of topics, coordinators, connections to brokers.

Metadata is asked anew when a leader has moved. A single broker is asked over the first connection, regardless of the
address that it advertises.
Source: org.apache.kafka.clients.{Metadata, NetworkClient, producer.internals.ProducerMetadata}.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

from kafkalite.client.blocking_client import BlockingClient, Unanswered
from kafkalite.client.client_security import ClientSecurity
from kafkalite.common.names import TopicPartition
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkalite.protocol.messages.group_admin import FindCoordinatorRequest
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkalite.protocol.messages.producer_ids import InitProducerIdRequest

_METADATA_VERSION = 9
_DESCRIBE_CONFIGS_VERSION = 2
_FIND_COORDINATOR_VERSION = 3
_INIT_PRODUCER_ID_VERSION = 2
GROUP_KEY, TRANSACTION_KEY = 0, 1  # types of keys in FindCoordinator
_TOPIC_RESOURCE = 2
_MAX_MESSAGE_BYTES = "max.message.bytes"
_MAX_MESSAGE_BYTES_DEFAULT = 1_048_588


class Cluster:
    """Connections are made when they are needed. Produces have connections of their own: other requests do not wait
    behind them. Raises Unanswered when a broker cannot be reached; the next attempt makes a new connection."""

    def __init__(self, bootstrap_servers: str, timeout_s: float, security: ClientSecurity | None = None) -> None:
        self._security = security
        self._servers = [server.strip() for server in bootstrap_servers.split(",") if server.strip()]
        self._timeout_s = timeout_s
        self._clients: dict[tuple[str, str], BlockingClient] = {}  # by purpose and address
        self._addresses: dict[int, str] = {}  # of the brokers, by id
        self._controller_id = -1
        self.leaders: dict[TopicPartition, int] = {}

    def close(self) -> None:
        for client in list(self._clients.values()):
            self.drop(client)

    def drop(self, client: BlockingClient) -> None:
        """Close a connection that is of no use any more."""
        with contextlib.suppress(OSError):
            client.__exit__(None, None, None)
        self._clients = {key: each for key, each in self._clients.items() if each is not client}

    # --- topics

    def refresh(self, topics: Iterable[str]) -> dict[str, int]:
        """Ask for the leaders of these topics; returns the error code of each topic. Topics are created where the
        broker does so."""
        wanted = [MetadataRequestTopic(name=topic) for topic in topics]
        client = self._any()
        metadata = self.ask(client, MetadataRequest(topics=wanted), _METADATA_VERSION)
        self._addresses = {broker.node_id: _address(broker.host, broker.port) for broker in metadata.brokers}
        self._controller_id = metadata.controller_id
        if len(self._addresses) == 1:
            self._addresses = dict.fromkeys(self._addresses, client.address)
        errors = {}
        for topic in metadata.topics:
            errors[topic.name] = topic.error_code
            for one in topic.partitions:
                self.leaders[topic.name, one.partition_index] = one.leader_id
        return errors

    def partition_count(self, topic: str) -> int:
        return sum(name == topic for name, _ in self.leaders)

    def max_batch_bytes(self, topic: str) -> int:
        """The topic's max.message.bytes; Kafka's default where it may not be asked for."""
        resource = DescribeConfigsResource(
            resource_type=_TOPIC_RESOURCE, resource_name=topic, configuration_keys=[_MAX_MESSAGE_BYTES]
        )
        request = DescribeConfigsRequest(resources=[resource])
        response = self.ask(self._any(), request, _DESCRIBE_CONFIGS_VERSION)
        for result in response.results:
            for config in result.configs:
                if config.name == _MAX_MESSAGE_BYTES and config.value is not None:
                    return int(config.value)
        return _MAX_MESSAGE_BYTES_DEFAULT

    # --- producers

    def init_producer_id(self, transactional_id: str | None, transaction_timeout_ms: int) -> tuple[int, int, int]:
        """(error code, producer id, epoch), from any broker or from the coordinator of the transactional id."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=transaction_timeout_ms
        )
        client = self._any() if transactional_id is None else self.coordinator(transactional_id)
        if isinstance(client, int):
            return client, -1, -1
        response = self.ask(client, request, _INIT_PRODUCER_ID_VERSION)
        return response.error_code, response.producer_id, response.producer_epoch

    def coordinator(self, key: str, key_type: int = TRANSACTION_KEY) -> BlockingClient | int:
        """A connection to the coordinator of a transactional id or of a group, or the error code if there is none
        now."""
        client = self._any()
        request = FindCoordinatorRequest(key=key, key_type=key_type)
        found = self.ask(client, request, _FIND_COORDINATOR_VERSION)
        if found.error_code:
            code: int = found.error_code
            return code
        if len(self._addresses) == 1:
            return client
        return self._connect("coordinator", _address(found.host, found.port))

    # --- connections

    def leader(self, broker_id: int) -> BlockingClient:
        """The connection for produces to this broker. Raises Unanswered if the cluster does not have it now."""
        if broker_id not in self._addresses:
            raise Unanswered(f"broker {broker_id} is not in the cluster now")
        return self._connect("produce", self._addresses[broker_id])

    def broker(self, broker_id: int) -> BlockingClient:
        """The connection for other requests to this broker."""
        return self._connect("admin", self._addresses[broker_id])

    def controller(self) -> BlockingClient:
        """The connection to the broker that changes topics. Raises Unanswered if there is none now."""
        if self._controller_id not in self._addresses:
            self.refresh([])
        if self._controller_id not in self._addresses:
            raise Unanswered("the cluster has no controller now")
        return self.broker(self._controller_id)

    @property
    def broker_ids(self) -> list[int]:
        return sorted(self._addresses)

    def ask(self, client: BlockingClient, request: Message, version: int) -> Any:
        """The response. Raises Unanswered, and closes the connection then."""
        try:
            return client.ask(request, version)
        except Unanswered:
            self.drop(client)
            raise

    def _any(self) -> BlockingClient:
        """A connection to any broker: one that is there, or the first that can be made."""
        for (purpose, _), client in self._clients.items():
            if purpose == "any":
                return client
        addresses = list(dict.fromkeys([*self._servers, *self._addresses.values()]))
        for address in addresses[:-1]:
            with contextlib.suppress(Unanswered):
                return self._connect("any", address)
        return self._connect("any", addresses[-1])

    def _connect(self, purpose: str, address: str) -> BlockingClient:
        client = self._clients.get((purpose, address))
        if client is None:
            client = self._clients[purpose, address] = BlockingClient(address, self._timeout_s, self._security)
        return client


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
