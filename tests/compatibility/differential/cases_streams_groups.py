"""Groups of Kafka Streams (KIP-1071): heartbeats step by step, topologies and their topics, other APIs on a group."""

from __future__ import annotations

from kafkalite.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkalite.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from kafkalite.protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    ListGroupsRequest,
)
from kafkalite.protocol.messages.share_groups import ShareGroupDescribeRequest, ShareGroupHeartbeatRequest
from kafkalite.protocol.messages.streams_groups import (
    StreamsCopartitionGroup,
    StreamsEndpoint,
    StreamsKeyValue,
    StreamsSubtopology,
    StreamsTaskOffset,
)
from kafkalite.protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState
from tests.compatibility.differential.asking import SET, TOPIC, change, metadata
from tests.compatibility.differential.asking_streams import (
    GROUP_RESOURCE,
    HEARTBEAT,
    beat,
    describe,
    has_started,
    inner,
    join,
    owning,
    prompt_group,
    reading,
    tasks,
    topology,
    word_count,
)
from tests.compatibility.differential.asking_transactions import ended, started
from tests.compatibility.differential.cases_consumer_groups import (
    SOONER,
    classic_join,
    commit,
    deletes,
    fetch,
    known_topic,
    leave,
    sync,
)
from tests.compatibility.differential.cases_consumer_groups import join as join_consumers
from tests.compatibility.differential.cases_consumer_transactions import NOBODY
from tests.compatibility.differential.cases_consumer_transactions import commit as commit_in_transaction
from tests.compatibility.differential.cases_transaction_offsets import is_stable, with_group
from tests.compatibility.differential.engine import Explained, Teller, once_in_4_3, tries

TASKS_AGAIN = Explained(
    "a member that says to have other tasks than it was assigned gets them once more",
    "an answer was lost, and Kafka leaves the member without what was in it until the next assignment",
    *(f"{kind}_tasks{rest}" for kind in ("active", "standby", "warmup") for rest in ("", ".**")),
)


@once_in_4_3
def refusals(t: Teller) -> None:
    group, topic = prompt_group(t), known_topic(t)
    simple = topology(reading(topic))
    offset = [StreamsTaskOffset(subtopology_id="0", partition=0, offset=1)]
    for label, request in (
        ("without an id", join(group, "", simple)),
        ("a blank id", join(group, " ", simple)),
        ("a long id", join(group, "x" * 40, None)),
        ("a group without a name", join("", "m", simple)),
        ("a blank group", join(" ", "m", simple)),
        ("static", join(group, "m", simple, instance_id="i")),
        ("a blank instance", join(group, "m", simple, instance_id=" ")),
        ("a blank rack", join(group, "m", simple, rack_id="")),
        ("no timeout", join(group, "m", simple, rebalance_timeout_ms=-1)),
        ("active tasks", join(group, "m", simple, active_tasks=tasks({"0": [0]}))),
        ("standby tasks", join(group, "m", simple, standby_tasks=tasks({"0": [0]}))),
        ("warm-up tasks", join(group, "m", simple, warmup_tasks=tasks({"0": [0]}))),
        ("one kind of task only", join(group, "m", simple, standby_tasks=None)),
        ("no topology", join(group, "m", None)),
        ("offsets of tasks", join(group, "m", simple, task_offsets=offset)),
        ("end offsets of tasks", join(group, "m", simple, task_end_offsets=offset)),
        ("an empty list of offsets", join(group, "m", simple, task_offsets=[])),
        ("away without an instance", beat(group, "m", -2)),
        ("away with an instance", beat(group, "m", -2, instance_id="i")),
        ("an epoch that there is not", beat(group, "m", -3)),
        ("a topology later", beat(group, "m", 1, topology=simple)),
        ("one kind of task only, later", beat(group, "m", 1, active_tasks=[])),
        ("several faults", join("", "", None, rebalance_timeout_ms=-1)),
        ("several others", join(group, "", simple, instance_id="i", task_offsets=offset)),
        ("an unknown group", beat(t.name("none"), "m", 1)),
        ("leaving an unknown group", beat(t.name("none"), "m", -1)),
        ("the group is still unknown", describe(group)),
    ):
        t.ask(label, request, 0)
    t.aside(join(group, "m", simple), HEARTBEAT)
    t.ask("an unknown member", beat(group, "other", 1), 0)
    t.ask("an unknown one leaves", beat(group, "other", -1), 0)


@once_in_4_3
def bad_topologies(t: Teller) -> None:
    group, topic = prompt_group(t), known_topic(t)
    by_word, counts = t.name("by-word"), t.name("counts")
    loop = StreamsSubtopology(
        subtopology_id="0", repartition_sink_topics=[by_word], repartition_source_topics=[inner(by_word)]
    )
    for label, bad in (
        ("a pattern", topology(reading(topic, source_topic_regex=["a.*"]))),
        ("a changelog with partitions", topology(reading(topic, state_changelog_topics=[inner(counts, 3)]))),
        ("a topic of Kafka", topology(reading(topic, "__consumer_offsets"))),
        ("two of Kafka", topology(reading("__share_group_state", repartition_sink_topics=["__transaction_state"]))),
        ("a bad name", topology(reading(topic, "a b", state_changelog_topics=[inner("c/d")]))),
        ("a name that is too long", topology(reading("x" * 250))),
        ("a bad name and a topic of Kafka", topology(reading("a b", "__consumer_offsets"))),
        ("nothing to read", topology(StreamsSubtopology(subtopology_id="0"))),
        ("a loop", topology(loop)),
        ("nobody writes it", topology(reading(topic, repartition_source_topics=[inner(by_word)]))),
        ("an epoch below 0", topology(reading(topic), epoch=-1)),
        ("an id twice", topology(reading(topic), reading(topic))),
        (
            "an index beyond",
            topology(reading(topic, copartition_groups=[StreamsCopartitionGroup(source_topics=[1])])),
        ),
    ):
        t.ask(label, join(group, "m", bad), 0)
    t.ask("no group came of it", describe(group), 0)
    t.ask("no subtopologies", join(group, "m", topology()), 0)
    t.ask("a group without tasks", describe(group), 0)


@once_in_4_3
def faulty_topics(t: Teller) -> None:
    groups = [prompt_group(t, f"g{number}") for number in range(5)]
    one, two, joined = known_topic(t, "one", 1), known_topic(t, "two", 2), t.name("joined")
    together = [StreamsCopartitionGroup(source_topics=[0, 1])]
    absent = [t.name(each) for each in ("z", "c", "b", "a")]
    with_inner = [StreamsCopartitionGroup(source_topics=[0], repartition_source_topics=[0])]
    counts = known_topic(t, "counts", 3)
    topologies = (
        ("missing", topology(reading(one, absent[0]))),
        ("four are missing", topology(reading(*absent))),
        ("copartitioned with other partitions", topology(reading(one, two, copartition_groups=together))),
        (
            "a repartition topic with other partitions",
            topology(
                reading(one, repartition_sink_topics=[joined]),
                reading(two, key="1", repartition_source_topics=[inner(joined, 5)], copartition_groups=with_inner),
            ),
        ),
        ("an internal topic with other partitions", topology(reading(two, state_changelog_topics=[inner(counts)]))),
    )
    for group, (label, sent) in zip(groups, topologies, strict=True):
        t.ask(label, join(group, "m", sent), 0)
        t.ask(f"described: {label}", describe(group), 0)
        t.ask(f"a sign of life: {label}", owning(group, "m", 2, {}), 0)


@once_in_4_3
def topics_come(t: Teller) -> None:
    group = prompt_group(t)
    known_topic(t, "before")
    topic = t.name("late")
    sent = word_count(t, topic)
    t.ask("a source is missing", join(group, "m", sent), 0)
    t.ask("not ready", describe(group), 0)
    t.ask("it leaves", beat(group, "m", -1), 0)
    known_topic(t, "late", 3)
    t.ask("internal topics are missing", join(group, "m", sent), 0)

    names = [t.name("by-word"), t.name("counts")]
    for name in names:
        t.led(name, 3)  # a heartbeat between the two would advance the epoch once more
    epoch = 4
    for _ in tries("tasks"):
        answer = t.aside(owning(group, "m", epoch, {}), HEARTBEAT)
        epoch = answer.member_epoch
        if answer.active_tasks:
            break
    t.note("its tasks", answer, HEARTBEAT)
    t.ask("the topics", metadata(*names), 8)
    asked = [DescribeConfigsResource(resource_type=TOPIC, resource_name=name) for name in names]
    keys = ["cleanup.policy", "retention.ms"]
    for each in asked:
        each.configuration_keys = keys
    t.ask("their settings", DescribeConfigsRequest(resources=asked), 4)
    t.ask("ready", describe(group), 0)
    t.ask("a sign of life", beat(group, "m", epoch), 0)
    gone = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], topic_names=[topic], timeout_ms=10_000)
    t.aside(gone, 5)
    t.ask("the source goes", beat(group, "m", epoch), 0, until=lambda answer: bool(answer.status))
    t.ask("not ready again", describe(group), 0)


@once_in_4_3
def share_and_leave(t: Teller) -> None:
    group, topic = prompt_group(t), known_topic(t, partitions=4)
    sent = topology(reading(topic))
    t.ask("joins", join(group, "m1", sent), 0)
    t.ask("alone", describe(group), 0)
    t.ask("nothing to tell", beat(group, "m1", 2), 0)
    t.ask("its tasks", owning(group, "m1", 2, {"0": [0, 1, 2, 3]}), 0)
    t.ask("another joins", join(group, "m2", sent), 0, but=SOONER)
    t.ask("it waits", owning(group, "m2", 3, {}), 0, but=SOONER)
    t.ask("reconciling", describe(group), 0)
    t.ask("the first has to give up", beat(group, "m1", 2), 0)
    t.ask("it has not yet", beat(group, "m1", 2), 0)
    t.ask("it says so", owning(group, "m1", 2, {"0": [0, 1, 2, 3]}), 0, but=TASKS_AGAIN)
    t.ask("revoking", describe(group), 0)
    t.ask("given up", owning(group, "m1", 2, {"0": [0, 1]}), 0)
    t.ask("once more, for the answer was lost", owning(group, "m1", 2, {"0": [0, 1]}), 0)
    t.ask("the other gets it", beat(group, "m2", 3), 0)
    t.ask("stable", describe(group), 0)
    t.ask("the same again", beat(group, "m2", 3, process_id="p-m2", client_tags=[], rebalance_timeout_ms=60_000), 0)
    t.ask("another tag", beat(group, "m2", 3, client_tags=[StreamsKeyValue(key="zone", value="a")]), 0)
    t.ask("another rack", beat(group, "m2", 4, rack_id="r"), 0)
    t.ask("one leaves", beat(group, "m1", -1), 0)
    t.ask("assigning", describe(group), 0)
    t.ask("the other takes over", beat(group, "m2", 5), 0)
    t.ask("the last leaves", beat(group, "m2", -1), 0)
    t.ask("empty", describe(group, include_authorized_operations=True), 0)
    t.ask("and again", beat(group, "m2", -1), 0)
    t.ask("back again", join(group, "m1", sent), 0)


@once_in_4_3
def epochs(t: Teller) -> None:
    group, topic = prompt_group(t), known_topic(t, partitions=2)
    sent = topology(reading(topic))
    t.aside(join(group, "m1", sent), HEARTBEAT)
    t.aside(join(group, "m2", sent), HEARTBEAT)
    t.ask("a joined one joins again", join(group, "m1", sent), 0)
    t.ask("what it was told to give up is given up", owning(group, "m1", 3, {"0": [0]}), 0)
    t.ask("the epoch before, and it says nothing", beat(group, "m1", 2), 0)
    t.ask("the epoch before, and too much", owning(group, "m1", 2, {"0": [0, 1]}), 0)
    t.ask("the epoch before, and less", owning(group, "m1", 2, {}), 0, but=TASKS_AGAIN)
    t.ask("the epoch before, and a standby", owning(group, "m1", 2, {}, {"0": [0]}), 0)
    t.ask("two epochs before", owning(group, "m1", 1, {"0": [0]}), 0)
    t.ask("an epoch to come", beat(group, "m1", 9), 0)
    t.ask("a task beyond", owning(group, "m1", 3, {"0": [2]}), 0)
    t.ask("a negative task", owning(group, "m1", 3, {"0": [-1]}), 0)
    t.ask("a standby beyond", owning(group, "m1", 3, {}, {"0": [7]}), 0)
    t.ask("another subtopology", owning(group, "m1", 3, {"1": [0]}), 0)
    t.ask("the task of another", owning(group, "m1", 3, {"0": [0, 1]}), 0, but=TASKS_AGAIN)
    t.ask("leaves with an old epoch", beat(group, "m1", -1), 0)
    t.ask("all of it", describe(group), 0)


@once_in_4_3
def topologies_change(t: Teller) -> None:
    group, topic = prompt_group(t), known_topic(t)
    other = known_topic(t, "other")
    t.ask("joins with epoch 1", join(group, "m1", topology(reading(topic), epoch=1)), 0)
    t.ask("another with the same", join(group, "m2", topology(reading(topic), epoch=1)), 0)
    t.ask("another with an old epoch", join(group, "m3", topology(reading(other), epoch=0)), 0)
    t.ask("it stays behind", owning(group, "m3", 4, {}), 0)
    t.ask("a new epoch", join(group, "m4", topology(reading(topic), epoch=2)), 0)
    t.ask("the same epoch, but another", join(group, "m4", topology(reading(other), epoch=1)), 0)
    t.ask("described", describe(group), 0)
    for member in ("m1", "m2", "m3"):
        t.aside(beat(group, member, -1), HEARTBEAT)
    t.ask("a new one in an empty group", join(group, "m5", topology(reading(other), epoch=2)), 0)
    t.ask("described then", describe(group), 0)


@once_in_4_3
def shutdown(t: Teller) -> None:
    group, topic = prompt_group(t), known_topic(t, partitions=2)
    sent = topology(reading(topic))
    t.aside(join(group, "m1", sent), HEARTBEAT)
    t.aside(join(group, "m2", sent), HEARTBEAT)
    t.ask("one asks for the end", beat(group, "m1", 2, shutdown_application=True), 0)
    t.ask("the other hears of it", beat(group, "m2", 3), 0, but=SOONER)
    t.ask("another asks, too", beat(group, "m2", 3, shutdown_application=True), 0, but=SOONER)
    t.ask("the first still hears its own", beat(group, "m1", 2), 0)
    t.ask("the first leaves", beat(group, "m1", -1), 0)
    t.ask("the other after that", beat(group, "m2", 3), 0)
    t.ask("it leaves and asks", beat(group, "m2", -1, shutdown_application=True), 0)
    t.ask("a new one", join(group, "m3", sent), 0)


@once_in_4_3
def endpoints(t: Teller) -> None:
    group, topic = prompt_group(t), known_topic(t, partitions=2)
    sent = topology(reading(topic, known_topic(t, "narrow")))
    here = {"user_endpoint": StreamsEndpoint(host="here", port=80)}
    there = {"user_endpoint": StreamsEndpoint(host="there", port=81)}
    t.ask("with an endpoint", join(group, "m1", sent, **here), 0)
    t.ask("it knows no epoch", beat(group, "m1", 2), 0)
    t.ask("it knows the epoch", beat(group, "m1", 2, endpoint_information_epoch=1), 0)
    t.ask("another", join(group, "m2", sent, **there), 0, but=SOONER)
    t.ask("the first gives up", owning(group, "m1", 2, {"0": [0, 1]}, endpoint_information_epoch=1), 0)
    t.ask("given up", owning(group, "m1", 2, {"0": [0]}, endpoint_information_epoch=2), 0)
    t.ask("the other gets it", beat(group, "m2", 3, endpoint_information_epoch=2), 0)
    t.ask("the first hears of it", beat(group, "m1", 3, endpoint_information_epoch=2), 0)
    t.ask("described", describe(group), 0)
    t.ask("without an endpoint", join(group, "m3", sent), 0)


@once_in_4_3
def standby_tasks(t: Teller) -> None:
    group = prompt_group(t, streams_num_standby_replicas="1")
    topic = known_topic(t, partitions=2)
    sent = topology(reading(topic, state_changelog_topics=[inner(t.name("counts"))]))
    epoch = has_started(t, group, "m1", sent)
    t.ask("alone", owning(group, "m1", epoch, {"0": [0, 1]}), 0)
    t.ask("another joins", join(group, "m2", sent), 0, but=SOONER)
    t.ask("a thread of its process", join(group, "m3", sent, process_id="p-m2"), 0, but=SOONER)
    t.ask("the first has to give up", beat(group, "m1", epoch), 0)
    t.ask("given up", owning(group, "m1", epoch, {"0": [0]}), 0, but=SOONER)
    t.ask("the first then", beat(group, "m1", epoch + 2), 0)
    t.ask("the second", beat(group, "m2", epoch + 1), 0)
    t.ask("the second then", beat(group, "m2", epoch + 2), 0)
    t.ask("the third", beat(group, "m3", epoch + 2), 0, but=SOONER)
    t.ask("described", describe(group), 0)


@once_in_4_3
def delays(t: Teller) -> None:
    slow = {"streams_initial_rebalance_delay_ms": "600000"}
    group, late = prompt_group(t, **slow), prompt_group(t, "h", streams_assignment_interval_ms="15000")
    topic = known_topic(t, partitions=2)
    sent = topology(reading(topic))
    t.ask("it is to wait for others", join(group, "m1", sent), 0, but=SOONER)
    t.ask("still", beat(group, "m1", 1), 0, but=SOONER)
    t.ask("so is another", join(group, "m2", sent), 0, but=SOONER)
    t.ask("described", describe(group), 0)
    t.ask("assigned at once", join(late, "m1", sent), 0)
    t.ask("so soon after that", join(late, "m2", sent), 0)
    t.ask("the first goes on", beat(late, "m1", 2), 0)
    t.ask("described then", describe(late), 0)


@once_in_4_3
def offsets(t: Teller) -> None:
    group, topic = prompt_group(t), known_topic(t, partitions=2)
    sent = topology(reading(topic))
    t.aside(join(group, "m1", sent), HEARTBEAT)
    t.aside(join(group, "m2", sent), HEARTBEAT)
    t.aside(beat(group, "m1", 2), HEARTBEAT)
    t.aside(owning(group, "m1", 2, {"0": [0]}), HEARTBEAT)
    t.aside(beat(group, "m2", 3), HEARTBEAT)
    for label, member, epoch, index in (
        ("by its epoch", "m1", 3, 0),
        ("by the epoch since when it has it", "m1", 2, 0),
        ("by an older one", "m1", 1, 0),
        ("of a partition of another", "m1", 2, 1),
        ("of that with the epoch of today", "m1", 3, 1),
        ("by an epoch to come", "m1", 4, 0),
        ("of the new one by an old epoch", "m2", 2, 1),
        ("unknown", "m9", 3, 0),
        ("by nobody", "", -1, 0),
    ):
        t.ask(f"commits {label}", commit(group, topic, index, member, epoch), 9)
    t.ask("commits in an old version", commit(group, topic, 0, "m1", 3), 8)
    for label, who, epoch in (
        ("its epoch", "m1", 3),
        ("an old epoch", "m1", 2),
        ("unknown", "m9", 3),
        ("nobody", None, -1),
        ("an empty id", "", -1),
    ):
        t.ask(f"fetches: {label}", fetch(group, topic, who, epoch), 9)
    t.ask("deletes", deletes(group, topic), 0)
    t.aside(beat(group, "m1", -1), HEARTBEAT)
    t.aside(beat(group, "m2", -1), HEARTBEAT)
    t.ask("an admin commits", commit(group, topic, 1, "", -1), 9)
    t.ask("deletes then", deletes(group, topic), 0)


@once_in_4_3
def transactions(t: Teller) -> None:
    group, topic = prompt_group(t), known_topic(t, partitions=2)
    sent = topology(reading(topic))
    t.aside(join(group, "m1", sent), HEARTBEAT)
    t.aside(join(group, "m2", sent), HEARTBEAT)
    t.aside(beat(group, "m1", 2), HEARTBEAT)
    t.aside(owning(group, "m1", 2, {"0": [0]}), HEARTBEAT)
    t.aside(beat(group, "m2", 3), HEARTBEAT)
    me = with_group(t, started(t), group)
    for label, member, epoch, index in (
        ("by its epoch", "m1", 3, 0),
        ("by the epoch since when it has it", "m1", 2, 0),
        ("by an older one", "m1", 1, 0),
        ("of a partition of another", "m1", 2, 1),
        ("of that with the epoch of today", "m1", 3, 1),
        ("by an epoch to come", "m1", 4, 0),
        ("of the new one by an old epoch", "m2", 2, 1),
        ("by an unknown member", "m9", 3, 0),
        ("by a member without an epoch", "m1", -1, 0),
        ("by nobody of an epoch", "", 3, 0),
        ("by a stranger without an epoch", "m9", -1, 0),
        ("by nobody", "", -1, 0),
    ):
        t.ask(f"commits {label}", commit_in_transaction(me, group, topic, index, (member, epoch)), 5)
    t.aside(beat(group, "m1", -1), HEARTBEAT)
    t.aside(beat(group, "m2", -1), HEARTBEAT)
    t.ask("a member that has left", commit_in_transaction(me, group, topic, 0, ("m1", 3)), 5)
    t.ask("nobody, when all have left", commit_in_transaction(me, group, topic, 1, NOBODY), 5)
    ended(t, me)
    t.ask("in the end", fetch(group, topic, None, -1), 8, until=is_stable)


@once_in_4_3
def settings_change(t: Teller) -> None:
    group = prompt_group(t)
    topic = known_topic(t, partitions=2)
    sent = topology(reading(topic, state_changelog_topics=[inner(t.name("counts"))]))
    has_started(t, group, "m1", sent)
    t.aside(join(group, "m2", sent), HEARTBEAT)
    t.aside(owning(group, "m1", 3, {"0": [0]}), HEARTBEAT)
    t.aside(owning(group, "m2", 4, {}), HEARTBEAT)
    t.ask("as it was", beat(group, "m1", 4), 0)
    t.aside(change(GROUP_RESOURCE, group, ("streams.num.standby.replicas", SET, "1")), 1)
    t.ask("a standby task", beat(group, "m1", 4), 0, until=lambda answer: bool(answer.standby_tasks))
    t.ask("the other one, too", beat(group, "m2", 4), 0)
    t.aside(change(GROUP_RESOURCE, group, ("streams.heartbeat.interval.ms", SET, "7000")), 1)
    t.ask("a heartbeat", beat(group, "m1", 5), 0, until=lambda answer: answer.heartbeat_interval_ms == 7_000)
    t.ask("described", describe(group), 0)


@once_in_4_3
def other_apis(t: Teller) -> None:
    group, classic = prompt_group(t), prompt_group(t, "classic")
    topic = known_topic(t)
    sent = topology(reading(topic))
    t.aside(join(group, "m", sent), HEARTBEAT)
    for version in (5, 6):
        t.ask(f"DescribeGroups {version}", DescribeGroupsRequest(groups=[group]), version)
    for types in (["streams"], ["Streams"], ["consumer"]):
        t.ask(f"ListGroups of {types}", ListGroupsRequest(states_filter=["stable"], types_filter=types), 5)
    t.ask("ConsumerGroupDescribe", ConsumerGroupDescribeRequest(group_ids=[group]), 1)
    t.ask("ShareGroupDescribe", ShareGroupDescribeRequest(group_ids=[group]), 1)
    t.ask("a consumer joins", join_consumers(t, group, "c", topic), 1)
    t.ask("a consumer's heartbeat", ConsumerGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=2), 1)
    share = ShareGroupHeartbeatRequest(group_id=group, member_id="s", member_epoch=0, subscribed_topic_names=[topic])
    t.ask("a share consumer joins", share, 1)
    t.ask("a classic member joins", classic_join(group, "", topic), 3)
    t.ask("Heartbeat", HeartbeatRequest(group_id=group, generation_id=2, member_id="m"), 4)
    t.ask("SyncGroup", sync(group, "m", 2), 5)
    t.ask("LeaveGroup", leave(group, "m"), 5)
    t.ask("DeleteGroups", DeleteGroupsRequest(groups_names=[group]), 2)
    t.aside(beat(group, "m", -1), HEARTBEAT)
    t.ask("a classic member joins the empty group", classic_join(group, "", topic), 3)
    t.ask("a consumer joins it", join_consumers(t, group, "c", topic), 1)
    t.ask("DeleteGroups then", DeleteGroupsRequest(groups_names=[group]), 2)
    t.ask("described", describe(group, "", t.name("none")), 0)
    consumers = t.group("consumers")
    t.aside(join_consumers(t, consumers, "c", topic), 1)
    t.ask("joins consumers", join(consumers, "m", sent), 0)
    t.ask("a heartbeat among consumers", beat(consumers, "c", 2), 0)
    t.ask("consumers described", describe(consumers), 0)
    t.aside(commit(classic, topic, 0, "", -1), 8)
    t.ask("joins an empty classic group", join(classic, "m", sent), 0)
    t.ask("its offsets", fetch(classic, topic, None, -1), 9)
    busy = t.group("busy")
    t.aside(classic_join(busy, "", topic), 3)
    t.ask("joins a classic group with members", join(busy, "m", sent), 0)
