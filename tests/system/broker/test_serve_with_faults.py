"""`kafkalite serve --faults` and `--fault`: a daemon that makes faults, for clients in any language."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import wire
from bench.records import record_batch
from tests.support.broker_process import ServedBroker, environment
from tests.support.wait import DEADLINE_S


def test_a_daemon_makes_the_faults_of_its_file(tmp_path: Path) -> None:
    faults = tmp_path / "faults.json"
    faults.write_text(json.dumps([{"fault": "error", "api": "PRODUCE", "error": "NOT_ENOUGH_REPLICAS"}]))
    one = "error,api=CREATE_TOPICS,error=NOT_CONTROLLER"
    broker = ServedBroker(tmp_path / "data", tmp_path / "errors", {}, more=["--faults", str(faults), "--fault", one])
    broker.start()
    try:
        with wire.Connection(broker.bootstrap) as client:
            with pytest.raises(wire.BrokerError):
                client.create_topic("orders")
            client.create_topic("orders")
            frame = wire.produce_frame("orders", 0, record_batch(1, 10))
            with pytest.raises(wire.BrokerError):
                client.produce(frame)
            assert client.produce(frame) == 0
    finally:
        broker.stop()
    assert "this broker will make a fault: error NOT_ENOUGH_REPLICAS for Produce" in (tmp_path / "errors").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--faults", "missing.json"], "--faults missing.json: "),
        (["--faults", "faults.json", "--brokers", "3"], "for one broker, not for several"),
        (["--fault", "error,api=PRODUCE,error=OOPS"], "--fault error,api=PRODUCE,error=OOPS: no error is named"),
        (["--fault", "delay,seconds=1", "--brokers", "3"], "--fault: for one broker, not for several"),
    ],
)
def test_what_cannot_be_done_is_refused_at_the_start(tmp_path: Path, arguments: list[str], words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kafkalite", "serve", "--port", "0", "--data-dir", str(tmp_path / "data"), *arguments],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and words in done.stderr, done.stderr
    assert not (tmp_path / "data").exists()
