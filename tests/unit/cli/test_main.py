"""The command line as an operator meets it: what a start says, how it ends, one plain line for what was wrong."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkalite.cli import main, serve_command
from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.listeners import ListenerConfig
from kafkalite.config.properties import read_environment
from tests.support.places import GOLDEN, ROOT
from tests.support.wait import DEADLINE_S

COMMAND = [sys.executable, "-m", "kafkalite"]


def environment(**extra: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    return {**clean, "PYTHONPATH": str(ROOT), **extra}


def run(*arguments: object, cwd: Path = ROOT, **extra: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE_S, cwd=cwd, env=environment(**extra)
    )


@contextmanager
def serving(*arguments: object, cwd: Path = ROOT) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A broker in a process of its own and the line it said when it was ready."""
    command = [*COMMAND, "serve", "--port", "0", *map(str, arguments)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd, env=environment()
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.communicate()


def configured(*arguments: str, **environment: str) -> BrokerConfig:
    line = ["serve", *arguments]
    return serve_command.configuration(main.command_parser(line).parse_args(line), environment)


def test_a_broker_says_when_it_is_ready_and_stops_when_told(tmp_path):
    with serving(cwd=tmp_path) as (process, line):
        ready = r"kafkalite is ready on 127\.0\.0\.1:(\d+), data in \./kafkalite-data, cluster [\w-]{22}\n"
        assert re.fullmatch(ready, line), process.stderr.read()
        assert (tmp_path / "kafkalite-data").is_dir()
        process.send_signal(signal.SIGTERM)
        rest, log = process.communicate(timeout=DEADLINE_S)
        assert (process.returncode, rest) == (0, ""), log
        assert "Traceback" not in log


def test_kafkas_directories_are_taken_over_and_it_says_what(tmp_path):
    kafkas = shutil.copytree(GOLDEN / "log" / "kafka-3.9-zookeeper", tmp_path / "kafka")
    directories = f"{kafkas}/one,{kafkas}/two"
    with serving("--adopt", directories) as (process, line):
        assert line == "taken over: 6 topics with 10 partitions\n", process.stderr.read()
        assert "the defaults of this broker hold" in process.stdout.readline()
        assert "__consumer_offsets and __transaction_state stay compacted" in process.stdout.readline()
        assert f"data in {kafkas}/one and {kafkas}/two, cluster " in process.stdout.readline()
        second = run("serve", "--port", "0", "--adopt", directories, "--log-level", "error")
        assert (second.returncode, second.stderr.count("\n")) == (1, 1) and "/one is in use" in second.stderr
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0


def test_what_cannot_be_taken_over_is_one_line(tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "meta.properties").write_text("version=0\nbroker.id=three\n")
    for arguments, message in (
        (["--adopt", tmp_path / "nowhere"], "no such directory"),
        (["--adopt", tmp_path / "new"], "no meta.properties names its owner"),
        (["--adopt", tmp_path / "damaged"], "meta.properties is damaged"),
        (["--adopt", tmp_path / "new", "--data-dir", tmp_path / "new"], "give one of them"),
    ):
        done = run("serve", "--port", "0", *arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert re.fullmatch(rf"kafkalite: .*{re.escape(message)}.*\n", done.stderr), done.stderr
    kafkas = shutil.copytree(GOLDEN / "log" / "kafka-3.9-zookeeper", tmp_path / "kafka")
    other = run("serve", "--port", "0", "--adopt", kafkas / "one", "--override", "broker.id=7")
    assert other.returncode == 1 and "set broker.id=3" in other.stderr
    assert not list(kafkas.rglob("kafkalite-*")), "nothing was begun"


def test_a_second_broker_on_the_same_directory_is_told_so_in_one_line(tmp_path):
    with serving("--data-dir", tmp_path) as (process, line):
        assert "is ready on" in line, process.stderr.read()
        second = run("serve", "--port", "0", "--data-dir", tmp_path, "--log-level", "error")
        assert second.returncode == 1 and second.stdout == ""
        assert re.fullmatch(rf"kafkalite: .*{re.escape(str(tmp_path))}.*\n", second.stderr)
        port = re.search(r":(\d+),", line)[1]
        third = run("serve", "--port", port, "--data-dir", tmp_path / "other", "--log-level", "error")
        assert third.returncode == 1 and re.fullmatch(rf"kafkalite: .*{port}.*\n", third.stderr)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["no-such-file"], "cannot read the configuration no-such-file: No such file or directory"),
        (["--override", "nonsense"], "--override nonsense must be KEY=VALUE"),
        (["--override", "num.partitions=none"], "num.partitions='none' must be an integer from 1 to 2147483647"),
        (["--port", "70000"], "--port 70000 must be from 0 to 65535"),
        (["--override", "listeners=SSL://:1"], "listener SSL: ssl.keystore.location is not set"),
        (["--port", "0", "--data-dir", "/proc/none"], "/proc/none"),
        (["--port", "0", "--data-dir", __file__], __file__),
    ],
)
def test_what_an_operator_got_wrong_is_one_line(arguments, complaint):
    result = run("serve", "--log-level", "error", *arguments)
    assert result.returncode == 1 and result.stdout == ""
    assert result.stderr.startswith("kafkalite: ") and result.stderr.count("\n") == 1, result.stderr
    assert complaint in result.stderr


def test_file_then_environment_then_command_line(tmp_path):
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=1\nlog.dir=/from/file\nlog.segment.bytes=100\nbroker.id=7\n")
    config = configured(
        str(file),
        "--override",
        "num.partitions = 3",
        "--data-dir",
        "/given",
        KAFKA_NUM_PARTITIONS="2",
        KAFKA_LOG_SEGMENT_BYTES="200",
    )
    assert (config.num_partitions, config.log_segment_bytes, config.broker_id) == (3, 200, 7)
    assert config.data_dirs == ("/given",) and config.log_dir == "/given"
    assert configured(str(file)).data_dirs == ("/from/file",)


def test_host_and_port_change_the_one_listener(tmp_path):
    assert configured("--port", "0").listeners == (ListenerConfig("PLAINTEXT", "127.0.0.1", 0),)
    assert configured("--host", "::1").listeners == (ListenerConfig("PLAINTEXT", "::1", 9092),)
    inside = ["--override", "listeners=INSIDE://:7", "--override", "listener.security.protocol.map=INSIDE:PLAINTEXT"]
    config = configured(*inside, "--override", "advertised.listeners=INSIDE://here:7", "--port", "8")
    assert config.listeners == (ListenerConfig("INSIDE", "", 8),)
    assert config.advertised_listeners == ()
    with pytest.raises(ConfigError, match="there are several"):
        configured(
            "--override",
            "listeners=PLAINTEXT://:1,CLEAR://:2",
            "--override",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CLEAR:PLAINTEXT",
            "--port",
            "8",
        )


def test_config_prints_the_file_that_ships():
    result = run("config")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == (ROOT / "config" / "server.properties").read_text()


def test_version_and_usage():
    for arguments in (["--version"], ["serve", "--version"]):
        assert re.fullmatch(r"kafkalite \S.*\n", run(*arguments).stdout)
    nothing = run()
    assert nothing.returncode == 2 and "serve" in nothing.stderr
    assert run("srve").returncode == 2


def test_the_compose_file_holds_together():
    yaml = pytest.importorskip("yaml")
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    services = compose["services"]
    members = [f"broker{number}" for number in (1, 2, 3)]
    assert {"kafkalite", "zookeeper", "spark", *members} == services.keys()
    stages = re.findall(r"^FROM \S+ AS (\w+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    for service in services.values():
        assert ("image" in service) != ("build" in service)
        assert service.get("build", {}).get("target", stages[0]) in stages
        named = [volume.split(":")[0] for volume in service.get("volumes", []) if not volume.startswith(".")]
        assert set(named) <= compose["volumes"].keys()
        assert set(service.get("depends_on", {})) <= services.keys()
    config = BrokerConfig.load(read_environment(services["kafkalite"]["environment"]))
    assert config.warnings == ()
    assert [each.port for each in config.listeners] == [9092, 19092] and config.data_dirs == ("/data",)
    for number, name in enumerate(members, start=1):
        config = BrokerConfig.load(read_environment(services[name]["environment"]))
        assert (config.warnings, config.broker_id, config.zookeeper_connect) == ((), number, "zookeeper:2181")
        assert services[name]["profiles"] == ["cluster"]
        assert services[name]["ports"] == [f"{9191 + number}:{config.listeners[1].port}"]
