"""Scenes of a client and a broker that misbehaves, and what the client did, in a few words.

A scene is a row of the table in docs/testing.md. Its faults are asked of kafkalite; where an Apache Kafka can be
brought to give the same error, `on_kafka` does so, and the client must do the same there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tests.compatibility.clients.faulted_clients import FaultedClient
from tests.compatibility.interop.fault_stages import VALUES, KafkaStage, Stage
from tests.support.wait import DEADLINE_S

CONTINUES = "continues"
TWICE = "writes it twice"
GIVES_UP = "gives up"
AGAIN = 2
"""How often a request is refused that may be repeated."""
KILLED = "the broker is killed and starts again"
SHORT_MS = 3_000
"""The time after which a client is to give up what can never succeed."""

Act = Callable[[FaultedClient, Stage, str], str]


class Scene(NamedTuple):
    """`name` is the row's. `faults` without `times` fire once; a key `topic` stands for the scene's. `settings` are the
    topic's on Apache Kafka."""

    name: str
    act: Act
    faults: tuple[dict[str, Any], ...] = ()
    is_filled: bool = False
    on_kafka: Callable[[KafkaStage, str], None] | None = None
    settings: Mapping[str, str] = {}


def error(api: str, name: str, times: int | None = AGAIN, **more: Any) -> dict[str, Any]:
    return {"fault": "error", "api": api, "error": name, "times": times} | more


# what the client does


def produces(**how: Any) -> Act:
    """One record into an empty topic."""

    def act(client: FaultedClient, stage: Stage, topic: str) -> str:
        raised = attempt(client, lambda: client.produce(stage.bootstrap, topic, "1", **how))
        found = stage.values(topic)
        if raised is None:
            return {("1",): CONTINUES, ("1", "1"): TWICE}[tuple(found)]
        return f"`{raised}`" + (", though it is written" if found else "")

    return act


def gives_up(client: FaultedClient, stage: Stage, topic: str) -> str:
    """As `produces`, and in vain: the error depends on the moment at which the time is up."""
    in_time = produces(request_ms=SHORT_MS // 2, delivery_ms=SHORT_MS)
    cell = in_time(client, stage, topic)
    return cell if cell in (CONTINUES, TWICE) or stage.values(topic) else GIVES_UP


def reads(**how: Any) -> Act:
    """The three records of the topic, as a group."""

    def act(client: FaultedClient, stage: Stage, topic: str) -> str:
        if how:
            stage.commit(topic, topic, 0)
        found: list[bytes] = []
        raised = attempt(
            client, lambda: found.extend(client.consume(stage.bootstrap, topic, len(VALUES), group=topic, **how))
        )
        assert raised or [value.decode() for value in found] == list(VALUES)
        return f"`{raised}`" if raised else CONTINUES

    return act


def reads_across(disturb: Callable[[Stage, str], None]) -> Act:
    """As a member of a group that is disturbed; there are records before and after it."""

    def act(client: FaultedClient, stage: Stage, topic: str) -> str:
        later = ("3", "4")
        found: list[bytes] = []
        ended: list[str | None] = []

        def consume() -> None:
            wanted = len(VALUES) + len(later)
            consumed = attempt(
                client, lambda: found.extend(client.consume(stage.bootstrap, topic, wanted, group=topic))
            )
            ended.append(consumed)

        reader = threading.Thread(target=consume, daemon=True)
        reader.start()
        member = stage.await_member(topic)
        disturb(stage, topic)
        stage.await_member(topic)
        stage.fill(topic, later)
        reader.join(2 * DEADLINE_S)
        assert ended, f"{member} is still reading"
        assert ended[0] or [value.decode() for value in found] == [*VALUES, *later]
        return f"`{ended[0]}`" if ended[0] else CONTINUES

    return act


def commits_after(disturb: Callable[[Stage, str], None]) -> Act:
    """A transaction, disturbed before its end."""

    def act(client: FaultedClient, stage: Stage, topic: str) -> str:
        commit = client.open(stage.bootstrap, topic, topic, "1")
        disturb(stage, topic)
        raised = attempt(client, commit)
        assert stage.values(topic, "read_committed") == ([] if raised else ["1"])
        return f"`{raised}`" if raised else CONTINUES

    return act


def attempt(client: FaultedClient, deed: Callable[[], object]) -> str | None:
    """The name of the error that it ended with."""
    try:
        deed()
    except client.failures as error:
        return client.name_of(error)
    return None


# what brings Apache Kafka to give the same error


def without_topic(stage: KafkaStage, topic: str) -> None:
    stage.administer("delete_topics", [topic])


def allowing_only(kind: ResourceType, operation: AclOperation) -> Callable[[KafkaStage, str], None]:
    """As soon as there is a permission for a resource, everything else is refused."""

    def permit(stage: KafkaStage, name: str) -> None:
        everyone = ("User:*", "*", operation, AclPermissionType.ALLOW)
        binding = AclBinding(kind, name, ResourcePatternType.LITERAL, *everyone)
        stage.administer("create_acls", [binding])

    return permit


REFUSED = {
    "MESSAGE_TOO_LARGE": {"max.message.bytes": "10"},
    "INVALID_RECORD": {"cleanup.policy": "compact"},  # without a key
}
RETRIED = {
    "Metadata": "LEADER_NOT_AVAILABLE",
    "FindCoordinator": "COORDINATOR_NOT_AVAILABLE",
    "JoinGroup": "COORDINATOR_LOAD_IN_PROGRESS",
    "SyncGroup": "REBALANCE_IN_PROGRESS",
    "OffsetFetch": "COORDINATOR_LOAD_IN_PROGRESS",
    "ListOffsets": "NOT_LEADER_OR_FOLLOWER",
    "Fetch": "NOT_LEADER_OR_FOLLOWER",
}


def produce_scenes() -> list[Scene]:
    once = {"times": 1, "topic": ""}
    always = {name: (error("Produce", name, None, topic=""),) for name in REFUSED}
    return [
        *(
            Scene(f"Produce: {name}, {AGAIN} times", produces(), (error("Produce", name, topic=""),))
            for name in ("NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS", "REQUEST_TIMED_OUT")
        ),
        Scene(
            "Produce: NOT_ENOUGH_REPLICAS, each time",
            gives_up,
            (error("Produce", "NOT_ENOUGH_REPLICAS", None, topic=""),),
        ),
        *(Scene(f"Produce: {name}", produces(), always[name], settings=settings) for name, settings in REFUSED.items()),
        Scene(
            "Produce: TOPIC_AUTHORIZATION_FAILED",
            produces(),
            (error("Produce", "TOPIC_AUTHORIZATION_FAILED", None, topic=""),),
            on_kafka=allowing_only(ResourceType.TOPIC, AclOperation.READ),
        ),
        Scene(
            "Metadata: UNKNOWN_TOPIC_OR_PARTITION, each time",
            produces(request_ms=SHORT_MS // 2, delivery_ms=SHORT_MS),
            (error("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", None, topic=""),),
            on_kafka=without_topic,
        ),
        Scene("the connection closes at a Produce", produces(), ({"fault": "disconnect", "api": "Produce"} | once,)),
        Scene(
            "it closes before the answer",
            produces(),
            ({"fault": "disconnect", "api": "Produce", "has_effect": True} | once,),
        ),
        Scene(
            "it closes before the answer, idempotent producer",
            produces(idempotent=True),
            ({"fault": "disconnect", "api": "Produce", "has_effect": True} | once,),
        ),
        Scene(
            "half of the answer, idempotent producer",
            produces(idempotent=True),
            ({"fault": "truncate_response", "api": "Produce"} | once,),
        ),
        Scene("no answer to a Produce", produces(request_ms=1_000), ({"fault": "blackhole", "api": "Produce"} | once,)),
        Scene(
            "a slow and a throttled answer",
            produces(),
            ({"fault": "delay", "seconds": 0.2, "api": "Produce"} | once, {"fault": "throttle", "seconds": 0.2}),
        ),
    ]


def consume_scenes() -> list[Scene]:
    scenes = [
        *(Scene(f"{api}: {name}, {AGAIN} times", reads(), (error(api, name),)) for api, name in RETRIED.items()),
        Scene("Fetch: FETCH_SESSION_ID_NOT_FOUND", reads(), (error("Fetch", "FETCH_SESSION_ID_NOT_FOUND", 1),)),
        Scene(
            "Fetch: OFFSET_OUT_OF_RANGE, and no auto.offset.reset",
            reads(reset="none"),
            (error("Fetch", "OFFSET_OUT_OF_RANGE", None),),
            on_kafka=lambda stage, topic: stage.delete_records(topic, 2),
        ),
        Scene(
            "JoinGroup: GROUP_AUTHORIZATION_FAILED",
            reads(),
            (error("JoinGroup", "GROUP_AUTHORIZATION_FAILED", None),),
            on_kafka=allowing_only(ResourceType.GROUP, AclOperation.DESCRIBE),
        ),
        Scene("records with a wrong checksum, once", reads(), ({"fault": "corrupt", "topic": "", "times": 1},)),
        Scene(
            "records with a wrong checksum, each time",
            reads(),
            ({"fault": "corrupt", "topic": "", "times": None},),
            on_kafka=lambda stage, topic: stage.damage(topic),
        ),
        Scene("a rebalance", reads_across(lambda stage, group: stage.rebalance(group))),
        Scene("a session that ends", reads_across(lambda stage, group: stage.expire_session(group))),
        Scene(f"{KILLED}, a consumer", reads_across(lambda stage, _: stage.kill_and_start())),
    ]
    return [scene._replace(is_filled=True) for scene in scenes]


def transaction_scenes() -> list[Scene]:
    return [
        Scene("a producer is fenced, and commits", commits_after(lambda stage, name: stage.fence(name))),
        Scene(f"{KILLED}, a commit", commits_after(lambda stage, _: stage.kill_and_start())),
        *(
            Scene(f"{api}: {name}, {AGAIN} times", commits_after(lambda stage, topic: None), (error(api, name),))
            for api, name in (
                ("InitProducerId", "COORDINATOR_NOT_AVAILABLE"),
                ("EndTxn", "COORDINATOR_LOAD_IN_PROGRESS"),
            )
        ),
    ]


SCENES = {scene.name: scene for scene in (*produce_scenes(), *consume_scenes(), *transaction_scenes())}
COMPARED = [scene.name for scene in SCENES.values() if scene.on_kafka or scene.settings or not scene.faults]
"""Without faults, the brokers are disturbed as each can be."""
