"""Formats of keys and values that need a schema, which the reader gives: Avro and Protobuf."""

from __future__ import annotations

import importlib.util

from kafkalite.console.decoders.decoder_process import SchemaRefused
from kafkalite.console.decoders.schema_decoder import DecoderPool, SchemaDecoder
from kafkalite.console.decoders.wire import Schema
from kafkalite.console.messages.payload import AUTO, AVRO, PROTOBUF, Format
from kafkalite.console.request.errors import ApiError, invalid


def available() -> dict[str, bool]:
    """The formats that are installed here."""
    modules = {AVRO: "fastavro", PROTOBUF: "google.protobuf", "parquet": "pyarrow"}
    return {name: _is_installed(module) for name, module in modules.items()}


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it
        return False


def format_of(name: str, schema: str | None, message: str | None, side: str, decoders: DecoderPool) -> Format:
    """How a key or value (`side`) is to be shown. Raises ApiError for a schema that is none, or is missing."""
    if name not in (AVRO, PROTOBUF):
        return Format(name or AUTO)
    if not schema:
        raise invalid(f"{side}_format={name} needs {side}_schema")
    if name == PROTOBUF and not message:
        raise invalid(f"{side}_format=protobuf needs {side}_message, the full name of a message")
    if not available()[name]:
        package = {AVRO: "fastavro", PROTOBUF: "protobuf"}[name]
        raise ApiError(409, "REFUSED", f"{name} needs the package {package}: pip install kafkalite[console]")
    try:
        return Format(name, SchemaDecoder(decoders, Schema(name, schema, message or "")))
    except SchemaRefused as fault:
        wanted = "Avro schema" if name == AVRO else f"base64 of a FileDescriptorSet with {message}"
        raise invalid(f"{side}_schema is no {wanted}: {fault}") from None
    except OSError as fault:
        raise ApiError(503, "NO_DECODER", f"the process that decodes {name} cannot be started: {fault}") from None
