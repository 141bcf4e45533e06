"""/api/schemas: subjects and versions of the schema registry."""

from __future__ import annotations

from kafkalite.console.calls.route import Call
from kafkalite.console.decoders.registry import RegistryFault, SchemaRegistry
from kafkalite.console.request.parameters import ApiError, Row, not_found, paged

_LATEST = "latest"


def list_subjects(call: Call) -> Row:
    """The subjects; those of the page with their newest schema."""
    registry = _registry(call)
    try:
        rows = [{"subject": one} for one in registry.subjects()]
        page = paged(rows, call.query, sortable=("subject",), searched=("subject",))
        for row in page["items"]:
            row.update(_head(registry.version(row["subject"], _LATEST)))
    except RegistryFault as fault:
        raise _refusal(fault) from None
    return page


def describe_subject(call: Call) -> Row:
    """One version of a subject, by default the newest, and the numbers of all."""
    registry, subject = _registry(call), call.query["subject"]
    try:
        versions = registry.versions(subject)
        found = registry.version(subject, call.query["version"] or _LATEST)
    except RegistryFault as fault:
        raise _refusal(fault) from None
    names = ("name", "subject", "version")
    references = [{name: one.get(name) for name in names} for one in found.get("references") or ()]
    return {
        "subject": subject,
        "versions": versions,
        **_head(found),
        "schema": found["schema"],
        "references": references,
    }


def _head(found: Row) -> Row:
    return {"version": found.get("version"), "id": found.get("id"), "type": found.get("schemaType") or "AVRO"}


def _registry(call: Call) -> SchemaRegistry:
    if call.registry is None:
        raise not_found("this console has no schema registry; start it with --schema-registry URL")
    return call.registry


def _refusal(fault: RegistryFault) -> ApiError:
    return not_found(str(fault)) if fault.status == 404 else ApiError(502, "UNREACHABLE", str(fault))
