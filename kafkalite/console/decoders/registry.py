"""Schemas by their ids, from a schema registry with Confluent's API, and records decoded by them.

A schema never changes, so one that was read is kept; a failure is kept for some seconds, so that a registry that is
away costs a search one wait. Redirections are not followed, since they would carry the password elsewhere. The schemas
are compiled, and records decoded, in decoder processes.
Source: Confluent Schema Registry API, io.confluent.kafka.serializers.AbstractKafkaSchemaSerDe; Karapace and Apicurio
(ccompat) serve the same addresses.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlsplit

from kafkalite.client.logins import ClientSecurity
from kafkalite.common.errors import ConfigError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.text import printable, read_json
from kafkalite.console.decoders import wire
from kafkalite.console.decoders.schema_decoder import KEPT_BYTES_MAX, Budget, DecoderPool, SchemaDecoder, SchemaRefused
from kafkalite.console.decoders.wire import Schema
from kafkalite.console.request.http_answer import read_body

URL_PROPERTY, LOGIN_PROPERTY = "schema.registry.url", "basic.auth.user.info"
_SSL_PREFIX = "schema.registry."
JSON_SCHEMA = "json"
_KINDS = {"AVRO": wire.AVRO, "PROTOBUF": wire.PROTOBUF, "JSON": JSON_SCHEMA}
_ASK_S = 5.0
_FAILED_S = 10.0
_BYTES_MAX = 8 << 20
_SCHEMAS_MAX = 1_000
_REFERENCES_MAX = 200
_IDS_OF_SEARCH_MAX = 200


class RegistryFault(ValueError):
    """The registry has no answer; the text is the reason. `status` is that of HTTP, 0 without one."""

    def __init__(self, why: str, status: int = 0) -> None:
        super().__init__(why)
        self.status = status


class NotEncoded(ValueError):
    """The data do not begin with the id of a schema."""


class RegisteredSchema(NamedTuple):
    """`kind`: avro, protobuf or json. `schema` is None for json, whose records are JSON already."""

    kind: str
    schema: Schema | None


class SchemaRegistry:
    """The registry at some addresses, of which the first that answers is asked."""

    def __init__(
        self, urls: str, properties: Mapping[str, str], *, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        """Raises ConfigError."""
        self._urls = [url.strip().rstrip("/") for url in urls.split(",") if url.strip()]
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._schemas: OrderedDict[int, RegisteredSchema] = OrderedDict()
        # None: of the registry itself. Not the exceptions: their tracebacks hold the records of the search they ended
        self._faults: dict[int | None, tuple[float, str, int]] = {}
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json", "Connection": "close"}
        if not self._urls:
            raise ConfigError(f"{URL_PROPERTY} must be http://HOST:PORT or https://HOST:PORT")
        for url in self._urls:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ConfigError(f"{URL_PROPERTY} must be http://HOST:PORT or https://HOST:PORT")
            if parts.username is not None:
                login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
                self._headers["Authorization"] = _basic(login)
        if login := properties.get(LOGIN_PROPERTY, ""):
            self._headers["Authorization"] = _basic(login)
        own = {name.removeprefix(_SSL_PREFIX): properties[name] for name in properties if name.startswith(_SSL_PREFIX)}
        is_secure = any(url.startswith("https:") for url in self._urls)
        self._security = ClientSecurity.of({**own, "security.protocol": "SSL"}) if is_secure else None

    @classmethod
    def of(cls, url: str | None, properties: Mapping[str, str]) -> SchemaRegistry | None:
        """The registry of an option, or else of a client's properties. Raises ConfigError."""
        urls = url or properties.get(URL_PROPERTY, "").strip()
        return cls(urls, properties) if urls else None

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Raises RegistryFault."""
        with self._lock:  # searches that need the same schema wait for one answer
            if schema_id in self._schemas:
                return self._schemas[schema_id]
            for key in (None, schema_id):
                since_s, why, status = self._faults.get(key, (float("-inf"), "", 0))
                if self._monotonic_s() - since_s < _FAILED_S:
                    raise RegistryFault(why, status)
            try:
                found = self._read(schema_id)
            except RegistryFault as fault:
                self._faults[schema_id if fault.status else None] = self._monotonic_s(), str(fault), fault.status
                while len(self._faults) > _SCHEMAS_MAX:
                    self._faults.pop(next(iter(self._faults)))
                raise
            self._schemas[schema_id] = found
            while len(self._schemas) > _SCHEMAS_MAX:
                self._schemas.popitem(last=False)
            return found

    def subjects(self) -> list[str]:
        """Raises RegistryFault."""
        return sorted(one for one in self.ask("/subjects") if isinstance(one, str))

    def versions(self, subject: str) -> list[int]:
        """The versions of a subject, the newest first. Raises RegistryFault."""
        found = self.ask(f"/subjects/{quote(subject, safe='')}/versions")
        return sorted((one for one in found if type(one) is int), reverse=True)

    def version(self, subject: str, version: int | str) -> dict[str, Any]:
        """The schema of a version: its id, type, text and references. Raises RegistryFault."""
        return _checked(self.ask(f"/subjects/{quote(subject, safe='')}/versions/{version}"))

    def ask(self, path: str) -> Any:
        """The JSON of an address. Raises RegistryFault."""
        for url in self._urls[:-1]:
            try:
                return self._ask_one(url, path)
            except RegistryFault as fault:
                if fault.status:
                    raise
        return self._ask_one(self._urls[-1], path)

    def _ask_one(self, url: str, path: str) -> Any:
        parts = urlsplit(url)
        deadline_s = self._monotonic_s() + _ASK_S
        try:
            with closing(self._connection(parts)) as connection:
                connection.request("GET", parts.path + path, headers=self._headers)
                answer = connection.getresponse()
                body = read_body(answer, _BYTES_MAX, lambda: deadline_s - self._monotonic_s())
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or str(error) or "it closed the connection"
            raise RegistryFault(f"the schema registry does not answer: {printable(why)[:200]}") from None
        if answer.status != 200:
            raise RegistryFault(_reason(answer.status, body), answer.status)
        try:
            return read_json(body)
        except ValueError:
            raise RegistryFault("the schema registry answers without JSON", answer.status) from None

    def _connection(self, parts: SplitResult) -> http.client.HTTPConnection:
        """Raises OSError."""
        host, is_secure = parts.hostname or "", parts.scheme == "https"
        connection = http.client.HTTPConnection(parts.netloc.rpartition("@")[2], timeout=_ASK_S)
        plain = socket.create_connection((host, parts.port or (443 if is_secure else 80)), _ASK_S)
        try:
            connection.sock = self._security.secure(plain, host) if is_secure and self._security is not None else plain
        except OSError:
            plain.close()
            raise
        return connection

    def _read(self, schema_id: int) -> RegisteredSchema:
        found = _checked(self.ask(f"/schemas/ids/{schema_id}"))
        name = found.get("schemaType") or "AVRO"
        kind = _KINDS.get(name)
        if kind is None:
            raise RegistryFault(f"schemas of the type {printable(str(name))[:40]} are not known here", 200)
        if kind == JSON_SCHEMA:
            return RegisteredSchema(kind, None)
        if kind == wire.AVRO:
            references = [one["schema"] for _, one in self._references(found, "", {})]
            return RegisteredSchema(kind, Schema(kind, found["schema"], json.dumps(references) if references else ""))
        main = _checked(self.ask(f"/schemas/ids/{schema_id}?format=serialized"))
        files = [[name, one["schema"]] for name, one in self._references(main, "?format=serialized", {})]
        files.append(["kafkalite-main.proto", main["schema"]])
        return RegisteredSchema(kind, Schema(kind, json.dumps(files)))

    def _references(
        self, schema: dict[str, Any], suffix: str, seen: dict[str, None]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """The schemas that a schema refers to with the names by which it does, each behind its own references."""
        for one in schema.get("references") or ():
            name, subject, version = one["name"], one["subject"], one["version"]
            if name in seen:
                continue
            seen[name] = None
            if len(seen) > _REFERENCES_MAX:
                raise RegistryFault(f"the schema refers to more than {_REFERENCES_MAX} others", 200)
            address = f"/subjects/{quote(str(subject), safe='')}/versions/{int(version)}{suffix}"
            found = _checked(self.ask(address))
            yield from self._references(found, suffix, seen)
            yield name, found


def _basic(login: str) -> str:
    return f"Basic {base64.b64encode(login.encode()).decode()}"


def _reason(status: int, body: bytes) -> str:
    try:
        said = printable(str(read_json(body)["message"]))[:200]
    except (ValueError, LookupError, TypeError):
        said = f"status {status}"
    return f"the schema registry answers: {said}"


def _checked(found: Any) -> dict[str, Any]:
    """The schema of an answer. Raises RegistryFault for one that is none."""
    references = found.get("references") or [] if isinstance(found, dict) else None
    is_schema = (
        isinstance(references, list)
        and isinstance(found.get("schema"), str)
        and all(
            isinstance(one, dict) and isinstance(one.get("name"), str) and type(one.get("version")) is int
            for one in references
        )
        and all("subject" in one for one in references)
    )
    if not is_schema:
        raise RegistryFault("the schema registry answers without a schema", 200)
    return dict(found)


class RegistryDecoder:
    """Decodes records in the registry's wire format, each by the schema of its id, for one thread."""

    def __init__(self, registry: SchemaRegistry, pool: DecoderPool) -> None:
        self._registry = registry
        self._pool = pool
        self._budget = Budget()
        self._decoders: dict[int, SchemaDecoder | RegisteredSchema | str] = {}  # a text: why there is none

    def kind_of(self, data: bytes) -> str:
        """The format of data that were decoded."""
        found = self._registry.schema(wire.schema_id(data) or 0)
        return found.kind

    def expect(self, records: Iterable[bytes | None], /) -> None:
        """Announces the records that are decoded next."""
        known = [one for one in self._decoders.values() if isinstance(one, SchemaDecoder)]
        if sum(one.kept_bytes for one in known) > KEPT_BYTES_MAX:
            for one in known:
                one.forget()
        by_id: dict[int, list[bytes]] = {}
        for data in records:
            if data is not None and (schema_id := wire.schema_id(data)) is not None:
                by_id.setdefault(schema_id, []).append(data)
        for schema_id, some in by_id.items():
            decoder = self._decoder(schema_id)
            if isinstance(decoder, SchemaDecoder):
                decoder.expect(some)

    def __call__(self, data: bytes) -> str:
        """The record as JSON. Raises NotEncoded, ValueError with the reason."""
        schema_id = wire.schema_id(data)
        if schema_id is None:
            raise NotEncoded("no id of a schema")
        decoder = self._decoder(schema_id)
        if isinstance(decoder, str):
            raise ValueError(decoder)
        if isinstance(decoder, SchemaDecoder):
            return decoder(data)
        text = wire.without_prefix(data).decode()
        read_json(text, strict=True)
        return text

    def _decoder(self, schema_id: int) -> SchemaDecoder | RegisteredSchema | str:
        found = self._decoders.get(schema_id)
        if found is None:
            found = self._decoders[schema_id] = self._new(schema_id)
        return found

    def _new(self, schema_id: int) -> SchemaDecoder | RegisteredSchema | str:
        if len(self._decoders) >= _IDS_OF_SEARCH_MAX:
            return f"not decoded: a search decodes {_IDS_OF_SEARCH_MAX} schemas"
        try:
            found = self._registry.schema(schema_id)
            return found if found.schema is None else SchemaDecoder(self._pool, found.schema, self._budget)
        except RegistryFault as fault:
            return str(fault)
        except (SchemaRefused, OSError) as fault:
            return f"its schema cannot be used: {fault}"
