"""DescribeLogDirs as commands and the console send it: the partitions of a broker, and kafkalite's tagged
fields of each.

Source: KIP-113, KIP-827; `protocol/messages/log_dirs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kafkalite.client.blocking_client import BlockingClient, name_of_error
from kafkalite.client.cluster_client import require_topics
from kafkalite.common.errors import Unanswered
from kafkalite.common.names import TopicPartition
from kafkalite.protocol.messages import log_dirs as wire

_VERSION = 4
_PARTITIONS_MAX = 200  # in one request: the broker takes 0.07 ms for each, and serves no other client meanwhile


def list_partitions(
    client: BlockingClient, topics: Sequence[str], only: set[TopicPartition] | None, elsewhere: set[str] | None
) -> tuple[list[TopicPartition], list[str]]:
    """The partitions of the broker, ascending, and a complaint for each of its directories that has failed.

    `topics` and `only` restrict them where they are given. Raises Unanswered, and ConfigError for a topic that is
    neither here nor `elsewhere`.
    """
    response = _ask(client, wire.DescribeLogDirsRequest(topics=None))
    failed = [result.log_dir for result in response.results if result.error_code]
    found = {key for key, _ in _partitions(response)}
    require_topics(topics, {topic for topic, _ in found} | (elsewhere or set()), client.address)
    keys = sorted(key for key in found if (not topics or key[0] in topics) and (only is None or key in only))
    return keys, [f"{directory} has failed, and its partitions are left out here" for directory in failed]


def describe(
    client: BlockingClient,
    keys: Sequence[TopicPartition],
    *,
    count_records: int = wire.NO_COUNTS,
    describe_cleaning: bool = False,
) -> Iterator[tuple[Any, Iterator[tuple[TopicPartition, wire.DescribeLogDirsPartition]]]]:
    """A response and its partitions for each portion of `keys`. Raises Unanswered."""
    for at in range(0, len(keys), _PARTITIONS_MAX):
        by_topic: dict[str, list[int]] = {}
        for topic, index in keys[at : at + _PARTITIONS_MAX]:
            by_topic.setdefault(topic, []).append(index)
        topics = [wire.DescribableLogDirTopic(topic=topic, partitions=indexes) for topic, indexes in by_topic.items()]
        request = wire.DescribeLogDirsRequest(
            topics=topics, count_records=count_records, describe_cleaning=describe_cleaning
        )
        response = _ask(client, request)
        yield response, _partitions(response)


def directories(client: BlockingClient) -> Any:
    """The results of all directories of a broker, each with its partitions. Raises Unanswered."""
    return _ask(client, wire.DescribeLogDirsRequest(topics=None)).results


def led_partitions(
    results: Iterable[Any], led: set[TopicPartition]
) -> Iterator[tuple[TopicPartition, wire.DescribeLogDirsPartition, str]]:
    """The partitions of `led` in these directories, with the directory of each; no future replicas."""
    for result in results:
        for topic in result.topics:
            for one in topic.partitions:
                if (topic.name, one.partition_index) in led and not one.is_future_key:
                    yield (topic.name, one.partition_index), one, result.log_dir


def _ask(client: BlockingClient, request: wire.DescribeLogDirsRequest) -> Any:
    response = client.ask(request, _VERSION)
    if response.error_code:
        raise Unanswered(f"{client.address} refuses to answer: {name_of_error(response.error_code)}")
    return response


def _partitions(response: Any) -> Iterator[tuple[TopicPartition, wire.DescribeLogDirsPartition]]:
    for result in response.results:
        for topic in result.topics:
            for one in topic.partitions:
                yield (topic.name, one.partition_index), one
