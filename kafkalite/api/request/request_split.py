"""A request in two: what it says of some of the resources that it lists, and what of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID

from kafkalite.common.names import ZERO_UUID
from kafkalite.protocol.codec.schema import Message

_TOPIC_RESOURCE = 2
_TOPICS = ("resources",)  # besides all lists that have "topic" in their names
_ALL = ("resources", "groups_names", "transactional_ids")


def split(request: Message, topic: str, topic_id: UUID | None) -> tuple[Message, Message | None]:
    """The part about the topic, and the part about others; None if there are none."""

    def is_it(element: object) -> bool:
        return _is_about(element, topic, topic_id)

    chosen, _ = _part(request, is_it, _TOPICS, keep=True)
    others, count = _part(request, is_it, _TOPICS, keep=False)
    return chosen, others if count else None


def names_topic(request: Message, topic: str, topic_id: UUID | None) -> bool:
    return _part(request, lambda element: _is_about(element, topic, topic_id), _TOPICS, keep=True)[1] > 0


def elements(request: Message) -> list[str]:
    """The names of the resources that a request lists, each once."""
    return list(dict.fromkeys(_names(request)))


def without(request: Message, is_left_out: Callable[[str], bool]) -> tuple[Message, int]:
    """The request without the resources of some names, and how many are left."""
    return _part(request, lambda element: is_left_out(_name_of(element)), _ALL, keep=False)


def _names(struct: Message) -> Iterator[str]:
    for name, field in struct.__fields__.items():
        value = getattr(struct, name)
        if field.is_array and value:
            if _lists_resources(name, _ALL):
                yield from map(_name_of, value)
            elif isinstance(value[0], Message):
                for each in value:
                    yield from _names(each)


def _name_of(element: object) -> str:
    if isinstance(element, Message):
        return next((getattr(element, field) or "" for field in ("name", "topic") if field in element.__fields__), "")
    return str(element)


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


def _lists_resources(field: str, others: tuple[str, ...]) -> bool:
    return "topic" in field or field in others


def _part(
    struct: Message, is_it: Callable[[object], bool], others: tuple[str, ...], *, keep: bool
) -> tuple[Message, int]:
    """A copy with the elements that are it (`keep`) or are not, and how many those are."""
    part, count = copy_of(struct), 0
    for name, field in struct.__fields__.items():
        value = getattr(struct, name)
        if not field.is_array or not value:
            continue
        if _lists_resources(name, others):
            left = [each for each in value if is_it(each) is keep]
            count += len(left)
            setattr(part, name, left)
        elif isinstance(value[0], Message):
            inner = [_part(each, is_it, others, keep=keep) for each in value]
            if any(_has_topics(each) for each in value):
                setattr(part, name, [each for each, inside in inner if inside])
                count += sum(inside for _, inside in inner)
    return part, count


def _has_topics(struct: Message) -> bool:
    return any("topic" in name and field.is_array for name, field in struct.__fields__.items())


def copy_of(message: Message) -> Message:
    """A shallow copy."""
    return type(message)(**{name: getattr(message, name) for name in message.__fields__})
