"""The OpenAPI document of the API, made from the table of routes."""

from __future__ import annotations

from typing import Any

from kafkalite.console.calls.route import Route
from kafkalite.console.request.parameters import Parameter

_ERROR = {
    "type": "object",
    "required": ["error", "message"],
    "properties": {"error": {"type": "string"}, "message": {"type": "string"}},
}
_STATUSES = ("400", "401", "403", "404", "409", "413", "429", "502", "504")
CSRF_HEADER = "X-CSRF-Token"


def document(routes: tuple[Route, ...], version: str) -> dict[str, Any]:
    """OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "kafkalite console", "version": version, "description": "Sizes in bytes, times in ms."},
        "paths": paths,
        "components": {"schemas": {"Error": _ERROR}},
    }


def _operation(route: Route) -> dict[str, Any]:
    fields = [one for one in route.parameters if one.where == "body"]
    parameters = [_parameter(one) for one in route.parameters if one.where != "body"]
    operation: dict[str, Any] = {"summary": route.summary, "operationId": route.handler.__name__}
    if route.is_change:
        parameters.append({"name": CSRF_HEADER, "in": "header", "required": True, "schema": {"type": "string"}})
    if parameters:
        operation["parameters"] = parameters
    if route.is_change:
        operation["requestBody"] = {
            "required": bool(fields),
            "content": {"application/json": {"schema": _body(fields)}},
        }
    error = {
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
        "description": "error",
    }
    operation["responses"] = {"200": _answer(route), **dict.fromkeys(_STATUSES, error)}
    return operation


def _parameter(one: Parameter) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": one.name,
        "in": one.where,
        "required": one.required,
        "schema": one.schema(),
    }
    if one.kind == "array":
        found.update(style="form", explode=False)
    if one.doc:
        found["description"] = one.doc
    return found


def _body(fields: list[Parameter]) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {one.name: {**one.schema(), **({"description": one.doc} if one.doc else {})} for one in fields},
        "additionalProperties": False,
    }
    if required := [one.name for one in fields if one.required]:
        schema["required"] = required
    return schema


def _answer(route: Route) -> dict[str, Any]:
    if route.streams:
        return {"description": "events", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
    content: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}
    if route.downloads:
        names = ("application/octet-stream", "application/jsonl", "application/vnd.apache.parquet")
        content.update({key: {"schema": {"type": "string", "format": "binary"}} for key in names})
    return {"description": "the answer", "content": content}
