"""Writes the encoder of one (message, version): straight-line Python that appends pieces to a list.

Names in the written code: `out` the list, o1, o2, ... the objects. Fields of fixed width that follow each other, and
the length before the next field of variable width, become one struct call. A struct in an array whose nullable and
mostly empty fields are all unset takes a path of its own where these are constants in that same call.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from struct import Struct
from struct import pack as struct_pack
from typing import Any

from kafkalite.common.region import FileRegion
from kafkalite.protocol.codec.schema import BYTES, ONE_BYTE, STRING, Field, Kind, Message, write_uvarint
from kafkalite.protocol.codec.source_writer import Source, length_code, travelling

SHORT = 9  # arrays of numbers with fewer elements than this are written by a packer of their own length


class EncoderSource:
    """The body of `encode(o1, out)` for one message in one version."""

    def __init__(self, message_type: type[Message], version: int) -> None:
        self.message_type = message_type
        self.version = version
        self.flexible = version in message_type.flexible
        self.source = Source()
        self.source.constants |= {"FileRegion": FileRegion, "one_byte": ONE_BYTE, "write_uvarint": write_uvarint}
        self._out = "out"
        self._run: list[tuple[str, str]] = []  # (struct code, expression) not yet written

    def write(self) -> Source:
        self._fields(self.message_type, self.source.fresh("o"), usual=False)
        self._flush()
        return self.source

    # One struct

    def _struct(self, cls: type[Message], owner: str) -> None:
        """Writes an element of an array, with the usual path if it has one. Ends with nothing pending."""
        conditions = self._usual_conditions(cls, owner)
        if not conditions:
            self._fields(cls, owner, usual=False)
            self._flush()
            return
        with self.source.block(f"if {' and '.join(conditions)}:"):
            self._fields(cls, owner, usual=True)
            self._flush()
        with self.source.block("else:"):
            self._fields(cls, owner, usual=False)
            self._flush()

    def _usual_conditions(self, cls: type[Message], owner: str) -> list[str]:
        plain, tagged = travelling(cls, self.version)
        conditions = []
        for name, field in plain:
            if self._usually_unset(field):
                conditions.append(f"not {owner}.{name}" if field.is_array else f"{owner}.{name} is None")
        return conditions + [self._tag_condition(field, f"{owner}.{name}", is_set=False) for name, field in tagged]

    def _usually_unset(self, field: Field) -> bool:
        if field.is_array:
            return field.mostly_empty
        return field.kind in (STRING, BYTES) and self.version in field.nullable and field.default is None

    def _fields(self, cls: type[Message], owner: str, usual: bool) -> None:
        plain, tagged = travelling(cls, self.version)
        for name, field in plain:
            if usual and self._usually_unset(field):
                self._unset(field, f"{owner}.{name}")
            else:
                self._field(field, f"{owner}.{name}")
        if self.flexible:
            self._tags([] if usual else tagged, owner)

    def _unset(self, field: Field, value: str) -> None:
        code = length_code(field, self.flexible)
        null, empty = (0, 1) if self.flexible else (-1, 0)
        if field.is_array and self.version in field.nullable:
            self._run.append((code, f"{null} if {value} is None else {empty}"))
        else:
            self._run.append((code, str(empty if field.is_array else null)))

    # One field

    def _field(self, field: Field, value: str) -> None:
        kind = field.kind
        if field.is_array:
            self._array(field, value)
        elif not isinstance(kind, Kind):
            self._nested(field, kind, value)
        elif kind.code is None:
            self._sized(field, kind, value)
        else:
            self._run.append((kind.code, f"{value}.bytes" if kind.name == "uuid" else value))

    def _nested(self, field: Field, kind: type[Message], value: str) -> None:
        """A struct, behind its byte if it may be null."""
        if not field.has_presence:
            self._fields(kind, value, usual=False)
            return
        pending = self._run
        with self.source.block(f"if {value} is None:"):
            self._run = [*pending, ("b", "-1" if field.tag is None else "0")]
            self._flush()
        with self.source.block("else:"):
            self._run = [*pending, ("b", "1")]
            self._fields(kind, value, usual=False)
            self._flush()

    def _sized(self, field: Field, kind: Kind[Any], value: str) -> None:
        """A length and so many bytes."""
        source, is_records = self.source, kind.name == "records"
        content, length = source.fresh("s"), source.fresh("n")
        source.line(f"{content} = {value}")
        if field.nullable:
            # Also where only another version has null: then null is sent as empty.
            with source.block(f"if {content} is None:"):
                source.line(f"{content} = b''")
                source.line(f"{length} = {self._null_length(field)}")
            with source.block("else:"):
                self._measure(kind, content, length)
        else:
            self._measure(kind, content, length)
        self._flush_with_length(length_code(field, self.flexible), length, bytes_max=3 if is_records else 1)
        if is_records:
            with source.block(f"if type({content}) is list:"):
                source.line(f"{self._out} += {content}")
            with source.block("else:"):
                source.line(f"{self._out}.append({content})")
        else:
            source.line(f"{self._out}.append({content})")

    def _measure(self, kind: Kind[Any], content: str, length: str) -> None:
        size = f"len({content})"
        if kind.name == "string":
            self.source.line(f"{content} = {content}.encode()")
        elif kind.name == "records":
            in_list = f"sum(map(len, {content})) if type({content}) is list else len({content})"
            self.source.line(f"{length} = {content}.size if type({content}) is FileRegion else {in_list}")
            size = length
        self.source.line(f"{length} = {self._length(size)}")

    def _null_length(self, field: Field) -> int:
        """The length that is sent for None: null, or empty in versions (or directions) without null."""
        says_null = self.version in field.nullable and not field.null_sent_as_empty
        return (0 if says_null else 1) if self.flexible else (-1 if says_null else 0)

    def _length(self, size: str) -> str:
        return f"{size} + 1" if self.flexible else size

    def _array(self, field: Field, value: str) -> None:
        source, kind = self.source, field.kind
        elements, count = source.fresh("x"), source.fresh("n")
        source.line(f"{elements} = {value}")
        if field.nullable:
            with source.block(f"if {elements} is None:"):
                source.line(f"{elements} = ()")
                source.line(f"{count} = {self._null_length(field)}")
            with source.block("else:"):
                source.line(f"{count} = {self._length(f'len({elements})')}")
        elif self.flexible:
            source.line(f"{count} = {self._length(f'len({elements})')}")
        else:
            count = f"len({elements})"
        if isinstance(kind, Kind) and kind.code is not None and kind.name != "uuid":
            self._numbers(field, kind.code, elements, count)
            return
        self._flush_with_length(length_code(field, self.flexible), count)
        if isinstance(kind, Kind):
            self._values(kind, elements)
        elif codes := self._fixed_codes(kind):
            pack = source.struct_method("pack", [code for code, _ in codes])
            arguments = ", ".join(f"o.{name}" if name else "0" for _, name in codes)
            source.line(f"{self._out} += [{pack}({arguments}) for o in {elements}]")
        else:
            element = source.fresh("o")
            with source.block(f"for {element} in {elements}:"):
                if field.may_be_encoded:
                    with source.block(f"if type({element}) is bytes:"):
                        source.line(f"{self._out}.append({element})")
                        source.line("continue")
                self._struct(kind, element)

    def _numbers(self, field: Field, code: str, elements: str, count: str) -> None:
        """A count and so many numbers; short arrays (replicas, say) in one call of a struct made before."""
        source, count_code = self.source, length_code(field, self.flexible)
        self._flush()
        with source.block(f"if len({elements}) < {SHORT}:"):
            packer = source.constant(f"pack_{count_code}_and_{code}", _short_packers(count_code, code))
            source.line(f"{self._out}.append({packer}[len({elements})]({count}, *{elements}))")
        with source.block("else:"):
            self._flush_with_length(count_code, count)
            source.constants["pack"] = struct_pack
            source.line(f'{self._out}.append(pack(f">{{len({elements})}}{code}", *{elements}))')

    def _values(self, kind: Kind[Any], elements: str) -> None:
        """An array of ids or strings."""
        source = self.source
        if kind.name == "uuid":
            source.line(f"{self._out} += [u.bytes for u in {elements}]")
        else:
            element = source.fresh("v")
            with source.block(f"for {element} in {elements}:"):
                self._sized(Field(kind, self.message_type.flexible, None), kind, element)

    def _fixed_codes(self, cls: type[Message]) -> list[tuple[str, str]]:
        """(code, field name) of a struct of fixed width, an empty name for its number of tags; empty for others."""
        plain, tagged = travelling(cls, self.version)
        codes = []
        for name, field in plain:
            if field.is_array or not isinstance(field.kind, Kind) or field.kind.code in (None, "16s"):
                return []
            codes.append((str(field.kind.code), name))
        if tagged:
            return []
        return [*codes, ("B", "")] if self.flexible else codes

    # Tagged fields

    def _tag_condition(self, field: Field, value: str, is_set: bool) -> str:
        """Whether a tagged field is sent, or is not; an expression whose value is a bool or a number. It is not if it
        equals its default."""
        if field.has_presence:
            return str(int(is_set))
        if field.is_array:
            return f"bool({value})" if is_set else f"not {value}"
        if field.default is None:
            return f"({value} is {'not ' * is_set}None)"
        return f"({value} {'!=' if is_set else '=='} {self.source.literal(field.default)})"

    def _tags(self, tagged: list[tuple[str, Field]], owner: str) -> None:
        if not tagged:
            self._run.append(("B", "0"))
            return
        conditions = [self._tag_condition(field, f"{owner}.{name}", is_set=True) for name, field in tagged]
        self._run.append(("B", " + ".join(conditions)))
        self._flush()
        source, out = self.source, self._out
        for (name, field), condition in zip(tagged, conditions, strict=True):
            with source.block(f"if {condition}:"):
                # The size goes first, so the value is written to a list of its own.
                self._out = source.fresh("w")
                source.line(f"{self._out} = []")
                self._field(field, f"{owner}.{name}")
                self._flush()
                source.line(f"{out}.append({write_uvarint(field.tag or 0)!r})")
                source.line(f"{out}.append(write_uvarint(sum(map(len, {self._out}))))")
                source.line(f"{out} += {self._out}")
                self._out = out

    # The pending run

    def _flush_with_length(self, code: str, length: str, bytes_max: int = 1) -> None:
        """Writes the run and a length behind it; a compact length of up to `bytes_max` bytes is part of the run."""
        if not self.flexible:
            self._run.append((code, length))
            self._flush()
            return
        pending = self._run
        heads = [f"{'if' if size == 1 else 'elif'} {length} < {1 << 7 * size}:" for size in range(1, bytes_max + 1)]
        for size, head in enumerate(heads, 1):
            with self.source.block(head):
                self._run = [*pending, *(("B", part) for part in _uvarint_bytes(length, size))]
                self._flush()
        with self.source.block("else:"):
            self._run = pending
            self._flush()
            self.source.line(f"{self._out}.append(write_uvarint({length}))")

    def _flush(self) -> None:
        if not self._run:
            return
        codes, expressions = [code for code, _ in self._run], [expression for _, expression in self._run]
        pack = self.source.struct_method("pack", codes)
        if all(re.fullmatch(r"-?\d+", expression) for expression in expressions):
            constant = self.source.constants[pack](*map(int, expressions))
            self.source.line(f"{self._out}.append({constant!r})")
        elif codes == ["B"]:
            self.source.line(f"{self._out}.append(one_byte[{expressions[0]}])")
        else:
            self.source.line(f"{self._out}.append({pack}({', '.join(expressions)}))")
        self._run = []


@cache
def _short_packers(count_code: str, code: str) -> tuple[Callable[..., bytes], ...]:
    """By length: the packer of a count and so many numbers."""
    return tuple(Struct(f">{count_code}{length}{code}").pack for length in range(SHORT))


def _uvarint_bytes(value: str, size: int) -> list[str]:
    """Expressions for the bytes of a varint of `size` bytes."""
    if size == 1:
        return [value]
    middle = [f"{value} >> {7 * index} & 127 | 128" for index in range(1, size - 1)]
    return [f"{value} & 127 | 128", *middle, f"{value} >> {7 * (size - 1)}"]
