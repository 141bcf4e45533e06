"""`kafkalite topic`: topics made, changed and deleted as other clients see them; refusals in one line."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from kafkalite import Broker
from kafkalite.cli.main import main
from kafkalite.testing import Cluster
from tests.support.wait import until

Said = tuple[int, list[str], list[str]]
Say = Callable[..., Said]
OF_THE_TOPIC = 1  # the source of a setting: DYNAMIC_TOPIC_CONFIG


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Run the command: (exit code, lines on stdout, lines on stderr)."""

    def run(place: Broker | Cluster, *arguments: str) -> Said:
        capsys.readouterr()
        code = main(["topic", *arguments, "--bootstrap", place.bootstrap_servers])
        said = capsys.readouterr()
        return code, said.out.splitlines(), said.err.splitlines()

    return run


def settings_of(broker: Broker, topic: str) -> dict[str, str]:
    """The topic's own settings, as confluent-kafka is told."""
    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    [described] = client.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    return {name: one.value for name, one in described.result().items() if one.source == OF_THE_TOPIC}


def test_topics_come_change_and_go(say: Say) -> None:
    with Broker() as broker:
        given = ("--partitions", "3", "--config", "retention.ms=1000", "--config", "cleanup.policy=compact,delete")
        assert say(broker, "create", "orders", "prices", *given) == (
            0,
            ["topic orders created", "topic prices created"],
            [],
        )
        assert broker.topics == {"orders": 3, "prices": 3}
        assert settings_of(broker, "orders") == {"retention.ms": "1000", "cleanup.policy": "compact,delete"}
        changes = ("--partitions", "5", "--config", "retention.ms=2000", "--delete-config", "cleanup.policy")
        assert say(broker, "alter", "orders", *changes) == (0, ["topic orders altered"], [])
        assert settings_of(broker, "orders") == {"retention.ms": "2000"} and broker.topics["orders"] == 5
        assert say(broker, "delete", "prices") == (0, ["topic prices deleted"], [])
        assert broker.topics == {"orders": 5}


def test_one_refusal_does_not_hold_up_the_others(say: Say) -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        code, _, complaints = say(broker, "create", "orders", "a b", "prices")
        assert code == 1 and set(broker.topics) == {"orders", "prices"}
        assert "kafkalite: topic orders is not created: Topic 'orders' already exists." in complaints
        assert any("topic a b is not created: Topic name is invalid" in line for line in complaints)
        assert say(broker, "create", "orders", "--if-not-exists")[::2] == (0, [])
        code, _, complaints = say(broker, "delete", "orders", "nothing")
        assert code == 1 and set(broker.topics) == {"prices"}
        assert complaints == ["kafkalite: topic nothing is not deleted: no topic has this name"]
        assert say(broker, "delete", "nothing", "--if-exists") == (0, [], [])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["orders"], "nothing to alter; give --partitions, --config or --delete-config"),
        (["nothing", "--partitions", "2"], "topic nothing not found at"),
        (["orders", "--config", "retention.ms"], "--config retention.ms must be KEY=VALUE"),
        (["orders", "--config", "retention.ms=soon"], "retention.ms=soon must be a number, perhaps with a unit: "),
        (["orders", "--config", "min.insync.replicas=some"], "topic orders keeps its settings: "),
        (["orders", "--partitions", "1"], "topic orders gets no more partitions: "),
    ],
)
def test_what_cannot_be_altered_is_said_in_one_line(say: Say, arguments: list[str], complaint: str) -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        code, _, complaints = say(broker, "alter", *arguments)
        assert code == 1 and len(complaints) == 1 and complaint in complaints[0]


def test_a_number_of_partitions_is_one_or_more(say: Say) -> None:
    with Broker() as broker, pytest.raises(SystemExit):
        say(broker, "create", "orders", "--partitions", "0")


def test_topics_of_a_cluster_are_listed_with_their_replicas(say: Say) -> None:
    with Cluster(3) as cluster:
        assert say(cluster, "create", "orders", "--partitions", "4", "--replicas", "3")[0] == 0
        for partition in range(4):
            cluster.wait_for_isr("orders", partition, {0, 1, 2})
        whole = {"topic": "orders", "partitions": 4, "replicas": 3, "under_replicated": 0, "without_leader": 0}
        until(  # the broker that is asked may be told later than the others
            lambda: [json.loads(line) for line in say(cluster, "list", "--json")[1]] == [whole],
            "all replicas in the list",
        )
        code, lines, _ = say(cluster, "list")
        assert code == 0 and [line.split() for line in lines] == [
            ["topic", "partitions", "replicas", "under-replicated", "without", "leader"],
            ["orders", "4", "3", "0", "0"],
        ]


def test_topics_of_the_broker_are_listed_when_asked_for(say: Say) -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        broker.create_topic("__consumer_offsets")
        assert [line.split()[0] for line in say(broker, "list")[1]] == ["topic", "orders"]
        assert [line.split()[0] for line in say(broker, "list", "--internal")[1]] == [
            "topic",
            "__consumer_offsets",
            "orders",
        ]
