"""Transactions of confluent-kafka. Called as transactor.py says: `transact TASK` and `copy TASK`."""

from __future__ import annotations

import json
import select
import sys
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

SECONDS = 60.0


def made(task: dict[str, Any]) -> Producer:
    return Producer(
        {
            "bootstrap.servers": task["bootstrap"],
            "transactional.id": task["transactional_id"],
            "transaction.timeout.ms": task["timeout_ms"],
            "linger.ms": 1,
        }
    )


def tell(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def send(producer: Producer, **record: Any) -> None:
    errors: list[Any] = []
    producer.produce(**record, on_delivery=lambda error, message: errors.append(error))
    producer.flush(SECONDS)
    if errors != [None]:
        raise KafkaException(errors[0] if errors else "not delivered")


def transact(task: dict[str, Any]) -> None:
    producer = made(task)
    producer.init_transactions(SECONDS)
    tell()
    for line in sys.stdin:
        command = json.loads(line)
        try:
            obey(producer, command, task)
            tell()
        except (KafkaException, SystemError) as error:  # a fatal one is raised wherever callbacks are served
            tell(error=str(error))


def obey(producer: Producer, command: dict[str, Any], task: dict[str, Any]) -> None:
    do = command.pop("do")
    if do == "begin":
        producer.begin_transaction()
    elif do == "send":
        send(producer, **command)
    elif do == "offsets":
        group = Consumer({"bootstrap.servers": task["bootstrap"], "group.id": command["group"]})
        place = TopicPartition(command["topic"], 0, command["offset"])
        producer.send_offsets_to_transaction([place], group.consumer_group_metadata(), SECONDS)
        group.close()
    elif do == "commit":
        producer.commit_transaction(SECONDS)
    else:
        producer.abort_transaction(SECONDS)


def copy(task: dict[str, Any]) -> None:
    producer = made(task)
    producer.init_transactions(SECONDS)
    consumer = Consumer(
        {
            "bootstrap.servers": task["bootstrap"],
            "group.id": task["group"],
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": task["session_ms"],
        }
    )
    consumer.subscribe([task["topic"]])
    turn = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        messages = consumer.consume(task["count"], 0.2)
        if not messages:
            continue
        if turn % 3 == 2:
            carry(producer, consumer, messages, task["target"])
            producer.abort_transaction(SECONDS)
        carry(producer, consumer, messages, task["target"])
        producer.commit_transaction(SECONDS)
        turn += 1
        tell(copied=len(messages))
    consumer.close()


def carry(producer: Producer, consumer: Consumer, messages: list[Message], target: str) -> None:
    producer.begin_transaction()
    for message in messages:
        producer.produce(target, message.value(), message.key(), message.partition())
    producer.flush(SECONDS)  # an abort before the first record has left finds no transaction
    ends = {message.partition(): message.offset() + 1 for message in messages}
    places = [TopicPartition(str(messages[0].topic()), partition, offset) for partition, offset in ends.items()]
    producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), SECONDS)


if __name__ == "__main__":
    {"transact": transact, "copy": copy}[sys.argv[1]](json.loads(sys.argv[2]))
