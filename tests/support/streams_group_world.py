"""Groups of Kafka Streams without a loop, as consumer groups in `consumer_group_world.py`.

`StreamsWorld.join` sends the first heartbeat of a member, `beat` another one; `tasks` are rows such as {"0": [0, 1]}.
"""

from __future__ import annotations

from kafkalite.coordinator.group.streams.streams_environment import StreamsGroupConfig
from kafkalite.coordinator.group.streams.streams_heartbeat import StreamsHeartbeat, StreamsHeartbeatResult
from kafkalite.coordinator.group.streams.tasks import task_set
from kafkalite.coordinator.group.streams.topology import InternalTopic, Subtopology, Topology
from tests.support.consumer_group_world import Answered, Topics, World

REBALANCE_MS = 60_000
SESSION_MS = 45_000
HEARTBEAT_MS = 5_000
DELAY_MS = 3_000

STATELESS = Topology(0, (Subtopology("0", ("foo",)),))
STATEFUL = Topology(0, (Subtopology("0", ("foo",), changelog_topics=(InternalTopic("foo-changelog"),)),))


class StreamsWorld(World):
    """As `World`, with the settings of groups of Kafka Streams."""

    def __init__(self, topics=None, topology=STATELESS, **settings):
        defaults = {"initial_rebalance_delay_ms": 0, "assignment_interval_ms": 0}
        self.streams_config = StreamsGroupConfig(**defaults | settings)
        self.topology = topology
        super().__init__(topics or Topics(foo=4))

    def _settings(self):
        return {"streams_config": lambda group_id: self.streams_config}

    def send(self, member, epoch, *, group="g", client="c", knows=0, owns=None, **fields):
        """A heartbeat; returns its waiter. `owns` are active tasks, or all three kinds; `knows` is the epoch of the
        endpoints."""
        if owns is not None:
            kinds = owns if isinstance(owns, tuple) else (owns, {}, {})
            names = ("active", "standby", "warmup")
            fields |= {name: task_set(some.items()) for name, some in zip(names, kinds, strict=True)}
        request = StreamsHeartbeat(member, epoch, client, "/10.0.0.1", knows, **fields)
        waiter = Answered()
        if not fields:  # as the handler asks first
            names = request.client_id, request.client_host
            interval_ms = self.coordinator.streams_groups.keep_alive(group, member, epoch, knows, names)
            if interval_ms is not None:
                waiter.answer(
                    StreamsHeartbeatResult(
                        member_id=member,
                        member_epoch=epoch,
                        heartbeat_interval_ms=interval_ms,
                        endpoint_epoch=knows,
                    )
                )
                return waiter
        self.coordinator.streams_groups.heartbeat(group, request, waiter)
        return waiter

    def join(self, member, **fields):
        return self.beat(member, 0, **self.joining(member) | fields)

    def joining(self, member):
        """The fields of a heartbeat that joins; each member is a process by itself."""
        return {
            "rebalance_timeout_ms": REBALANCE_MS,
            "topology": self.topology,
            "owns": {},
            "process_id": f"process-{member}",
            "client_tags": (),
        }

    def assigned(self, member, group="g"):
        """The active tasks of the member."""
        active = self.member(member, group).current.assigned.active
        return {key: sorted(some) for key, some in active.items()}
