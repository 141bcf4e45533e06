"""A stock librdkafka producer and consumer, and the time a record takes from the one to the other.

The client's settings are its defaults, except for local queues as long as its own benchmark (rdkafka_performance) has
them: with the default a consumer that has 100,000 records waiting does not fetch for a second. So does one with 64 MB
waiting, whatever the setting; the consumer therefore asks again after a millisecond (fetch.queue.backoff.ms).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping

from bench.librdkafka import OFFSET_BEGINNING, Consumer, Library, Producer
from bench.records import payload
from bench.replay import fill
from bench.report import Result, latency
from bench.session import Measure, Session
from bench.wire import BrokerError

_CHUNK = 1_000
_WAIT_LIMIT_MS = 60_000


def _consumer_settings(session: Session) -> Mapping[str, str]:
    return {
        "bootstrap.servers": session.bootstrap,
        "queued.min.messages": "1000000",
        "fetch.queue.backoff.ms": "1",
    }


def _producer_settings(session: Session) -> Mapping[str, str]:
    return {
        "bootstrap.servers": session.bootstrap,
        "acks": str(session.acks),
        "queue.buffering.max.messages": "500000",
        "message.timeout.ms": str(_WAIT_LIMIT_MS),
    }


def _send(producer: Producer, seconds: float, most: int) -> int:
    """Send for `seconds` or `most` records, and wait until all are answered; returns how many."""
    sent, deadline = 0, time.monotonic() + seconds
    while sent < most and time.monotonic() < deadline:
        taken = producer.produce(most - sent)
        if taken <= 0:
            raise BrokerError("librdkafka took no record")
        sent += taken
    producer.flush(_WAIT_LIMIT_MS)
    return sent


def stock_produce(session: Session, work: str, value_bytes: int) -> Result:
    """As many records as one producer can send."""
    library, most = Library(), session.max_bytes // value_bytes
    with session.topic(work) as topic:
        producer = Producer(library, topic, _producer_settings(session), payload(value_bytes), _CHUNK)
        with contextlib.closing(producer):
            warm = session.warm_up(lambda seconds: _send(producer, seconds, most))
            with session.metered() as measure:
                sent = _send(producer, session.seconds, most)
        session.expect_end(topic, warm + sent)
    return Result(
        work,
        measure.seconds,
        records=sent,
        payload_bytes=sent * value_bytes,
        cpu=measure.cpu,
        client_cpu_s=measure.client_cpu_s,
        note=f"librdkafka {library.version}",
    )


def stock_consume(session: Session, work: str, value_bytes: int) -> Result:
    """Read a filled partition with one consumer after the other for `seconds`."""
    library, total, passes = Library(), Measure(), 0
    with session.topic(work) as topic:
        # About 100 KB a batch: what a busy librdkafka or Java producer with a longer linger would have written.
        fill(session, topic, 100_000 // value_bytes, value_bytes, session.fill_bytes)
        expected = _read_once(library, session, topic, Measure())
        session.warm_up(lambda _: _read_once(library, session, topic, Measure()))
        while total.seconds < session.seconds:
            measure = Measure()
            _read_once(library, session, topic, measure)
            total, passes = total + measure, passes + 1
    return Result(
        work,
        total.seconds,
        records=expected * passes,
        payload_bytes=expected * passes * value_bytes,
        cpu=total.cpu,
        client_cpu_s=total.client_cpu_s,
        note=f"librdkafka {library.version}, {expected:,} records {passes} times",
    )


def _read_once(library: Library, session: Session, topic: str, result: Measure) -> int:
    """Read partition 0 from start to end with a new consumer; returns how many records there were."""
    with contextlib.closing(Consumer(library, topic, _consumer_settings(session))) as consumer:
        seen, deadline = 0, time.monotonic() + _WAIT_LIMIT_MS / 1000
        with session.metered() as measure:
            consumer.start(OFFSET_BEGINNING)
            while seen < consumer.end_offset or consumer.position() < consumer.end_offset:
                seen += max(0, consumer.consume(1000))
                if time.monotonic() > deadline:
                    raise BrokerError(f"the consumer got {seen} of {consumer.end_offset} records in time")
    result.seconds, result.cpu, result.client_cpu_s = measure.seconds, measure.cpu, measure.client_cpu_s
    return consumer.end_offset


def round_trip(session: Session, work: str, value_bytes: int = 100) -> Result:
    """Produce one record without linger and wait until the consumer has it, again and again."""
    library, samples, limit_s = Library(), [], _WAIT_LIMIT_MS / 1000
    with session.topic(work) as topic:
        settings = {**_producer_settings(session), "linger.ms": "0"}
        producer = Producer(library, topic, settings, payload(value_bytes), 1)
        consumer = Consumer(library, topic, _consumer_settings(session))
        with contextlib.closing(producer), contextlib.closing(consumer):

            def once() -> int:
                before = time.perf_counter_ns()
                producer.produce(1)
                while consumer.consume(1000) < 1:
                    if time.perf_counter_ns() - before > limit_s * 1e9:
                        raise BrokerError(f"a record did not arrive in {limit_s:.0f} s")
                return time.perf_counter_ns() - before

            def once_for(seconds: float) -> int:
                rounds, until = 0, time.monotonic() + seconds
                while time.monotonic() < until:
                    once()
                    rounds += 1
                return rounds

            # The first thing taken may be no record: one round must be over by position, then counts are exact.
            consumer.start(OFFSET_BEGINNING)
            once()
            while consumer.position() < 1:
                consumer.consume(1000)
            session.warm_up(once_for)
            deadline = time.monotonic() + session.seconds
            with session.metered() as measure:
                while time.monotonic() < deadline:
                    samples.append(once())
            end_offset = consumer.position()
        session.expect_end(topic, end_offset)
    return Result(
        work,
        measure.seconds,
        records=len(samples),
        cpu=measure.cpu,
        client_cpu_s=measure.client_cpu_s,
        latency=latency(samples),
        note=f"librdkafka {library.version}, linger.ms=0",
    )
