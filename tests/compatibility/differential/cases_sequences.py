"""Produce: idempotent producers, their epochs and their sequence numbers."""

from __future__ import annotations

from kafkalite.protocol.messages.transactions import InitProducerIdRequest
from tests.compatibility.differential.asking import bad, batch, fetch, produce
from tests.compatibility.differential.engine import Teller, in_versions, once


def new_producer(t: Teller) -> int:
    for _ in range(200):
        answer = t.aside(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 2)
        if answer.error_code == 0:
            return int(answer.producer_id)
    raise AssertionError(f"no producer id: {answer}")


def numbered(producer_id: int, epoch: int, sequence: int, count: int = 1) -> bytearray:
    values = [b"%d" % (sequence + i) for i in range(count)]
    return batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


@in_versions(3, 5, 8, 9)
def one_after_another(t: Teller) -> None:
    topic, me = t.topic(), new_producer(t)
    for sequence in range(0, 6, 2):
        t.ask(f"sequence {sequence}", produce(topic, numbered(me, 0, sequence, 2)))
    t.ask("sequence 2 again", produce(topic, numbered(me, 0, 2, 2)))
    t.ask("the last again", produce(topic, numbered(me, 0, 4, 2)))
    t.ask("half of one again", produce(topic, numbered(me, 0, 4, 1)))
    t.ask("a gap", produce(topic, numbered(me, 0, 8, 2)))
    t.ask("back before all", produce(topic, numbered(me, 0, 1, 1)))
    t.ask("the one that was due", produce(topic, numbered(me, 0, 6, 1)))
    t.ask("what is there", fetch(topic), 11)


@in_versions(3, 8)
def a_window_of_five(t: Teller) -> None:
    topic, me = t.topic(), new_producer(t)
    for sequence in range(7):
        t.aside(produce(topic, numbered(me, 0, sequence)), 8)
    for sequence in (6, 2, 1, 0):
        t.ask(f"sequence {sequence} again", produce(topic, numbered(me, 0, sequence)))


@in_versions(3, 8, 9)
def epochs(t: Teller) -> None:
    topic, me = t.topic(), new_producer(t)
    t.ask("epoch 0", produce(topic, numbered(me, 0, 0)))
    t.ask("epoch 2", produce(topic, numbered(me, 2, 0)))
    t.ask("epoch 0 again", produce(topic, numbered(me, 0, 1)))
    t.ask("epoch 1", produce(topic, numbered(me, 1, 0)))
    t.ask("epoch 3 not from 0 on", produce(topic, numbered(me, 3, 5)))
    t.ask("epoch 2 goes on", produce(topic, numbered(me, 2, 1)))


@in_versions(3, 9)
def strangers(t: Teller) -> None:
    topic = t.topic(partitions=4)
    t.ask("an id that nobody drew, sequence 0", produce(topic, numbered(4_000_000, 0, 0), partition=0))
    t.ask("an id that nobody drew, sequence 7", produce(topic, numbered(4_000_001, 0, 7), partition=1))
    t.ask("an epoch that nobody bumped", produce(topic, numbered(4_000_002, 5, 0), partition=2))
    t.ask("it goes on", produce(topic, numbered(4_000_001, 0, 8), partition=1))


@in_versions(3, 8)
def numbers_that_cannot_be(t: Teller) -> None:
    topic, me = t.topic(), new_producer(t)
    good = numbered(me, 0, 0)
    t.ask("no sequence", produce(topic, bad(good, base_sequence=-1)))
    t.ask("sequence -5", produce(topic, bad(good, base_sequence=-5)))
    t.ask("epoch -1", produce(topic, bad(good, producer_epoch=-1)))
    t.ask("a sequence without an id", produce(topic, bad(batch(b"x"), base_sequence=3)))
    t.ask("an epoch without an id", produce(topic, bad(batch(b"x"), producer_epoch=3)))
    t.ask("id -2", produce(topic, bad(batch(b"x"), producer_id=-2)))


@once
def the_numbers_wrap(t: Teller) -> None:
    topic = t.topic()
    last = 0x7FFFFFFF
    t.ask("near the end", produce(topic, numbered(5_000_000, 0, last - 1, 2)), 8)
    t.ask("from 0 on", produce(topic, numbered(5_000_000, 0, 0)), 8)
    t.ask("over the end", produce(t.topic("over"), bad(numbered(5_000_001, 0, 0, 3), base_sequence=last)), 8)
    t.ask("goes on", produce(t.name("over"), numbered(5_000_001, 0, 2)), 8)
