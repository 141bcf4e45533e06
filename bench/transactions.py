"""Transactions of one stock librdkafka producer, one after another: begin, a hundred records, commit.

The client's settings are its defaults, except that records do not linger: a transaction is flushed at its end anyway,
and otherwise its five milliseconds would dominate the figure.
"""

from __future__ import annotations

import secrets
import time

import confluent_kafka

from bench.records import payload
from bench.report import Result, latency
from bench.session import Session
from bench.wire import BrokerError

RECORDS, VALUE_BYTES = 100, 100
_TIMEOUT_S = 60.0


def transactions(session: Session, work: str) -> Result:
    """As many transactions as one producer can do; a request is a transaction, its latency the whole of it."""
    samples: list[int] = []
    value = bytes(payload(VALUE_BYTES))
    with session.topic(work) as topic:
        settings = {
            "bootstrap.servers": session.bootstrap,
            "transactional.id": f"bench-{secrets.token_hex(4)}",
            "linger.ms": "0",
        }
        producer = confluent_kafka.Producer(settings)

        def once() -> int:
            before = time.perf_counter_ns()
            producer.begin_transaction()
            for _ in range(RECORDS):
                producer.produce(topic, value, partition=0)
            producer.commit_transaction(_TIMEOUT_S)
            return time.perf_counter_ns() - before

        def once_and_again(seconds: float) -> int:
            done, until = 0, time.monotonic() + seconds
            while time.monotonic() < until:
                once()
                done += 1
            return done

        try:
            producer.init_transactions(_TIMEOUT_S)
            warm = session.warm_up(once_and_again)
            deadline = time.monotonic() + session.seconds
            with session.metered() as measure:
                while time.monotonic() < deadline:
                    samples.append(once())
        except confluent_kafka.KafkaException as error:
            raise BrokerError(str(error)) from error
        # each ends with a marker, which may be written after the answer
        session.expect_end(topic, (warm + len(samples)) * (RECORDS + 1), limit_s=5.0)
    return Result(
        work,
        measure.seconds,
        requests=len(samples),
        records=len(samples) * RECORDS,
        payload_bytes=len(samples) * RECORDS * VALUE_BYTES,
        cpu=measure.cpu,
        client_cpu_s=measure.client_cpu_s,
        latency=latency(samples),
        note=f"librdkafka {confluent_kafka.libversion()[0]}",
    )
