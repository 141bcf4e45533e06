"""The pytest plugin, in runs of pytest of its own: fixtures, marker, ini options and the report of a failure."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.places import ROOT

OUR_PLUGIN = "kafkalite.testing.pytest_plugin"


def run(directory: Path, *arguments: str, **files: str) -> str:
    """The output of pytest in a directory with these files."""
    for name, text in files.items():
        (directory / name.replace("_py", ".py").replace("_ini", ".ini")).write_text(text)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", "pytest", "-p", OUR_PLUGIN, "-p", "no:cacheprovider", *arguments, "."]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)
    return done.stdout + done.stderr


FIXTURES = """
import pytest, threading

def test_a_broker_of_its_own(kafka):
    assert kafka.topics == {"everywhere": 2}
    assert kafka.server.config.num_partitions == 5
    kafka.produce("orders", "x")

def test_and_another(kafka):
    assert kafka.topics == {"everywhere": 2}

@pytest.mark.kafka(topics={"orders": 3, "changes": {"cleanup_policy": "compact"}}, settings={"num_partitions": 7})
class TestMarked:
    def test_topics_and_settings(self, kafka):
        assert kafka.topics == {"everywhere": 2, "orders": 3, "changes": 1}
        assert kafka.server.config.num_partitions == 7

    @pytest.mark.kafka(topics=["orders"])
    def test_the_closest_marker_wins(self, kafka):
        assert kafka.topics == {"everywhere": 2, "orders": 1, "changes": 1}

seen = []

@pytest.mark.parametrize("number", range(2))
def test_shared(kafka_module, kafka_session, number):
    assert kafka_module is not kafka_session
    seen.append((kafka_module, kafka_session))
    assert seen[0] == seen[-1]

def test_a_cluster(kafka_cluster):
    assert kafka_cluster.running == [0, 1]
    assert kafka_cluster.isr("everywhere", 1) == {0, 1}
"""


def test_fixtures_have_the_topics_and_settings_of_ini_and_marker(tmp_path: Path) -> None:
    ini = """[pytest]
kafka_topics = everywhere: 2
kafka_settings =
    num.partitions = 5
kafka_cluster_brokers = 2
"""
    output = run(tmp_path, test_fixtures_py=FIXTURES, pytest_ini=ini)
    assert "7 passed" in output, output


FAILURES = """
import pytest

def test_fails(kafka):
    kafka.create_topic("orders", partitions=2, retention_ms=1000)
    kafka.produce("orders", "x", partition=1)
    assert False

def test_fails_without_a_broker():
    assert False

@pytest.fixture
def application(kafka):
    kafka.create_topic("used")

def test_fails_with_a_fixture_over_it(application):
    assert False

def test_fails_and_has_asked_late(request):
    request.getfixturevalue("kafka").create_topic("late")
    assert False

def test_fails_after_a_crash(kafka):
    kafka.faults.crash()
    assert False

def test_fails_with_a_cluster(kafka_cluster):
    kafka_cluster.create_topic("spread")
    kafka_cluster.kill(kafka_cluster.leader_of("spread", 0))
    assert False

@pytest.mark.kafka(topic="orders")
def test_a_wrong_word(kafka): ...

@pytest.mark.kafka("orders")
def test_no_word(kafka): ...

@pytest.mark.kafka(topics="orders")
def test_a_text(kafka): ...

@pytest.mark.kafka(settings={"num_partition": 1})
def test_a_wrong_setting(kafka): ...

@pytest.mark.kafka(topics={"orders": "3"})
def test_a_wrong_count(kafka): ...

@pytest.mark.kafka(settings=["num_partitions"])
def test_settings_without_values(kafka): ...

@pytest.mark.kafka(faults={"fault": "delay"})
def test_faults_that_are_no_list(kafka): ...
"""


def test_a_failure_shows_the_broker_and_a_mistake_is_named(tmp_path: Path) -> None:
    output = run(tmp_path, test_failures_py=FAILURES)
    assert "6 failed, 7 errors" in output, output
    assert output.count("kafka: its state and requests") == 4
    assert "topic used: 0 records" in output and "topic late: 0 records" in output
    assert "a broker that is not running" in output
    assert "kafka_cluster: its state and requests" in output and "stopped) at 127.0.0.1" in output
    assert re.search(r"^spread-0: leader \w+, ISR \[", output, re.MULTILINE), output
    assert "topic orders: 0 + 1 records retention.ms=1000\nno groups" in output
    for words in (
        "takes topics, settings and faults, not topic",
        "topic 'orders' has a number of partitions or a mapping of settings, not '3'",
        "settings are a mapping",
        "faults are a list",
        "the marker kafka takes keyword arguments only",
        "not the text 'orders'",
        "num.partition",
    ):
        assert words in output, words


FAULTS = """
import pytest

@pytest.mark.kafka(faults=[{"fault": "delay", "seconds": 0.01, "api": "Metadata"}])
def test_that_fires(kafka):
    from bench import wire
    with wire.Connection(kafka.bootstrap_servers) as client:
        client.brokers()
    assert len(kafka.faults.fired) == 1

@pytest.mark.kafka(faults=[{"fault": "delay", "seconds": 0.01, "api": "Metadata"}])
def test_that_does_not_fire(kafka): ...

@pytest.mark.kafka(faults=[{"fault": "delay", "seconds": 0.01, "api": "Metadata"}])
def test_that_fails(kafka):
    from bench import wire
    with wire.Connection(kafka.bootstrap_servers) as client:
        client.brokers()
    assert False

@pytest.mark.kafka(faults=[{"fault": "explode"}])
def test_that_does_not_exist(kafka): ...
"""


def test_faults_of_a_marker_are_made_and_must_fire(tmp_path: Path) -> None:
    output = run(tmp_path, test_faults_py=FAULTS)
    assert "1 failed, 2 passed, 2 errors" in output, output
    assert "these faults never fired: delay of 0.01 s for Metadata" in output
    assert "a fault is one of error, delay" in output
    assert "delay of 0.01 s for Metadata: Metadata v1 from 'bench'" in output, "the report lists what has fired"
    assert "the last 1 of 1 requests:" in output


def test_tests_run_side_by_side(tmp_path: Path) -> None:
    text = "import pytest\n@pytest.mark.parametrize('n', range(8))\ndef test_it(kafka, kafka_session, n):\n"
    text += "    kafka.produce('orders', 'x')\n    kafka_session.produce('orders', str(n))\n"
    output = run(tmp_path, "-p", "xdist", "-n", "2", test_many_py=text)
    assert "8 passed" in output, output


def test_a_suite_without_kafka_imports_nothing_of_it(tmp_path: Path) -> None:
    text = """
import sys
import tomllib

def test_it():
    loaded = sorted(name for name in sys.modules if name.startswith("kafkalite"))
    assert loaded == ["kafkalite", "kafkalite.testing", "kafkalite.testing.pytest_plugin"]

def test_modules_are_loaded_as_anywhere(kafka):
    import kafkalite.testing.broker
    assert "Rewrit" not in type(kafkalite.testing.broker.__loader__).__name__  # a second for all of them
"""
    output = run(tmp_path, test_nothing_py=text)
    assert "2 passed" in output, output


@pytest.mark.parametrize("line", ["kafka_topics = orders: many", "kafka_settings = num.partitions"])
def test_a_line_of_the_ini_file_that_makes_no_sense_is_named(tmp_path: Path, line: str) -> None:
    output = run(tmp_path, test_it_py="def test_it(kafka): ...", pytest_ini=f"[pytest]\n{line}\n")
    assert "1 error" in output and line.split(" = ")[1] in output, output


def test_pytest_finds_the_plugin_by_its_entry_point() -> None:
    """It stands in a distribution of its own: pytest looks through all files of the one that has it, in every run."""
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    project = tomllib.loads((ROOT / "pytest-kafkalite" / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {OUR_PLUGIN: OUR_PLUGIN}
    assert "entry-points" not in whole
    assert project["version"] == whole["version"] and f"kafkalite>={whole['version']}" in project["dependencies"]
    assert project["requires-python"] == whole["requires-python"]
