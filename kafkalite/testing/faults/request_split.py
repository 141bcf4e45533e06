"""A request in two: the part about one topic, and the part about others."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from kafkalite.common.names import ZERO_UUID
from kafkalite.protocol.codec.schema import Message

_TOPIC_RESOURCE = 2


def split(request: Message, topic: str, topic_id: UUID | None) -> tuple[Message, Message | None]:
    """The part about the topic, and the part about others; None if there are none."""

    def is_it(element: object) -> bool:
        return _is_about(element, topic, topic_id)

    chosen, _ = _part(request, is_it, keep=True)
    others, count = _part(request, is_it, keep=False)
    return chosen, others if count else None


def names_topic(request: Message, topic: str, topic_id: UUID | None) -> bool:
    return _part(request, lambda element: _is_about(element, topic, topic_id), keep=True)[1] > 0


def _is_about(element: object, topic: str, topic_id: UUID | None) -> bool:
    if not isinstance(element, Message):
        return element == topic
    if "resource_name" in element.__fields__:
        return (
            getattr(element, "resource_type", 0) == _TOPIC_RESOURCE and getattr(element, "resource_name", "") == topic
        )
    if topic_id is not None and getattr(element, "topic_id", ZERO_UUID) == topic_id:
        return True
    return topic in (getattr(element, "name", None), getattr(element, "topic", None))


def _part(struct: Message, is_it: Callable[[object], bool], *, keep: bool) -> tuple[Message, int]:
    """A copy with the elements that are it (`keep`) or are not, and how many those are."""
    part, count = copy_of(struct), 0
    for name, field in struct.__fields__.items():
        value = getattr(struct, name)
        if not field.is_array or not value:
            continue
        if "topic" in name or name == "resources":
            left = [each for each in value if is_it(each) is keep]
            count += len(left)
            setattr(part, name, left)
        elif isinstance(value[0], Message):
            inner = [_part(each, is_it, keep=keep) for each in value]
            if any(_has_topics(each) for each in value):
                setattr(part, name, [each for each, inside in inner if inside])
                count += sum(inside for _, inside in inner)
    return part, count


def _has_topics(struct: Message) -> bool:
    return any("topic" in name and field.is_array for name, field in struct.__fields__.items())


def copy_of(message: Message) -> Message:
    """A shallow copy."""
    return type(message)(**{name: getattr(message, name) for name in message.__fields__})
