"""Users of SCRAM in ZooKeeper by Kafka 2.7.2's kafka-configs and by `kafkalite user`: each sees what the other made.

pytest -m long tests/compatibility/interop/test_users_by_old_tools.py
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

import kafkalite
from kafkalite.cli.main import main
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.properties import read_properties
from tests.compatibility.interop.conftest import run_command
from tests.compatibility.interop.java_tools import JavaTools, java_command
from tests.support.wait import DEADLINE_S
from tests.support.zookeeper import ZooKeeper

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
VERSION = "2.7.2"


def test_each_sees_the_users_of_the_other(
    zookeeper: ZooKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    java_command(VERSION)
    connect = zookeeper.connect + "/users-of-old"
    file = tmp_path / "server.properties"
    file.write_text(
        f"listeners=SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0\nzookeeper.connect={connect}\n"
        f"log.dirs={tmp_path / 'data'}\nsasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512\n"
    )
    monkeypatch.setattr(sys, "stdin", io.StringIO("wonderland\n"))
    assert main(["user", "add", "a b,c", "--password-file", "-", "--config", str(file)]) == 0

    tools = JavaTools(VERSION, connect, run_command)
    users = ["--entity-type", "users"]
    added = "SCRAM-SHA-256=[iterations=8192,password=tool-secret]"
    tools("ConfigCommand", "--alter", *users, "--entity-name", "carol", "--add-config", added, at="--zookeeper")
    described = tools("ConfigCommand", "--describe", *users, at="--zookeeper")
    assert "'a b,c'" in described and "SCRAM-SHA-512=salt=" in described and "iterations=4096" in described

    with kafkalite.Broker(BrokerConfig.load(read_properties(str(file)))) as broker:
        login = tmp_path / "client.properties"
        for name, password, mechanism in (("carol", "tool-secret", "SHA-256"), ("a b,c", "wonderland", "SHA-512")):
            login.write_text(
                f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-{mechanism}\nsasl.jaas.config="
                f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{name}" '
                f'password="{password}";\n'
            )
            there = ["--bootstrap", broker.bootstrap_servers, "--command-config", str(login)]
            assert main(["health", *there, "--timeout", str(DEADLINE_S)]) == 0
        tools("ConfigCommand", "--alter", *users, "--entity-name", "carol", "--delete-config", "SCRAM-SHA-256",
              at="--zookeeper")  # fmt: skip
        capsys.readouterr()
        assert main(["user", "list", "--config", str(file)]) == 0
        assert [row.split()[-2:] for row in capsys.readouterr().out.splitlines()[1:]] == [["SCRAM-SHA-512", "4096"]]
