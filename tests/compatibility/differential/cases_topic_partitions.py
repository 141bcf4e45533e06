"""DescribeTopicPartitions: pages, cursors, and what cannot be described."""

from __future__ import annotations

from kafkalite.protocol.messages.topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from tests.compatibility.differential.engine import Explained, Teller, once_in_4_3


def described(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


NO_NAME = Explained(
    "a topic without a name is INVALID_TOPIC_EXCEPTION",
    "Kafka fails on the whole request with UNKNOWN_SERVER_ERROR",
    "topics.**",
)


@once_in_4_3
def topics_by_name(t: Teller) -> None:
    one, many = t.topic("one"), t.topic("many", partitions=5)
    t.ask("one", described(one))
    t.ask("two, not in order", described(one, many))
    t.ask("one twice", described(one, one))
    t.ask("an unknown one", described(t.name("none")))
    t.ask("known and unknown", described(t.name("zzz"), one, t.name("aaa"), many))
    for name in (".", "a/b", "a" * 250):
        t.ask(f"a name that cannot be, of {len(name)}", described(name, one))
    t.ask("without a name", described("", one), but=NO_NAME)
    t.ask("the groups' topic, one partition of it", described("__consumer_offsets", limit=1))


@once_in_4_3
def in_pages(t: Teller) -> None:
    names = [t.topic(stem, partitions=count) for stem, count in (("a", 3), ("b", 2), ("c", 1))]
    for limit in (1, 2, 3, 4, 5, 6, 7, 0, -1):
        t.ask(f"of {limit}", described(*names, limit=limit))
    cursor: tuple[str, int] | None = None
    for page in range(9):
        answer = t.ask(f"page {page}", described(*names, limit=2, cursor=cursor))
        if answer.next_cursor is None:
            break
        cursor = answer.next_cursor.topic_name, answer.next_cursor.partition_index
    t.ask("unknown ones between", described(names[0], t.name("aa"), t.name("ab"), names[2], limit=3))
    t.ask("an unknown one last", described(names[0], t.name("zz"), limit=3))


@once_in_4_3
def cursors(t: Teller) -> None:
    a, b, c = (t.topic(stem, partitions=3) for stem in "abc")
    for index in (0, 1, 2, 3, 4, 100):
        t.ask(f"at {index} of b", described(a, b, c, cursor=(b, index)))
    t.ask("at -1", described(a, b, c, cursor=(b, -1)))
    t.ask("of a topic that is not asked for", described(a, c, cursor=(b, 0)))
    t.ask("of no topic", described(a, c, cursor=("", 0)))
    t.ask("of a topic that is not, asked for", described(a, t.name("bb"), c, cursor=(t.name("bb"), 1)))
    t.ask("of a topic that is not, not asked for", described(a, c, cursor=(t.name("bb"), 0)))
    t.ask("without topics, at -1", described(cursor=(c, -1), limit=1))
    t.ask("without topics, in the last", described(cursor=(c, 1), limit=1))
    t.ask("without topics, of a topic that is not", described(cursor=(t.name("bb"), 7), limit=1))
    t.ask("a negative index of an unknown topic", described(a, cursor=(t.name("bb"), -1)))
