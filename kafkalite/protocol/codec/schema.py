"""Declarations of messages: one line per field, with version ranges as in the KIP.

    class HeartbeatResponse(Message, flexible="4+"):
        throttle_time_ms: int = int32("1+")
        error_code: int = int16("0+")

Left: the field in Python. Right: its type on the wire. The metaclass takes the declarations out of the class body,
gives the class slots, and puts them in `__fields__`; `codec` compiles them for a version when that version is first
used. A type checker sees fields with defaults, so it knows the constructors: keywords, all optional, with the schema's
defaults. A field outside its versions is left out when encoding and has its default after decoding.

None travels as null; in a version that has no null there it travels as the empty value. A tagged field travels when
it differs from its default; a tagged struct has the default None. A byte precedes a nullable struct: -1 is null, or 0
in a tagged field, which always travels.
A `Kind` is a primitive type for the compiler: its `struct` code if it has a fixed width, else a length comes before the
value. Functions are the rare paths that compiled code calls: varints of more than one byte, and unknown tagged fields.
Source: org.apache.kafka.message.MessageGenerator; the JSON files of clients/src/main/resources/common/message;
org.apache.kafka.common.protocol.types.Type, ByteUtils, KIP-482 (compact types and tagged fields).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, Generic, TypeVar, cast, dataclass_transform, overload
from uuid import UUID

from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import ZERO_UUID

T = TypeVar("T")


class Kind(NamedTuple, Generic[T]):
    """One wire type. `code` is its `struct` character; None means that a length goes before the value."""

    name: str
    code: str | None
    width: int


BOOL: Kind[bool] = Kind("bool", "?", 1)  # any byte but zero is true, as `struct` reads it too
INT8: Kind[int] = Kind("int8", "b", 1)
INT16: Kind[int] = Kind("int16", "h", 2)
UINT16: Kind[int] = Kind("uint16", "H", 2)
INT32: Kind[int] = Kind("int32", "i", 4)
INT64: Kind[int] = Kind("int64", "q", 8)
FLOAT64: Kind[float] = Kind("float64", "d", 8)
UUID16: Kind[UUID] = Kind("uuid", "16s", 16)
STRING: Kind[str] = Kind("string", None, 0)
BYTES: Kind[bytes] = Kind("bytes", None, 0)
RECORDS: Kind[Any] = Kind("records", None, 0)

LENGTH_CODE = {"string": "h", "bytes": "i", "records": "i"}
"""The `struct` code of the length before a value, in versions without compact types. Arrays count with "i"."""

ONE_BYTE = tuple(bytes((value,)) for value in range(128))
"""The varints of one byte: a look-up costs a quarter of a struct call."""


def malformed(name: str, data: memoryview, error: Exception) -> Malformed:
    """The fault of bytes that end before a field, or of a text that is not UTF-8."""
    if isinstance(error, UnicodeDecodeError):
        return Malformed(f"{name}: a text that is not UTF-8")
    return Malformed(f"{name}: its {len(data)} bytes end inside a field")


def read_uvarint(data: memoryview, position: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits and the position behind it. IndexError where the bytes end."""
    value = data[position]
    if value < 0x80:
        return value, position + 1
    value += (data[position + 1] << 7) - 0x80
    if value < 0x4000:
        return value, position + 2
    value += (data[position + 2] << 14) - 0x4000
    if value < 0x200000:
        return value, position + 3
    value += (data[position + 3] << 21) - 0x200000
    if value < 0x10000000:
        return value, position + 4
    value += (data[position + 4] << 28) - 0x10000000
    if value > 0xFFFFFFFF:
        raise Malformed("varint of more than 32 bits")
    return value, position + 5


def write_uvarint(value: int) -> bytes:
    """`value` as an unsigned varint."""
    if value < 0x80:
        return ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x200000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_tags(data: memoryview, position: int, count: int) -> int:
    """The position behind `count` unknown tagged fields. Raises IndexError or Malformed if they do not fit."""
    size = len(data)
    for _ in range(count):
        _, position = read_uvarint(data, position)
        length, position = read_uvarint(data, position)
        if length > size - position:
            raise Malformed(f"tagged field of {length} bytes where {size - position} are left")
        position += length
    return position


M = TypeVar("M", bound="Message")

VERSION_MAX = 32767
NO_VERSIONS = range(0)
_UNSET = object()


@cache
def parse_versions(text: str) -> range:
    """`"3+"`, `"4-10"`, `"0"` or `"none"` as a range of versions."""
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return range(int(text[:-1]), VERSION_MAX + 1)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


class Field(NamedTuple):
    """A declaration, without the name: the type, an array of it or not, the versions, and the default."""

    kind: Kind[Any] | type[Message]
    versions: range
    default: Any
    nullable: range = NO_VERSIONS
    tag: int | None = None  # the field is tagged in all of its versions
    is_array: bool = False
    null_sent_as_empty: bool = False  # null is decoded, but never sent
    mostly_empty: bool = False  # a hint for the encoder
    has_presence: bool = False  # a struct that may be null: one signed byte comes first, and it is always sent
    may_be_encoded: bool = False  # elements may be the bytes that the encoder would write

    @property
    def is_made_anew(self) -> bool:
        """Whether the default is an object of its own for each message: a list, or a struct that always travels."""
        if self.is_array:
            return self.default is not None
        return isinstance(self.kind, type) and self.tag is None and not self.has_presence


def _declare(
    kind: Kind[Any] | type[Message],
    versions: str,
    default: T,
    nullable: str | None = None,
    tag: int | None = None,
    is_array: bool = False,
    null_sent_as_empty: bool = False,
    mostly_empty: bool = False,
    has_presence: bool = False,
    may_be_encoded: bool = False,
) -> T:
    # A class body holds a Field, and readers of an object see the field's value: the type is the latter's.
    hints = (null_sent_as_empty, mostly_empty, has_presence, may_be_encoded)
    field = Field(kind, parse_versions(versions), default, parse_versions(nullable or "none"), tag, is_array, *hints)
    return cast(T, field)


def boolean(versions: str, *, default: bool = False, tag: int | None = None) -> bool:
    return _declare(BOOL, versions, default, tag=tag)


def int8(versions: str, *, default: int = 0, tag: int | None = None) -> int:
    return _declare(INT8, versions, default, tag=tag)


def int16(versions: str, *, default: int = 0, tag: int | None = None) -> int:
    return _declare(INT16, versions, default, tag=tag)


def uint16(versions: str, *, default: int = 0, tag: int | None = None) -> int:
    return _declare(UINT16, versions, default, tag=tag)


def int32(versions: str, *, default: int = 0, tag: int | None = None) -> int:
    return _declare(INT32, versions, default, tag=tag)


def int64(versions: str, *, default: int = 0, tag: int | None = None) -> int:
    return _declare(INT64, versions, default, tag=tag)


def float64(versions: str, *, default: float = 0.0, tag: int | None = None) -> float:
    return _declare(FLOAT64, versions, default, tag=tag)


def uuid(versions: str, *, default: UUID = ZERO_UUID, tag: int | None = None) -> UUID:
    return _declare(UUID16, versions, default, tag=tag)


@overload
def string(versions: str, *, default: str = "", tag: int | None = None) -> str: ...
@overload
def string(versions: str, *, nullable: str, default: str | None = None, tag: int | None = None) -> str | None: ...
def string(
    versions: str, *, nullable: str | None = None, default: str | None = None, tag: int | None = None
) -> str | None:
    """A string; the default is null where some version can say null, else the empty string."""
    return _declare(STRING, versions, "" if default is None and nullable is None else default, nullable, tag)


@overload
def blob(versions: str, *, tag: int | None = None) -> bytes: ...
@overload
def blob(versions: str, *, nullable: str, tag: int | None = None) -> bytes | None: ...
def blob(versions: str, *, nullable: str | None = None, tag: int | None = None) -> bytes | None:
    """Kafka's `bytes`: copied out of the frame."""
    return _declare(BYTES, versions, None if nullable else b"", nullable, tag)


def records(versions: str, *, nullable: str, null_sent_as_empty: bool = False) -> Any:
    """Record batches. Decoded to a view of the frame; encoded from a `Part`, a list of them, or None."""
    return _declare(RECORDS, versions, None, nullable, null_sent_as_empty=null_sent_as_empty)


@overload
def array(of: type[M], versions: str, *, tag: int | None = None, mostly_empty: bool = False) -> list[M]: ...
@overload
def array(of: type[M], versions: str, *, may_be_encoded: bool) -> list[M]: ...
@overload
def array(
    of: type[M], versions: str, *, nullable: str, mostly_empty: bool = False, null_by_default: bool = False
) -> list[M] | None: ...
@overload
def array(of: Kind[T], versions: str, *, tag: int | None = None) -> list[T]: ...
@overload
def array(of: Kind[T], versions: str, *, nullable: str, null_by_default: bool = False) -> list[T] | None: ...
def array(
    of: Any,
    versions: str,
    *,
    nullable: str | None = None,
    tag: int | None = None,
    mostly_empty: bool = False,
    null_by_default: bool = False,
    may_be_encoded: bool = False,
) -> Any:
    """An array of structs or of plain values. The default is a new empty list, also where null is possible, unless the
    schema says null. With `may_be_encoded` an element that is sent may be its bytes instead (`encoded`)."""
    default: list[Any] | None = None if null_by_default else []
    hints = {"mostly_empty": mostly_empty, "may_be_encoded": may_be_encoded}
    return _declare(of, versions, default, nullable, tag, is_array=True, **hints)


@overload
def struct(of: type[M], versions: str) -> M: ...
@overload
def struct(of: type[M], versions: str, *, tag: int) -> M | None: ...
def struct(of: type[M], versions: str, *, tag: int | None = None) -> M | None:
    """A struct. In a tagged field, None when it does not travel; else the default is a new one."""
    return _declare(of, versions, None, None if tag is None else versions, tag)


def nullable_struct(of: type[M], versions: str, *, tag: int | None = None) -> M | None:
    """A struct or null, which a byte before it distinguishes. The default is None.

    In a tagged field null is 0 instead of -1, and is sent: to Kafka a missing field is an empty struct, not null.
    """
    return _declare(of, versions, None, versions, tag, has_presence=True)


@dataclass_transform(kw_only_default=True)
class MessageType(type):
    """The class of message classes: turns a body of declarations into slots."""

    __fields__: dict[str, Field]
    flexible: range

    def __new__(
        mcs, name: str, bases: tuple[type, ...], body: dict[str, Any], *, flexible: str = "none"
    ) -> MessageType:
        fields = {key: value for key, value in body.items() if isinstance(value, Field)}
        for key in fields:
            del body[key]
        body["__slots__"] = tuple(fields)
        body["__fields__"] = fields
        body["flexible"] = parse_versions(flexible)
        return super().__new__(mcs, name, bases, body)

    def __init__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any], *, flexible: str = "none") -> None:
        super().__init__(name, bases, body)


class Message(metaclass=MessageType):
    """A message or a struct in one. Two of the same class are equal when all fields are. Not hashable: fields change.

    `flexible`, given in the class statement, are the versions with compact types and tagged fields (KIP-482); the
    structs of a message follow the message.
    """

    __fields__: ClassVar[dict[str, Field]]
    flexible: ClassVar[range]

    def __init__(self, **values: Any) -> None:
        # The constructor proper is compiled when the first object is made: a broker uses half of its classes.
        cls = type(self)
        cls.__init__ = _compile_constructor(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__fields__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={_shown(getattr(self, name))}" for name in self.__fields__)
        return f"{type(self).__name__}({values})"


def _shown(value: object) -> str:
    return f"<{len(value)} bytes>" if isinstance(value, memoryview) else repr(value)


def _compile_constructor(cls: type[Message]) -> Callable[..., None]:
    """`__init__` with one keyword per field: a generic one costs several times as much."""
    parameters, lines, constants = [], [], {}
    for index, (name, field) in enumerate(cls.__fields__.items()):
        if field.is_made_anew:
            # A list is made anew for each object; the marker distinguishes "not given" from None.
            constants["unset"] = _UNSET
            constants[f"make_{index}"] = field.kind
            parameters.append(f"{name}=unset")
            made = "[]" if field.is_array else f"make_{index}()"
            lines.append(f" self.{name} = {made} if {name} is unset else {name}")
        else:
            constants[f"default_{index}"] = field.default
            parameters.append(f"{name}=default_{index}")
            lines.append(f" self.{name} = {name}")
    keywords = "*, " + ", ".join(parameters) if parameters else ""
    source = f"def __init__(self, {keywords}):\n" + ("\n".join(lines) or " pass")
    namespace: dict[str, Any] = {}
    exec(compile(source, f"<{cls.__name__}>", "exec"), constants, namespace)
    return cast("Callable[..., None]", namespace["__init__"])
