"""Writes the decoder of one (message, version): straight-line Python over a memoryview.

Names in the written code: `data` the frame, `size` its length, `p` the position, o1, o2, ... objects in the making.
Fields of fixed width that follow each other, and the length before the next field of variable width, are read with
one struct call into the slots; a run behind a nullable field is read in the same call as if the field were null,
which is right for most requests and costs nothing when it is not: those bytes are there in any valid message.
Every count and length is compared with the bytes left before it is used. Errors of struct, of an index and of UTF-8
become `Malformed`.
An element of an array takes a byte or two of a frame and a hundred times that as an object, so a message may have
`ELEMENTS_MAX` of them. A frame of no more bytes cannot have more; larger ones go to a decoder that counts.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NoReturn
from uuid import UUID

from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.protocol.codec.schema import Field, Kind, Message, malformed, read_uvarint, skip_tags
from kafkalite.protocol.codec.source_writer import Source, length_code, size_min, travelling

ELEMENTS_MAX = 1 << 17
"""Elements of all arrays of one message. The largest that a client has reason to send names every partition of a
broker once, and those are some ten thousand; 131,072 of the costliest (Fetch's) take 100 MB, answer included."""


class Fixed(NamedTuple):
    """Step: read one `struct` code into `target` (a slot or a variable)."""

    code: str
    target: str
    is_uuid: bool = False


class Sized(NamedTuple):
    """Step: a value or array behind a length that a `Fixed` has read into the variable `length`."""

    field: Field
    name: str
    target: str
    length: str


class Tags(NamedTuple):
    """Step: the tagged fields of `owner`; their count is in the variable `number`."""

    owner: str
    fields: list[tuple[str, Field]]
    number: str


class Nested(NamedTuple):
    """Step: a struct; null if `is_null` holds, an expression over the byte that a `Fixed` has read."""

    kind: type[Message]
    target: str
    is_null: str | None


Step = Fixed | Sized | Tags | Nested


def refuse(name: str, length: int, left: int) -> NoReturn:
    raise Malformed(f"{name}: length {length} where {left} bytes are left")


def refuse_elements(name: str) -> NoReturn:
    raise Malformed(f"{name}: more than {ELEMENTS_MAX} elements in one message")


def refuse_null(name: str) -> NoReturn:
    raise Malformed(f"{name}: null where null is not allowed")


class DecoderSource:
    """The body of `decode(data, p)` for one message in one version.

    With `counted`, which returns a decoder, large frames go to that one; without it, this one counts elements.
    """

    def __init__(
        self, message_type: type[Message], version: int, counted: Callable[[], Callable[..., Any]] | None = None
    ) -> None:
        self.message_type = message_type
        self.version = version
        self.counts = counted is None
        self.flexible = version in message_type.flexible
        self.source = Source()
        self.source.constants |= {
            "Malformed": Malformed,
            "malformed": malformed,
            "UUID": UUID,
            "new": object.__new__,
            "read_uvarint": read_uvarint,
            "counted": counted,
            "refuse": refuse,
            "refuse_elements": refuse_elements,
            "refuse_null": refuse_null,
            "skip_tags": skip_tags,
            "unpack_from": struct.unpack_from,
            "not_there": (struct.error, IndexError, UnicodeDecodeError),
        }

    def write(self) -> Source:
        source = self.source
        title = f"{self.message_type.__name__} v{self.version}"
        with source.block("try:"):
            source.line("size = len(data)")
            if self.counts:
                source.line(f"elements_left = {ELEMENTS_MAX}")
            else:
                with source.block(f"if size > {ELEMENTS_MAX}:"):
                    source.line("return counted()(data, p)")
            target = self._struct(self.message_type)
            source.line(f"return {target}, p")
        with source.block("except not_there as error:"):
            source.line(f'raise malformed("{title}", data, error) from None')
        return source

    def _struct(self, cls: type[Message]) -> str:
        """Writes the code that reads an object of `cls`; returns the variable that holds it."""
        target = self.source.fresh("o")
        self.source.line(f"{target} = new({self.source.constant(cls.__name__, cls)})")
        plain, tagged = travelling(cls, self.version)
        read_always = {name for name, _ in plain}
        for name, field in cls.__fields__.items():
            if name not in read_always:
                self.source.line(f"{target}.{name} = {self._default(field)}")
        steps: list[Step] = []
        for name, field in plain:
            steps += self._steps(field, f"{cls.__name__}.{name}", f"{target}.{name}")
        if self.flexible:
            count = self.source.fresh("t")
            steps += [Fixed("B", count), Tags(target, tagged, count)]
        self._perform(steps)
        return target

    def _default(self, field: Field) -> str:
        if not field.is_made_anew:
            return self.source.literal(field.default)
        if field.is_array:
            return "[]"
        assert isinstance(field.kind, type)
        return f"{self.source.constant(field.kind.__name__, field.kind)}()"

    def _steps(self, field: Field, name: str, target: str) -> list[Step]:
        if not isinstance(field.kind, Kind) and not field.is_array:
            if not field.has_presence:
                return [Nested(field.kind, target, None)]
            presence = self.source.fresh("n")
            return [Fixed("b", presence), Nested(field.kind, target, f"{presence} < {0 if field.tag is None else 1}")]
        if isinstance(field.kind, Kind) and not field.is_array and field.kind.code is not None:
            return [Fixed(field.kind.code, target, field.kind.name == "uuid")]
        length = self.source.fresh("n")
        return [Fixed(length_code(field, self.flexible), length), Sized(field, name, target, length)]

    def _perform(self, steps: list[Step]) -> None:
        position = 0

        def run() -> list[Fixed]:
            nonlocal position
            found = []
            while position < len(steps) and isinstance(step := steps[position], Fixed):
                found.append(step)
                position += 1
            return found

        while position < len(steps):
            before = run()
            step = steps[position] if position < len(steps) else None
            position += 1
            if isinstance(step, Sized) and before and not step.field.is_array and self._nullable(step.field):
                after = run()
                if after:
                    self._perform_optional(before, step, after)
                    continue
                self._read(before)
                self._sized(step)
            else:
                self._read(before)
                if isinstance(step, Sized):
                    self._sized(step)
                elif isinstance(step, Nested):
                    self._nested(step)
                elif isinstance(step, Tags):
                    self._tags(step)

    def _perform_optional(self, before: list[Fixed], step: Sized, after: list[Fixed]) -> None:
        """One struct call for both runs around a field that is mostly null."""
        source = self.source
        width_before = self._unpack([*before, *after])
        null = f"{step.length} == 0" if self.flexible else f"{step.length} < 0"
        with source.block(f"if {null}:"):
            source.line(f"{step.target} = None")
            source.line(f"p += {width_before}")
        with source.block("else:"):
            source.line(f"p += {struct.calcsize('>' + ''.join(fixed.code for fixed in before))}")
            # The byte behind the length has been read already, as part of the next run.
            self._sized(step, null_excluded=True, next_byte=after[0].target if after[0].code == "B" else "data[p]")
            source.line(f"p += {self._unpack(after)}")
        self._convert([*before, *after])

    def _unpack(self, run: list[Fixed]) -> int:
        """Writes one struct call at `p`; returns the number of bytes that it reads."""
        targets, codes = [fixed.target for fixed in run], [fixed.code for fixed in run]
        if codes == ["B"]:
            self.source.line(f"{targets[0]} = data[p]")
        else:
            unpack = self.source.struct_method("unpack_from", codes)
            self.source.line(f"{', '.join(targets)}{',' * (len(run) == 1)} = {unpack}(data, p)")
        return struct.calcsize(">" + "".join(codes))

    def _convert(self, run: list[Fixed]) -> None:
        for fixed in run:
            if fixed.is_uuid:
                self.source.line(f"{fixed.target} = UUID(bytes={fixed.target})")

    def _read(self, run: list[Fixed]) -> None:
        if run:
            self.source.line(f"p += {self._unpack(run)}")
            self._convert(run)

    def _nullable(self, field: Field) -> bool:
        return self.version in field.nullable

    def _sized(self, step: Sized, null_excluded: bool = False, next_byte: str = "data[p]") -> None:
        """Writes the code behind a length: null, or so many bytes, or so many elements."""
        source, length = self.source, step.length
        if self.flexible:
            self._compact_length(length, next_byte)
        if null_excluded:
            self._content(step)
        elif self._nullable(step.field):
            with source.block(f"if {length} < 0:"):
                source.line(f"{step.target} = None")
            with source.block("else:"):
                self._content(step)
        else:
            with source.block(f"if {length} < 0:"):
                source.line(f"refuse_null({step.name!r})")
            self._content(step)

    def _compact_length(self, length: str, next_byte: str) -> None:
        """Writes the rest of a varint whose first byte is read, less one. Two bytes are common enough to be inlined."""
        source = self.source
        with source.block(f"if {length} > 127:"):
            high = next_byte
            if next_byte == "data[p]":
                high = source.fresh("h")
                source.line(f"{high} = data[p]")
            with source.block(f"if {high} < 128:"):
                source.line(f"{length} += ({high} << 7) - 129")
                source.line("p += 1")
            with source.block("else:"):
                source.line(f"{length}, p = read_uvarint(data, p - 1)")
                source.line(f"{length} -= 1")
        with source.block("else:"):
            source.line(f"{length} -= 1")

    def _content(self, step: Sized) -> None:
        source, length, kind = self.source, step.length, step.field.kind
        if step.field.is_array:
            self._elements(step)
            return
        assert isinstance(kind, Kind)
        end = source.fresh("e")
        source.line(f"{end} = p + {length}")
        with source.block(f"if {end} > size:"):
            source.line(f"refuse({step.name!r}, {length}, size - p)")
        suffix = {"string": ".tobytes().decode()", "bytes": ".tobytes()", "records": ""}[kind.name]
        source.line(f"{step.target} = data[p:{end}]{suffix}")
        source.line(f"p = {end}")

    def _elements(self, step: Sized) -> None:
        source, count, kind = self.source, step.length, step.field.kind
        width = size_min(kind, self.version, self.flexible)
        needed = count if width == 1 else f"{count} * {width}"
        with source.block(f"if {needed} > size - p:"):
            source.line(f"refuse({step.name!r}, {count}, size - p)")
        if self.counts:
            source.line(f"elements_left -= {count}")
            with source.block("if elements_left < 0:"):
                source.line(f"refuse_elements({step.name!r})")
        if isinstance(kind, Kind) and kind.code is not None and kind.name != "uuid":
            source.line(f'{step.target} = list(unpack_from(f">{{{count}}}{kind.code}", data, p))')
            source.line(f"p += {count} * {kind.width}")
            return
        elements = source.fresh("x")
        source.line(f"{step.target} = {elements} = []")
        with source.block(f"for _ in range({count}):"):
            if isinstance(kind, Kind):
                element = source.fresh("v")
                self._perform(self._steps(Field(kind, step.field.versions, None), step.name, element))
            else:
                element = self._struct(kind)
            source.line(f"{elements}.append({element})")

    def _nested(self, step: Nested) -> None:
        source = self.source
        if step.is_null is None:
            source.line(f"{step.target} = {self._struct(step.kind)}")
            return
        with source.block(f"if {step.is_null}:"):
            source.line(f"{step.target} = None")
        with source.block("else:"):
            source.line(f"{step.target} = {self._struct(step.kind)}")

    def _tags(self, step: Tags) -> None:
        source, count = self.source, step.number
        with source.block(f"if {count}:"):
            with source.block(f"if {count} > 127:"):
                source.line(f"{count}, p = read_uvarint(data, p - 1)")
            with source.block(f"if {count} * 2 > size - p:"):
                source.line(f"refuse('tagged fields', {count}, size - p)")
            if not step.fields:
                source.line(f"p = skip_tags(data, p, {count})")
                return
            tag, end = source.fresh("g"), source.fresh("e")
            with source.block(f"for _ in range({count}):"):
                source.line(f"{tag}, p = read_uvarint(data, p)")
                source.line(f"{end}, p = read_uvarint(data, p)")
                source.line(f"{end} += p")
                with source.block(f"if {end} > size:"):
                    source.line(f"refuse('tagged field', {end} - p, size - p)")
                for name, field in step.fields:
                    with source.block(f"if {tag} == {field.tag}:"):
                        self._perform(self._steps(field, name, f"{step.owner}.{name}"))
                        with source.block(f"if p != {end}:"):
                            source.line(f"refuse({name!r}, {end} - p, 0)")
                source.line(f"p = {end}")
