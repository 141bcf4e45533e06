"""Protobuf by its own library. A message that its JSON form refuses is rendered field by field, so that a time out of
range or an Any of an unknown type costs one field. One that is refused because a string is no UTF-8 is read once more
with bytes in place of strings, which is the same on the wire.

The files of a registry are a JSON list of [name, base64 of a FileDescriptorProto], the main file last; indexes in front
of a record say which of its messages it is. A registry that has them as text only needs protoc, of grpcio-tools.

Source: the JSON mapping of proto3 (ProtoJSON), google.protobuf.json_format.
"""

from __future__ import annotations

import base64
import importlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kafkalite.common.text import read_json
from kafkalite.console.decoders.wire import faulty, indexes_of, to_text

_OWN_FORM = "google.protobuf."  # types with a special form in JSON
_WELL_KNOWN = frozenset(
    f"google/protobuf/{name}.proto"
    for name in (
        "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type",
        "wrappers",
    )
)  # fmt: skip
_FILES_MAX = 10_000


def compile_schema(text: str, message: str) -> Callable[[bytes], str]:
    """A function from data to JSON, which raises Exception. Raises Exception for an invalid set, or one without the
    message."""
    message_factory: Any = importlib.import_module("google.protobuf.message_factory")
    if text.startswith("["):
        files, main = _files_of_registry(text)
    else:
        files, main = _files_of_set(base64.b64decode(text, validate=True)), ""
    pools = [_pool_of(dict(files), with_texts=with_texts) for with_texts in (True, False)]
    if message:
        for pool, _ in pools:
            pool.FindMessageTypeByName(message)
    kinds: dict[str, list[tuple[Any, _Renderer]]] = {}

    def readers_of(name: str) -> list[tuple[Any, _Renderer]]:
        if name not in kinds:
            kinds[name] = [
                (message_factory.GetMessageClass(pool.FindMessageTypeByName(name)), _Renderer(pool, texts))
                for pool, texts in pools
            ]
        return kinds[name]

    def decode(data: bytes) -> str:
        why = ""
        indexes, rest = indexes_of(data)
        readers = readers_of(message or _message_at(files[main], indexes))
        for each in dict.fromkeys((rest, data)):
            for kind, telling in readers:
                try:
                    return to_text(telling.whole(kind.FromString(each)))
                except MemoryError:
                    raise
                except Exception as fault:
                    why = why or str(fault) or type(fault).__name__
        raise ValueError(why)

    return decode


def _files_of_set(data: bytes) -> dict[str, Any]:
    """The files of a FileDescriptorSet by their names."""
    descriptor_pb2: Any = importlib.import_module("google.protobuf.descriptor_pb2")
    return {file.name: file for file in descriptor_pb2.FileDescriptorSet.FromString(data).file}


def _files_of_registry(text: str) -> tuple[dict[str, Any], str]:
    """The files of a registry by the names under which others import them, and that of the main one."""
    descriptor_pb2: Any = importlib.import_module("google.protobuf.descriptor_pb2")
    given = read_json(text)
    if any(_is_source(data) for _, data in given):
        return _files_of_set(_compiled(given)), given[-1][0]
    files = {}
    for name, data in given:
        files[name] = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(data, validate=True))
        files[name].name = name
    return files, given[-1][0]


def _is_source(data: str) -> bool:
    return "{" in data or ";" in data


def _compiled(given: list[tuple[str, str]]) -> bytes:
    """The FileDescriptorSet of files in the language of Protobuf, as some registries serve them. Raises ValueError."""
    try:
        tools: Any = importlib.import_module("grpc_tools")
        protoc: Any = importlib.import_module("grpc_tools.protoc")
    except ModuleNotFoundError:
        why = "the registry has this Protobuf schema as text, which needs the package grpcio-tools"
        raise ValueError(why) from None
    with TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for name, data in given:
            path = (root / name).resolve()
            if not path.is_relative_to(root) or not _is_source(data):
                raise ValueError(f"{name[:100]!r} is no file that can be imported")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(data)
        known = Path(tools.__file__).parent / "_proto"
        options = [f"-I{root}", f"-I{known}", "--include_imports", f"--descriptor_set_out={root / 'set'}"]
        if protoc.main(["protoc", *options, given[-1][0]]):
            raise ValueError("it is no valid file of Protobuf")
        return (root / "set").read_bytes()


def _message_at(file: Any, indexes: list[int]) -> str:
    """The full name of a message by its place in a file."""
    names, messages = [file.package] if file.package else [], file.message_type
    for index in indexes:
        if not 0 <= index < len(messages):
            raise ValueError(f"its schema has no message at {indexes}")
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(names)


def _pool_of(files: dict[str, Any], *, with_texts: bool) -> tuple[Any, frozenset[str]]:
    """The types of files, in any order, and the names of the string fields that became bytes (without `with_texts`).
    Google's files that are missing come from the library."""
    descriptor_pb2: Any = importlib.import_module("google.protobuf.descriptor_pb2")
    descriptor_pool: Any = importlib.import_module("google.protobuf.descriptor_pool")
    files = {
        name: descriptor_pb2.FileDescriptorProto.FromString(one.SerializeToString()) for name, one in files.items()
    }
    if len(files) > _FILES_MAX:
        raise ValueError(f"more than {_FILES_MAX} files")
    pool = descriptor_pool.DescriptorPool()
    texts: set[str] = set()
    for name in _in_order(files):
        if not with_texts and name not in _WELL_KNOWN:
            for each in files[name].message_type:
                texts.update(_without_texts(each, files[name].package))
        pool.Add(files[name])
    return pool, frozenset(texts)


def _without_texts(message: Any, scope: str) -> Iterator[str]:
    """Turns the string fields of a message into bytes; yields their names. Keys of maps cannot be changed."""
    name = f"{scope}.{message.name}".lstrip(".")
    for field in message.field:
        if field.type == field.TYPE_STRING and not (message.options.map_entry and field.name == "key"):
            field.type = field.TYPE_BYTES
            field.ClearField("default_value")
            yield f"{name}.{field.name}"
    for each in message.nested_type:
        yield from _without_texts(each, name)


def _in_order(files: dict[str, Any]) -> Iterator[str]:
    """The names of the files, each after its imports; with missing ones of the library. Without recursion: a hostile
    set has a long chain of imports. Raises ValueError."""
    done: set[str] = set()
    entered: set[str] = set()
    waiting = list(files)[::-1]
    while waiting:
        name = waiting[-1]
        if name in done:
            waiting.pop()
            continue
        if name not in files:
            files[name] = _well_known(name)
        missing = [each for each in files[name].dependency if each not in done]
        if not missing:
            done.add(waiting.pop())
            yield name
        elif name in entered:
            raise ValueError(f"{name[:100]!r} imports itself")
        else:
            entered.add(name)
            waiting += missing


def _well_known(name: str) -> Any:
    if name not in _WELL_KNOWN:
        raise ValueError(f"it lacks {name[:100]!r}; protoc --include_imports adds it")
    descriptor_pb2: Any = importlib.import_module("google.protobuf.descriptor_pb2")
    module: Any = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    return descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


class _Renderer:
    """Renders messages as JSON values."""

    def __init__(self, pool: Any, texts: frozenset[str]) -> None:
        self._pool = pool
        self._texts = texts
        self._to_dict: Any = importlib.import_module("google.protobuf.json_format").MessageToDict
        self._field: Any = importlib.import_module("google.protobuf.descriptor").FieldDescriptor

    def whole(self, message: Any) -> Any:
        is_of_google = message.DESCRIPTOR.full_name.startswith(_OWN_FORM)
        if self._texts and not is_of_google:
            return self._by_field(message)
        try:
            return self._to_dict(message, preserving_proto_field_name=True, descriptor_pool=self._pool)
        except MemoryError:
            raise
        except Exception as fault:
            if is_of_google:
                return faulty(str(fault)[:200] or type(fault).__name__, self._by_field(message))
            return self._by_field(message)

    def _by_field(self, message: Any) -> dict[str, Any]:
        found = {}
        for field, value in message.ListFields():
            name = f"[{field.full_name}]" if field.is_extension else field.name
            found[name] = self._value(field, value)
        return found

    def _value(self, field: Any, value: Any) -> Any:
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            kind = entry.fields_by_name["value"]
            return {_key(each): self._single(kind, value[each]) for each in value}
        if self._is_repeated(field):
            return [self._single(field, each) for each in value]
        return self._single(field, value)

    def _is_repeated(self, field: Any) -> bool:
        found = getattr(field, "is_repeated", None)  # since Protobuf 6.31, and the label is deprecated
        return bool(field.label == self._field.LABEL_REPEATED if found is None else found)

    def _single(self, field: Any, value: Any) -> Any:
        kinds = self._field
        if field.cpp_type == kinds.CPPTYPE_MESSAGE:
            return self.whole(value)
        if field.cpp_type == kinds.CPPTYPE_ENUM:
            known = field.enum_type.values_by_number.get(value)
            return value if known is None else known.name
        if field.full_name in self._texts:
            return value.decode(errors="backslashreplace")
        if field.type == kinds.TYPE_BYTES:
            return base64.b64encode(value).decode()
        if field.cpp_type in (kinds.CPPTYPE_INT64, kinds.CPPTYPE_UINT64):
            return str(value)
        if isinstance(value, float) and math.isfinite(value) and value.is_integer():
            return int(value)
        return value


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)
