"""`kafkalite console` ends at a signal: at once, without a traceback, whatever is open."""

from __future__ import annotations

import http.client
import signal
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

from kafkalite.testing import Broker
from tests.support.broker_process import environment
from tests.support.wait import DEADLINE_S


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_console_with_an_open_tail_ends_at_a_signal(number: int) -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        command = [sys.executable, "-m", "kafkalite", "console", "--bootstrap", broker.bootstrap_servers]
        command += ["--listen", "127.0.0.1:0"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
        ) as process:
            assert process.stdout is not None
            address = next(word for word in process.stdout.readline().split() if word.startswith("http://"))
            connection = http.client.HTTPConnection(urlsplit(address.rstrip("/,")).netloc, timeout=DEADLINE_S)
            connection.request("GET", "/api/topics/orders/messages?from=tail")
            answer = connection.getresponse()
            assert answer.status == 200 and answer.readline() == b"event: progress\n"
            process.send_signal(number)
            _, said = process.communicate(timeout=DEADLINE_S)
            connection.close()
    assert process.returncode == 0 and "Traceback" not in said and "ERROR" not in said, said
