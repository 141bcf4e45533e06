"""AlterReplicaLogDirs, DescribeLogDirs."""

from __future__ import annotations

from kafkalite.protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
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


def move(*asked: tuple[str, str, list[int]]) -> AlterReplicaLogDirsRequest:
    """To a directory: partitions of a topic."""
    return AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=name, partitions=partitions)])
            for path, name, partitions in asked
        ]
    )


def directory_of(t: Teller) -> str:
    """The only directory of the broker."""
    (one,) = t.aside(DescribeLogDirsRequest(topics=None), 4).results
    return str(one.log_dir)


@every_version("AlterReplicaLogDirs")
def logs_stay(t: Teller) -> None:
    topic, here = filled(t), directory_of(t)
    t.ask("one", move((here, topic, [0])))
    t.ask("two", move((here, topic, [1, 0])))
    t.ask("two topics", move((here, topic, [1]), (here, t.topic("other"), [0])))
    t.ask("the groups' topic", move((here, "__consumer_offsets", [0])))
    t.ask("they are there", sizes((topic, [0, 1])), 4)


@every_version("AlterReplicaLogDirs")
def directories_that_are_not_there(t: Teller) -> None:
    topic, here = t.topic(partitions=2), directory_of(t)
    for shown, path in {
        "unknown": "/nowhere",
        "relative": "here",
        "empty": "",
        "below": here + "/below",
        "above": here.rpartition("/")[0],
        "with a slash": here + "/",
        "by a detour": here + "/../" + here.rpartition("/")[2],
    }.items():
        t.ask(shown, move((path, topic, [0])))
    t.ask("good and bad", move((here, topic, [0]), ("/nowhere", topic, [1])))
    t.ask("of an unknown topic", move(("/nowhere", t.name("none"), [0])))


@every_version("AlterReplicaLogDirs")
def logs_that_are_not_there(t: Teller) -> None:
    topic, here = t.topic(partitions=2), directory_of(t)
    t.ask("unknown topic", move((here, t.name("none"), [0])))
    t.ask("unknown partitions", move((here, topic, [2, -1])))
    t.ask("one of three", move((here, topic, [1, 2]), (here, t.name("none"), [0])))
    t.ask("nothing asked for", move())
    t.ask("a directory without topics", AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=here)]))
    t.ask("a topic without partitions", move((here, topic, [])))
    t.ask("a topic without a name", move((here, "", [0])))
    t.ask("a name that cannot be", move((here, "d/x", [0])))
    t.ask(
        "an unknown one with a long name", move((here, "d" * 220, [0]), (here, "e" * 249, [0]), (here, "f" * 300, [0]))
    )


@every_version("AlterReplicaLogDirs")
def a_long_name(t: Teller) -> None:
    here = directory_of(t)
    for length in (213, 214, 215, 249):
        topic = t.topic("x" * (length - len(t.name(""))))
        assert len(topic) == length
        t.ask(f"{length} letters", move((here, topic, [0])))
        t.ask(f"{length} letters, to nowhere", move(("/nowhere", topic, [0])))


@every_version("AlterReplicaLogDirs")
def a_log_twice(t: Teller) -> None:
    topic, here = t.topic(partitions=2), directory_of(t)
    t.ask("a partition", move((here, topic, [0, 0])))
    t.ask("a directory", move((here, topic, [0]), (here, topic, [0, 1])))
    t.ask("there and nowhere", move((here, topic, [0]), ("/nowhere", topic, [0])))
    t.ask("nowhere and there", move(("/nowhere", topic, [0]), (here, topic, [0])))
