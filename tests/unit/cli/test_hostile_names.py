"""Commands about a broker whose clients chose the worst names: nothing of them steers the terminal of an operator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalite import Broker
from kafkalite.cli.main import main
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.group_admin import GroupAdmin
from kafkalite.common.output import aligned, complain, say
from kafkalite.common.text import printable
from tests.support.broker_process import environment
from tests.support.wait import DEADLINE_S

Run = Callable[..., tuple[int, str, str]]
STEERING = "\x1b[2J\x9b31m\r\n\x07\u202e\u2066\x7f\t"
HOSTILE = (STEERING, "a\nkafkalite: all is lost", "\x1b]0;title\x07", "\u202eevil", "", "J\u00fcrgen \u65e5\u672c")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """Has groups and transactional ids of such names, and a topic with such keys, values and headers."""
    with Broker() as broker:
        broker.create_topic("t")
        broker.produce("t", key=STEERING, value=STEERING, headers=[(STEERING, STEERING.encode()), ("h", None)])
        with ClusterClient(broker.bootstrap_servers, DEADLINE_S) as cluster:
            admin = GroupAdmin(cluster, DEADLINE_S)
            for name in HOSTILE:
                assert admin.commit(name, {("t", 0): 0}) == []
                if name:
                    producer = confluent_kafka.Producer(
                        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name}
                    )
                    producer.init_transactions(DEADLINE_S)
        yield broker


@pytest.fixture
def run(broker: Broker, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([*arguments, "--bootstrap-server", broker.bootstrap_servers])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def is_harmless(text: str) -> bool:
    return printable(text, keep="\n") == text


@pytest.mark.parametrize(
    "arguments",
    [
        ("group", "list"),
        ("group", "describe"),
        ("group", "describe", STEERING),
        ("group", "describe", f"no{STEERING}"),
        ("group", "reset", STEERING, "--to-earliest", "--execute"),
        ("group", "reset", "x", "--to-earliest", "--topic", STEERING),
        ("group", "delete", f"no{STEERING}"),
        ("txn", "list"),
        ("txn", "describe", "--transactional-id", STEERING),
        ("txn", "describe", "--transactional-id", f"no{STEERING}"),
        ("txn", "find-hanging", "--topic", STEERING),
        ("topic", "create", STEERING),
        ("topic", "delete", STEERING),
        ("topic", "alter", "t", "--config", f"{STEERING}=1"),
        ("topic", "describe", STEERING),
        ("consume", STEERING),
        ("produce", STEERING, "--timeout", "0"),
        ("top", "groups", "--once", "--interval", "0.001"),
        ("cleaner", "status", STEERING),
        ("cleaner", "run", STEERING),
        ("user", "remove", STEERING),
        ("user", "add", STEERING),
    ],
)
def test_no_command_lets_a_name_steer_the_terminal(run: Run, arguments: tuple[str, ...]) -> None:
    code, out, complaints = run(*arguments)
    assert is_harmless(out) and is_harmless(complaints)
    assert code in (0, 1) and all(line.startswith("kafkalite: ") for line in complaints.splitlines())


@pytest.mark.parametrize(
    "arguments", [("group", "list"), ("group", "describe"), ("txn", "list"), ("consume", "t"), ("top", "groups")]
)
def test_json_has_the_names_as_they_are_and_is_harmless(run: Run, arguments: tuple[str, ...]) -> None:
    more = ("--interval", "0.001") if arguments[0] == "top" else ()
    code, out, _ = run(*arguments, "--json", *more)
    assert code == 0 and is_harmless(out.replace("\x7f", ""))
    assert STEERING in {
        text for line in out.splitlines() for text in json.loads(line).values() if isinstance(text, str)
    }


def test_a_group_without_a_name_is_like_any_other(run: Run) -> None:
    code, out, _ = run("group", "describe", "")
    assert code == 0 and out.startswith('"": Empty, members: 0, coordinator 0\ngroup  topic') and out.count("\n") == 3
    assert run("group", "reset", "", "--shift-by", "1", "--execute", "--json")[0] == 0
    assert json.loads(run("group", "describe", "", "--json")[1])["offset"] == 1


@given(st.text(st.sampled_from(STEERING) | st.characters(), min_size=1, max_size=30))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_sentences_tables_and_complaints_are_one_line_each(capsys: pytest.CaptureFixture[str], name: str) -> None:
    capsys.readouterr()
    say(f"{name}: Stable")
    complain(f"there is no group {name}")
    table = list(aligned([("group", "n"), (name, "1")]))
    said = capsys.readouterr()
    assert is_harmless(said.out) and said.out.count("\n") == 1
    assert is_harmless(said.err) and said.err.count("\n") == 1
    assert len(table) == 2 and all(printable(line) == line for line in table)


# arguments that fit nothing


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("topic", "create", "\udcff"), "is not UTF-8"),
        (("group", "describe", "\udcff"), "is not UTF-8"),
        (("group", "delete", "\udcff\x1b"), "\\x1b is not UTF-8"),
        (("txn", "describe", "--transactional-id", "\udcff"), "is not UTF-8"),
        (("produce", "t", "--header", "\udcff=1"), "is not UTF-8"),
        (("produce", "\udcff"), "is not UTF-8"),
        (("consume", "\udcff"), "not found at"),
        (("topic", "alter", "t", "--config", "cleanup.policy=\udcff"), "is not UTF-8"),
        (("topic", "list", "--bootstrap-server", f"{'a' * 70}.example:9092"), "no host has such a name"),
        (("topic", "list", "--bootstrap-server", "\udcff:9092"), "no host has such a name"),
    ],
)
def test_what_no_request_can_hold_is_told_in_a_line(
    broker: Broker, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    there = () if "--bootstrap-server" in arguments else ("--bootstrap-server", broker.bootstrap_servers)
    assert main([*arguments, *there]) == 1
    said = capsys.readouterr()
    assert words in said.err and said.err.count("\n") == 1 and is_harmless(said.err)


@pytest.mark.parametrize(
    "arguments",
    [
        ("group", "list", "--timeout", "nan"),
        ("group", "list", "--timeout", "inf"),
        ("topic", "list", "--timeout", "-1"),
        ("top", "--interval", "1e300"),
        ("txn", "abort", "--topic", "t", "--partition", "9" * 5_000),
        ("txn", "describe-producers", "--topic", "t", "--partition", "4294967296"),
        ("txn", "abort", "--topic", "t", "--partition", "0", "--producer-id", "9223372036854775808"),
        ("txn", "abort", "--topic", "t", "--partition", "0", "--producer-epoch", "65536"),
        ("txn", "list", "--duration-filter", "99999999999999999999"),
        ("produce", "t", "--partition", "-1"),
        ("produce", "t", "--partition", "\u0661"),
    ],
)
def test_numbers_that_fit_nothing_are_refused_with_the_usage(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert ended.value.code == 2 and "must be a" in capsys.readouterr().err


@pytest.mark.parametrize("redirection", [">/dev/full", ">&-", "<&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("command", ["group list", "consume t", "produce t", "config"])
def test_a_stream_that_is_closed_or_full_costs_no_traceback(broker: Broker, command: str, redirection: str) -> None:
    there = "" if command == "config" else f" --bootstrap-server {broker.bootstrap_servers}"
    line = f"{sys.executable} -m kafkalite {command}{there} {redirection}"
    done = subprocess.run(
        line, shell=True, input=b"", capture_output=True, env=environment(), timeout=DEADLINE_S, check=False
    )
    is_refused = redirection == ">/dev/full" and command != "produce t"
    expected = b"kafkalite: the output cannot be written: No space left on device\n" if is_refused else b""
    assert (done.returncode, done.stderr) == (int(is_refused), expected)


def test_a_terminal_of_another_encoding_gets_escapes(broker: Broker) -> None:
    command = [sys.executable, "-m", "kafkalite", "group", "list", "--bootstrap-server", broker.bootstrap_servers]
    done = subprocess.run(
        command, capture_output=True, env={**environment(), "PYTHONIOENCODING": "ascii"}, timeout=DEADLINE_S, check=True
    )
    assert b"J\\xfcrgen \\u65e5\\u672c" in done.stdout


def test_a_dump_on_a_terminal_is_harmless_and_whole_in_a_pipe(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        broker.create_topic("t")
        broker.produce("t", key="k", value=STEERING, headers=[(STEERING, b"")])
    command = [sys.executable, "-m", "kafkalite", "log", "dump", "--print-data-log", str(tmp_path / "t-0")]
    piped = subprocess.run(command, capture_output=True, env=environment(), timeout=DEADLINE_S, check=True)
    assert STEERING.encode() in piped.stdout
    ours, theirs = os.openpty()
    try:
        assert subprocess.run(command, stdout=theirs, env=environment(), timeout=DEADLINE_S, check=True)
        shown = os.read(ours, 65_536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert "\\x1b[2J" in shown and is_harmless(shown.replace("\r\n", "\n").replace("\t", ""))
