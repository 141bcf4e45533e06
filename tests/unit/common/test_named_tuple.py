"""`NamedTuple` of our own beside that of `typing`: the same values, methods and errors."""

from __future__ import annotations

import copy
import pickle
import typing
from typing import Any, Generic, TypeVar

import pytest

from kafkalite.common.named_tuple import NamedTuple

T = TypeVar("T")


class Place(NamedTuple):
    """A place."""

    name: str
    offset: int
    epoch: int = -1
    tags: tuple[str, ...] = ()

    @property
    def is_known(self) -> bool:
        return self.offset >= 0

    @classmethod
    def of(cls, name: str) -> Place:
        return cls(name, 0)


class TypedPlace(typing.NamedTuple):
    name: str
    offset: int
    epoch: int = -1
    tags: tuple[str, ...] = ()


class Nothing(NamedTuple):
    pass


class Box(NamedTuple, Generic[T]):
    value: T


class NamedPlace(Place):
    """A subclass of one, whose fields are those of its base."""

    def shout(self) -> str:
        return self.name.upper()


ARGUMENTS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    (("a", 1), {}),
    (("a",), {"offset": 2}),
    ((), {"offset": 2, "name": "a", "tags": ("x",)}),
    (("a", 1, 2, ("x", "y")), {}),
]


@pytest.mark.parametrize(("values", "named"), ARGUMENTS)
def test_it_is_made_and_read_as_that_of_typing(values: tuple[Any, ...], named: dict[str, Any]) -> None:
    ours, theirs = Place(*values, **named), TypedPlace(*values, **named)
    assert ours == theirs and hash(ours) == hash(theirs) and len(ours) == 4
    assert (ours.name, ours.offset, ours.epoch, ours.tags) == tuple(theirs)
    assert ours._asdict() == theirs._asdict()
    assert ours._replace(epoch=7) == theirs._replace(epoch=7)
    assert repr(ours) == repr(theirs).replace("TypedPlace", "Place")
    assert Place._make(ours) == ours and type(Place._make(ours)) is Place
    assert type(ours._replace(epoch=7)) is Place


def test_it_has_the_names_and_defaults_of_its_fields() -> None:
    for name in ("_fields", "_field_defaults", "__match_args__"):
        assert getattr(Place, name) == getattr(TypedPlace, name)
    match Place("a", 1):
        case Place(name, 1):
            assert name == "a"
        case _:
            raise AssertionError


@pytest.mark.parametrize(
    ("values", "named"),
    [((), {}), (("a",), {}), (("a", 1, 2, (), 4), {}), (("a", 1), {"name": "b"}), (("a", 1), {"x": 1})],
)
def test_wrong_arguments_are_refused(values: tuple[Any, ...], named: dict[str, Any]) -> None:
    for each in (Place, TypedPlace):
        with pytest.raises(TypeError):
            each(*values, **named)


def test_wrong_fields_and_lengths_are_refused() -> None:
    for each in (Place, TypedPlace):
        with pytest.raises(ValueError, match="x"):
            each("a", 1)._replace(x=1)
        with pytest.raises(TypeError):
            each._make(("a", 1))
        with pytest.raises(AttributeError):
            each("a", 1).offset = 2  # type: ignore[misc]
        with pytest.raises(AttributeError):
            each("a", 1).other = 2  # type: ignore[union-attr]


def test_it_has_methods_copies_and_subclasses() -> None:
    place = Place.of("a")
    assert place.is_known
    assert copy.deepcopy(place) == place
    restored = pickle.loads(pickle.dumps(place))
    assert restored == place and type(restored) is Place
    named = NamedPlace("a", 1)
    assert named.shout() == "A" and isinstance(named, Place) and type(named._replace(offset=2)) is NamedPlace
    assert Nothing() == () and repr(Nothing()) == "Nothing()"
    assert Box(3).value == 3 and Box[int](3) == Box(3)
