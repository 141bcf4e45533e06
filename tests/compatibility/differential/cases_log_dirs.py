"""DescribeLogDirs."""

from __future__ import annotations

from kafkalite.protocol.messages.log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tests.compatibility.differential.asking import batch, produce
from tests.compatibility.differential.cases_delete_records import delete_before, filled
from tests.compatibility.differential.engine import Teller, every_version, in_versions


def sizes(*asked: tuple[str, list[int]]) -> DescribeLogDirsRequest:
    return DescribeLogDirsRequest(
        topics=[DescribableLogDirTopic(topic=name, partitions=partitions) for name, partitions in asked]
    )


@every_version("DescribeLogDirs")
def how_large(t: Teller) -> None:
    topic = filled(t)
    everything = DescribeLogDirsRequest(topics=None)
    t.ask("all there is", everything)
    t.ask("two partitions", sizes((topic, [0, 1])))
    t.ask("the empty one", sizes((topic, [1])))
    t.aside(produce(topic, batch(b"more", key=b"k"), batch(b"first", key=b"k")), 8)
    t.ask("after more", everything)
    t.aside(delete_before(topic, 3), 2)
    t.ask("records are deleted, their segment stays", everything)


@in_versions(0, 1, 4)
def what_is_not_there(t: Teller) -> None:
    topic = filled(t)
    t.ask("unknown topic", sizes((t.name("none"), [0])))
    t.ask("unknown partitions", sizes((topic, [2, -1])))
    t.ask("one of three", sizes((topic, [0, 2]), (t.name("none"), [0])))
    t.ask("nothing asked for", sizes())
    t.ask("a topic without partitions", sizes((topic, [])))
    t.ask("one twice", sizes((topic, [0, 0])))
    t.ask("a topic twice", sizes((topic, [0]), (topic, [1, 0])))


@in_versions(4)
def of_several_segments(t: Teller) -> None:
    topic = t.topic(segment_bytes=200)
    for number in range(6):
        t.aside(produce(topic, batch(b"%d" % number * 30)), 8)
    t.ask("all of them", sizes((topic, [0])))
