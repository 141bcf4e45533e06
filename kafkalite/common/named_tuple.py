"""`NamedTuple`: the one of `typing`, declared at a fifth of its cost.

A broker declares 160 of them before it is ready. `typing` compiles each annotation, and makes all methods for each
class: 110 us a class, 18 of the 150 ms of a start, and 1 MB. Here the methods are those of the base, and the
constructor is compiled when the first object is made, as that of a `Message`. A type checker sees the one of `typing`.
Source: typing.NamedTuple, collections.namedtuple.
"""

from __future__ import annotations

from _collections import _tuplegetter as _Getter  # type: ignore[import-not-found]  # as collections.namedtuple
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Self


class _NamedTupleType(type):
    """The class of the classes: makes fields of the annotations in a body. A subclass of one is a plain class."""

    def __new__(mcs, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> _NamedTupleType:
        if bases[0] is _named_tuple:
            fields = tuple(body.get("__annotations__", ()))
            body["_field_defaults"] = {field: body[field] for field in fields if field in body}
            body["_fields"] = body["__match_args__"] = fields
            body["__slots__"] = ()
            for index, field in enumerate(fields):
                body[field] = _Getter(index, None)
        return super().__new__(mcs, name, bases, body)


_named_tuple: type | None = None


class _NamedTuple(tuple[Any, ...], metaclass=_NamedTupleType):
    """A tuple whose elements have names."""

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]]
    _field_defaults: ClassVar[dict[str, Any]]

    def __new__(cls, *values: Any, **named: Any) -> Self:
        declared = next(each for each in cls.__mro__ if "_fields" in each.__dict__)
        declared.__new__ = _compile_constructor(declared)  # type: ignore[method-assign]
        return cls.__new__(cls, *values, **named)

    @classmethod
    def _make(cls, values: Iterable[Any]) -> Self:
        made = tuple.__new__(cls, values)
        if len(made) != len(cls._fields):
            raise TypeError(f"{cls.__name__} has {len(cls._fields)} fields, not {len(made)}")
        return made

    def _replace(self, **named: Any) -> Self:
        replaced = self._make(map(named.pop, self._fields, self))
        if named:
            raise ValueError(f"{type(self).__name__} has no field {', '.join(named)}")
        return replaced

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
        return f"{type(self).__name__}({values})"

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)


def _compile_constructor(cls: Any) -> Callable[..., Any]:
    """`__new__` with a parameter for each field. Defaults that do not stand behind the others are a TypeError."""
    fields = ", ".join(cls._fields)
    source = f"lambda _cls, {fields}: _new(_cls, ({fields}{',' if fields else ''}))"
    made: Any = eval(compile(source, f"<{cls.__name__}>", "eval"), {"_new": tuple.__new__})
    made.__defaults__ = tuple(cls._field_defaults.values())
    made.__qualname__ = f"{cls.__qualname__}.__new__"
    return made  # type: ignore[no-any-return]


_named_tuple = _NamedTuple
if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    NamedTuple = _NamedTuple
