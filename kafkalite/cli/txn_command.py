"""`kafkalite txn`: transactional ids and their transactions, producers of a partition, and transactions that hang.

The commands, options and columns are those of Apache Kafka's kafka-transactions.sh. Any broker of a cluster may be
named; requests go to coordinators and leaders. The output is a table, or one JSON object per line with the same
columns.
Source: org.apache.kafka.tools.TransactionsCommand (3.9); KIP-664.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

from kafkalite.cli.command_config import INT16_MAX, INT64_MAX, add_commands, security_of, whole
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.transaction_admin import ANY_DURATION, OpenTransaction, TransactionAdmin, partitions_of
from kafkalite.common.errors import ConfigError, Unanswered
from kafkalite.common.output import print_rows

_MS_PER_MINUTE = 60_000
_NONE = "None"  # as kafka-transactions.sh prints it

Rows = list[Sequence[object]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The commands of `kafkalite txn`."""
    add_commands(parser, "txn_command", _COMMANDS, 10.0)


def run(options: argparse.Namespace) -> int:
    """`kafkalite txn`. Returns the exit code. Raises ConfigError."""
    with ClusterClient(options.bootstrap_server, options.timeout, security_of(options)) as cluster:
        _COMMANDS[options.txn_command][0](TransactionAdmin(cluster, options.timeout), options)
    return 0


# list


def _add_list_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--duration-filter",
        type=whole(ANY_DURATION, INT64_MAX),
        default=ANY_DURATION,
        metavar="MS",
        help="only transactions that have been open for longer than this",
    )
    command.add_argument("--state", action="append", default=[], help="only ids in this state, such as Ongoing")


_LIST_COLUMNS = "TransactionalId", "Coordinator", "ProducerId", "TransactionState"


def _list(admin: TransactionAdmin, options: argparse.Namespace) -> None:
    found = admin.list_transactions(states=options.state, min_duration_ms=options.duration_filter)
    _print(_LIST_COLUMNS, list(found), options)


# describe


def _add_describe_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--transactional-id", required=True, metavar="ID")


_DESCRIBE_COLUMNS = (
    "CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState", "TransactionTimeoutMs",
    "CurrentTransactionStartTimeMs", "TransactionDurationMs", "TopicPartitions",
)  # fmt: skip


def _describe(admin: TransactionAdmin, options: argparse.Namespace) -> None:
    found = admin.describe(options.transactional_id)
    if found is None:
        raise ConfigError(f"transactional id {options.transactional_id} not found")
    coordinator, one = found
    start_ms = one.transaction_start_time_ms
    row = (
        coordinator,
        options.transactional_id,
        one.producer_id,
        one.producer_epoch,
        one.transaction_state,
        one.transaction_timeout_ms,
        start_ms if start_ms >= 0 else None,
        _now_ms() - start_ms if start_ms >= 0 else None,
        ",".join(f"{topic}-{index}" for topic, index in partitions_of(one)),
    )
    _print(_DESCRIBE_COLUMNS, [row], options)


# describe-producers


def _add_producers_options(command: argparse.ArgumentParser) -> None:
    _add_partition_options(command, is_required=True)
    command.add_argument(
        "--broker-id", type=whole(), metavar="N", help="query the replica on this broker, not the leader"
    )


_PRODUCERS_COLUMNS = (
    "ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp",
    "CurrentTransactionStartOffset",
)  # fmt: skip


def _describe_producers(admin: TransactionAdmin, options: argparse.Namespace) -> None:
    rows: Rows = []
    for one in admin.producers((options.topic, options.partition), options.broker_id):
        start = one.current_txn_start_offset
        head = one.producer_id, one.producer_epoch, one.coordinator_epoch, one.last_sequence, one.last_timestamp
        rows.append((*head, start if start >= 0 else None))
    _print(_PRODUCERS_COLUMNS, rows, options)


# abort


def _add_abort_options(command: argparse.ArgumentParser) -> None:
    _add_partition_options(command, is_required=True)
    command.add_argument(
        "--start-offset", type=whole(0, INT64_MAX), metavar="N", help="the offset at which the transaction begins"
    )
    group = command.add_argument_group("without --start-offset", "all of them, as find-hanging shows them")
    group.add_argument("--producer-id", type=whole(0, INT64_MAX), metavar="N")
    group.add_argument("--producer-epoch", type=whole(-1, INT16_MAX), metavar="N")
    group.add_argument("--coordinator-epoch", type=whole(-1), metavar="N")


def _abort(admin: TransactionAdmin, options: argparse.Namespace) -> None:
    partition = options.topic, options.partition
    identity = options.producer_id, options.producer_epoch, options.coordinator_epoch
    if options.start_offset is not None:
        begun = admin.open_transactions([partition], None)
        found = [each for each in begun if each.start_offset == options.start_offset]
        if not found:
            raise ConfigError(
                f"no open transaction of {options.topic}-{options.partition} begins at offset {options.start_offset}"
            )
        identity = found[0].producer_id, found[0].producer_epoch, found[0].coordinator_epoch
    elif None in identity:
        raise ConfigError("abort needs --start-offset, or --producer-id, --producer-epoch and --coordinator-epoch")
    producer_id, producer_epoch, coordinator_epoch = identity
    admin.abort(partition, producer_id=producer_id, producer_epoch=producer_epoch, coordinator_epoch=coordinator_epoch)


# find-hanging


def _add_hanging_options(command: argparse.ArgumentParser) -> None:
    _add_partition_options(command, is_required=False)
    command.add_argument("--broker-id", type=whole(), metavar="N", help="only partitions with a replica on this broker")
    command.add_argument(
        "--max-transaction-timeout",
        type=whole(-1),
        default=15,
        metavar="MINUTES",
        help="a transaction whose last record is younger does not hang (default: 15)",
    )


_HANGING_COLUMNS = (
    "Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset", "LastTimestamp",
    "Duration(min)",
)  # fmt: skip


def _find_hanging(admin: TransactionAdmin, options: argparse.Namespace) -> None:
    if options.partition is not None and options.topic is None:
        raise ConfigError("--partition needs --topic")
    partitions = admin.partitions(options.topic, options.partition, options.broker_id)
    now_ms = _now_ms()

    def duration_ms(one: OpenTransaction) -> int:
        return now_ms - one.last_timestamp_ms

    limit_ms = options.max_transaction_timeout * _MS_PER_MINUTE
    candidates = admin.open_transactions(partitions, options.broker_id)
    hanging = admin.hanging([each for each in candidates if duration_ms(each) > limit_ms])
    rows = [(*each, duration_ms(each) // _MS_PER_MINUTE) for each in hanging]
    _print(_HANGING_COLUMNS, list(rows), options)
    if options.broker_id is None and (missing := admin.not_led(options.topic)):
        raise Unanswered("; ".join(missing))


def _add_partition_options(command: argparse.ArgumentParser, *, is_required: bool) -> None:
    command.add_argument("--topic", required=is_required, metavar="NAME")
    command.add_argument("--partition", required=is_required, type=whole(), metavar="N")


def _print(columns: Sequence[str], rows: Rows, options: argparse.Namespace) -> None:
    everything = range(len(columns))  # in the form of kafka-transactions.sh, which scripts read
    print_rows(columns, rows, as_json=options.json, left=everything, unknown=_NONE, identifiers=columns)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


_Command = Callable[[TransactionAdmin, argparse.Namespace], None]
_COMMANDS: dict[str, tuple[_Command, Callable[[argparse.ArgumentParser], None], str]] = {
    "list": (_list, _add_list_options, "list the transactional ids of all coordinators"),
    "describe": (_describe, _add_describe_options, "show the state of a transactional id and its transaction"),
    "describe-producers": (_describe_producers, _add_producers_options, "show the active producers of a partition"),
    "abort": (_abort, _add_abort_options, "abort a hanging transaction in one partition"),
    "find-hanging": (_find_hanging, _add_hanging_options, "find open transactions that no coordinator will end"),
}
