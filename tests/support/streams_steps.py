"""Steps of a group of Kafka Streams, one or more for each kind of record, with and without optional fields."""

from __future__ import annotations

from kafkalite.coordinator.group.streams.streams_member import (
    CurrentTasks,
    Endpoint,
    StreamsMemberState,
    StreamsMetadata,
)
from kafkalite.coordinator.group.streams.streams_tables import (
    GroupMetadata,
    SetCurrent,
    SetMember,
    SetMetadata,
    SetTarget,
    SetTargetEpoch,
    SetTopology,
    Step,
)
from kafkalite.coordinator.group.streams.tasks import AssignedTasks, Tasks
from kafkalite.coordinator.group.streams.topology import CopartitionGroup, InternalTopic, Subtopology, Topology

_ALL_FIELDS = StreamsMetadata(
    "i", "rack", "client", "/10.0.0.1", 60_000, 3, "process", Endpoint("host", 65_535), (("a", "1"), ("b", "2"))
)
_ASSIGNED = AssignedTasks({"0": {0: 1, 2: 3}, "1": {5: 4}}, {"1": frozenset({1, 0})}, {"2": frozenset({7})})
_PENDING = AssignedTasks({"0": {4: 2}}, {"0": frozenset({3})}, {"1": frozenset({2})})
_CHANGELOG = InternalTopic("app-store-changelog", 0, 3, (("cleanup.policy", "compact"), ("retention.ms", "-1")))
_TOPOLOGY = Topology(
    2,
    (
        Subtopology("0", ("a", "b"), (), (), ("app-by-word-repartition",)),
        Subtopology(
            "1",
            ("c",),
            (),
            (_CHANGELOG,),
            (),
            (InternalTopic("app-by-word-repartition", 4),),
            (CopartitionGroup((0,), (), (0,)),),
        ),
    ),
)

STREAMS_STEPS: list[Step] = [
    SetMetadata(GroupMetadata(3, -5, 2, (("num.standby.replicas", "1"),))),
    SetMetadata(GroupMetadata(2, 0, -1, (("num.standby.replicas", "0"),))),
    SetMember("m", _ALL_FIELDS),
    SetMember("m", StreamsMetadata(client_id="c", client_host="/h", process_id="p")),
    SetTargetEpoch(3, 0),
    SetTargetEpoch(3, 1_700_000_000_000),
    SetTarget("m", Tasks({"0": frozenset({1, 0})}, {"1": frozenset({2})}, {"0": frozenset({3})})),
    SetTarget("m", Tasks()),
    SetCurrent("m", CurrentTasks(4, 3, StreamsMemberState.UNREVOKED, _ASSIGNED, _PENDING)),
    SetCurrent("m", CurrentTasks(1, 0, StreamsMemberState.UNRELEASED)),
    SetTopology(_TOPOLOGY),
    SetTopology(Topology(0)),
]
