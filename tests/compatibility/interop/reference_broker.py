"""A real Apache Kafka in the place of kafkalite: `--reference 3.9.1` proves that the stories themselves are right.

It answers to the same words as `BrokerProcess`. Nothing is written to the compatibility page then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.reference import ReferenceUnavailable
from tests.compatibility.interop.kraft_kafka import KRaftKafka, kraft_kafka

KAFKALITE_ONLY = ("kafkalite.",)


class ReferenceBroker:
    """Apache Kafka with KRaft on one directory."""

    def __init__(self, kafka: KRaftKafka, data_dir: Path, settings: Mapping[str, str]) -> None:
        self.kafka = kafka
        self.data_dir = data_dir
        self.excused: list[str] = []
        kafka.settings.update({k: v for k, v in settings.items() if not k.startswith(KAFKALITE_ONLY)})

    @property
    def bootstrap(self) -> str:
        return self.kafka.bootstrap

    @property
    def log_dirs(self) -> dict[int, Path]:
        return {0: self.data_dir}

    def start(self) -> None:
        self.kafka.start()

    def stop(self) -> None:
        self.kafka.stop()

    def restart(self) -> None:
        self.stop()
        self.start()

    def kill(self) -> None:
        self.kafka.kill()

    def log_text(self) -> str:
        return self.kafka.output.read_text(errors="replace")

    def complaints(self) -> list[str]:
        return []


@contextmanager
def reference_broker(directory: Path, settings: Mapping[str, str], version: str) -> Iterator[ReferenceBroker]:
    """One that runs. Skips where it cannot be had."""
    data_dir = directory / "data"
    try:
        with kraft_kafka(directory / "kafka", [data_dir], version=version) as kafka:
            broker = ReferenceBroker(kafka, data_dir, settings)
            broker.start()
            yield broker
    except ReferenceUnavailable as reason:
        pytest.skip(str(reason))
