"""`kafkalite acl`, `quota` and `config`: what a JVM tool would be needed for otherwise."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from kafkalite.cli import command_config
from kafkalite.cli.main import main
from kafkalite.testing import Broker

Said = tuple[int, list[str], list[str]]
Say = Callable[..., Said]
ADMIN = {"authorizer_class_name": "kafka.security.authorizer.AclAuthorizer", "super_users": "User:ANONYMOUS"}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(**ADMIN) as broker:
        broker.create_topic("orders")
        yield broker


@pytest.fixture
def say(broker: Broker, capsys: pytest.CaptureFixture[str]) -> Say:
    """Run a command: (exit code, lines on stdout, lines on stderr)."""

    def run(*arguments: str) -> Said:
        capsys.readouterr()
        code = main([*arguments, "-b", broker.bootstrap_servers])
        said = capsys.readouterr()
        return code, said.out.splitlines(), said.err.splitlines()

    return run


def test_access_control_lists_come_and_go(say: Say) -> None:
    assert say("acl", "list") == (0, ["no access control lists match"], [])
    given = ("--principal", "User:alice", "--operation", "read", "--operation", "describe")
    assert say("acl", "add", "--topic", "orders", "--prefixed", *given) == (0, ["2 entries added"], [])
    assert say("acl", "add", "--cluster", "--principal", "User:bob", "--deny", "--host", "10.0.0.1")[0] == 0
    _, lines, _ = say("acl", "list", "--json")
    found = [json.loads(line) for line in lines]
    assert [(one["name"], one["pattern"], one["principal"], one["operation"]) for one in found] == [
        ("orders", "prefixed", "User:alice", "READ"),
        ("orders", "prefixed", "User:alice", "DESCRIBE"),
        ("kafka-cluster", "literal", "User:bob", "ALL"),
    ]
    assert (found[2]["permission"], found[2]["host"]) == ("DENY", "10.0.0.1")
    assert say("acl", "remove", "--principal", "User:alice", "--operation", "READ") == (0, ["1 entry removed"], [])
    assert say("acl", "remove", "--yes") == (0, ["2 entries removed"], [])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["add", "--principal", "User:a"], "name a resource"),
        (["add", "--topic", "t"], "name a --principal"),
        (["add", "--topic", "t", "--principal", "alice"], "such as User:alice"),
        (["remove"], "no access control lists match"),
    ],
)
def test_an_entry_that_is_not_whole_is_refused(say: Say, arguments: list[str], complaint: str) -> None:
    code, _, [line] = say("acl", *arguments)
    assert code == 1 and complaint in line


def test_quotas_are_set_listed_and_removed(say: Say) -> None:
    assert say("quota", "list") == (0, ["no quotas are set"], [])
    assert say("quota", "set", "--user", "alice", "producer_byte_rate=1MiB")[:2] == (
        0,
        ["quotas of user alice altered"],
    )
    assert say("quota", "set", "--client-id", "default", "consumer_byte_rate=2048")[0] == 0
    _, lines, _ = say("quota", "list", "--json")
    assert {json.dumps(json.loads(line)["entity"]) for line in lines} == {'{"user": "alice"}', '{"client-id": null}'}
    assert any(line.endswith("1.0 MiB/s") for line in say("quota", "list")[1])
    assert say("quota", "remove", "--user", "alice", "producer_byte_rate")[0] == 0
    assert len(say("quota", "list", "--json")[1]) == 1
    assert say("quota", "set", "producer_byte_rate=1")[2] == [
        "kafkalite: name the entity: --user, --client-id, both, or --ip"
    ]
    assert "must be a number" in say("quota", "set", "--user", "a", "producer_byte_rate=x")[2][0]


def test_settings_of_topics_and_brokers_are_shown_with_their_source_and_changed(say: Say) -> None:
    assert say("config", "--topic", "orders", "--set", "retention.ms=1000")[:2] == (0, ["settings of orders altered"])
    _, lines, _ = say("config", "--topic", "orders", "--json")
    own = [json.loads(line) for line in lines if json.loads(line)["source"] == "topic"]
    assert own == [{"setting": "retention.ms", "value": "1000", "source": "topic", "read_only": False}]
    assert len(say("config", "--topic", "orders", "--all", "--json")[1]) > 20
    assert say("config", "--broker", "0", "--all", "--json")[0] == 0
    assert "there is no such broker" in say("config", "--broker", "7")[2][0]
    assert say("config", "--topic", "orders", "--set", "retention.ms=soon")[0] == 1
    assert say("config", "--topic", "orders", "--set", "retention.ms=1d", "--set", "segment.bytes=64MiB")[0] == 0
    _, lines, _ = say("config", "--topic", "orders", "--json")
    own = {found["setting"]: found["value"] for found in map(json.loads, lines) if found["source"] == "topic"}
    assert own == {"retention.ms": "86400000", "segment.bytes": "67108864"}
    assert say("config", "--topic", "orders", "--delete", "segment.bytes")[0] == 0
    assert say("config", "--topic", "orders", "--delete", "retention.ms")[0] == 0
    assert not [
        line for line in say("config", "--topic", "orders", "--json")[1] if '"topic"' in line.split("source")[1]
    ]


def test_the_address_comes_from_the_environment(
    broker: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in command_config.ADDRESS_VARIABLES:
        for each in command_config.ADDRESS_VARIABLES:
            monkeypatch.delenv(each, raising=False)
        monkeypatch.setenv(name, broker.bootstrap_servers)
        assert main(["topic", "list"]) == 0 and "orders" in capsys.readouterr().out


COMMANDS = (
    ["topic", "list"], ["topic", "describe"], ["group", "list"], ["txn", "list"], ["cleaner", "status"],
    ["user", "list"], ["acl", "list"], ["quota", "list"], ["health"], ["doctor"],
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("flag", ["-b", "--bootstrap", "--bootstrap-server"])
def test_every_command_names_a_broker_in_the_same_way(broker: Broker, command: list[str], flag: str) -> None:
    assert main([*command, flag, broker.bootstrap_servers]) in (0, 1)


@pytest.mark.parametrize(
    ("line", "usage", "hint"),
    [
        (["topic", "list", "--jsn"], "usage: kafkalite topic list", "did you mean --json?"),
        (["topic", "lst"], "usage: kafkalite topic ", "did you mean list?"),
        (["tpic"], "usage: kafkalite ", "did you mean topic?"),
        (["serve", "--prot", "1"], "usage: kafkalite serve", "did you mean --port?"),
    ],
)
def test_a_wrong_word_is_refused_with_the_usage_of_its_command(
    capsys: pytest.CaptureFixture[str], line: list[str], usage: str, hint: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(line)
    said = capsys.readouterr().err
    assert ended.value.code == 2 and said.startswith(usage) and hint in said


def test_version_and_help_are_commands_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0 and capsys.readouterr().out.startswith("kafkalite ")
    with pytest.raises(SystemExit):
        main(["help", "topic"])
    assert capsys.readouterr().out.startswith("usage: kafkalite topic")


def test_a_loss_is_confirmed_on_a_terminal(broker: Broker, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def __init__(self, answer: str) -> None:
            self.answer = answer

        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            return self.answer

    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdin", Terminal("\n"))
    code, _, said = say("topic", "delete", "orders")
    assert code == 1 and said == ["All records of orders are lost. Continue? [y/N] kafkalite: nothing was changed"]
    assert "orders" in broker.topics
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert say("topic", "delete", "orders")[:2] == (0, ["topic orders deleted"])
