"""The source of a Python function under construction, and the fields of a message in one version.

`decoder_source` and `encoder_source` write their statements into a `Source`; `compile` turns it into a function whose
globals are the constants that the statements name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Any, cast

from kafkalite.protocol.codec.schema import LENGTH_CODE, Field, Kind, Message


class Source:
    """Lines of one function body, the constants they use, and variable names that do not clash."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self._indent = 1
        self._serial = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self._indent + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """`head` (an if, else, for, try), with the lines written within indented below it."""
        self.line(head)
        self._indent += 1
        lines_before = len(self.lines)
        yield
        if len(self.lines) == lines_before:
            self.line("pass")
        self._indent -= 1

    def fresh(self, prefix: str) -> str:
        self._serial += 1
        return f"{prefix}{self._serial}"

    def constant(self, name: str, value: Any) -> str:
        """A global name for `value`: `name`, or `name` and a number where another value has it."""
        candidate, number = name, 1
        while self.constants.setdefault(candidate, value) is not value:
            number += 1
            candidate = f"{name}_{number}"
        return candidate

    def literal(self, value: Any) -> str:
        """The expression of a default."""
        if value is None or isinstance(value, bool | int | str | bytes):
            return repr(value)
        return self.constant(f"default_{type(value).__name__}", value)

    def struct_method(self, method: str, codes: list[str]) -> str:
        """A global name for `Struct(codes).method`, e.g. `unpack_from_hii`."""
        name = f"{method}_{''.join(codes).replace('?', 'T')}"
        if name not in self.constants:
            self.constants[name] = getattr(Struct(">" + "".join(codes)), method)
        return name

    def text(self, signature: str) -> str:
        return f"def {signature}:\n" + ("\n".join(self.lines) or "    pass") + "\n"

    def compile(self, signature: str, title: str) -> Callable[..., Any]:
        namespace: dict[str, Any] = {}
        exec(compile(self.text(signature), f"<{title}>", "exec"), self.constants, namespace)
        return cast("Callable[..., Any]", namespace.popitem()[1])


def travelling(cls: type[Message], version: int) -> tuple[list[tuple[str, Field]], list[tuple[str, Field]]]:
    """The fields of `cls` that `version` has: those sent in order, and the tagged ones by ascending tag."""
    present = [(name, field) for name, field in cls.__fields__.items() if version in field.versions]
    tagged = sorted((item for item in present if item[1].tag is not None), key=lambda item: item[1].tag or 0)
    return [item for item in present if item[1].tag is None], tagged


def length_code(field: Field, flexible: bool) -> str:
    """The `struct` code of the length or count before `field`; compact ones start with one byte of a varint."""
    if flexible:
        return "B"
    if field.is_array or isinstance(field.kind, type):
        return "i"
    return LENGTH_CODE[field.kind.name]


def size_min(kind: Kind[Any] | type[Message], version: int, flexible: bool) -> int:
    """The fewest bytes that one value takes: counts are checked with it before an array is made."""
    if isinstance(kind, Kind):
        return kind.width or (1 if flexible else 2 if LENGTH_CODE[kind.name] == "h" else 4)
    size = 1 if flexible else 0
    for _, field in travelling(kind, version)[0]:
        if field.is_array:
            size += 1 if flexible else 4
        elif field.has_presence:
            size += 1
        else:
            size += size_min(field.kind, version, flexible)
    return max(size, 1)
