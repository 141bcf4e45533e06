"""/api/acls, /api/users, /api/quotas: access control lists, SCRAM users and quotas, read and changed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from kafkalite.client.acl_admin import ALL, FIELDS, Entry, add_entries, list_entries, remove_entries
from kafkalite.client.quota_admin import alter_quotas, list_quotas
from kafkalite.client.user_admin import ITERATIONS_MIN, MECHANISMS, add_user, list_users, remove_user, weakness
from kafkalite.common.errors import ErrorCode, Unanswered
from kafkalite.console.calls.route import Call
from kafkalite.console.request.parameters import Row, invalid, not_found, paged

_NO_AUTHORIZER = "No Authorizer"
_SEARCHED = ("name", "principal", "host", "operation")


def list_acls(call: Call) -> Row:
    """The entries; `is_off` without an authorizer."""
    is_off, entries = False, []
    try:
        entries = list_entries(call.cluster, ALL)
    except Unanswered as fault:
        if ErrorCode.SECURITY_DISABLED.name not in str(fault) and _NO_AUTHORIZER not in str(fault):
            raise
        is_off = True
    rows = [dict(zip(FIELDS, one.words(), strict=True)) for one in entries]
    return {**paged(rows, call.query, sortable=("principal", *FIELDS), searched=_SEARCHED), "is_off": is_off}


def _entry(body: Mapping[str, Any]) -> Entry:
    """Raises ApiError."""
    if ":" not in body["principal"]:
        raise invalid(f"a principal has a type, such as User:{body['principal'][:80]}")
    return Entry.of(body)


def add_acl(call: Call) -> Row:
    add_entries(call.cluster, [_entry(call.body)])
    return {"ok": True}


def remove_acl(call: Call) -> Row:
    removed = remove_entries(call.cluster, [_entry(call.body)])
    if not removed:
        raise not_found("there is no such entry now")
    return {"ok": True, "removed": removed}


def users(call: Call) -> Row:
    rows = [
        {"user": name, "mechanisms": [{"mechanism": each, "iterations": count} for each, count in kinds.items()]}
        for name, kinds in list_users(call.cluster).items()
    ]
    return paged(rows, call.query, sortable=("user",), searched=("user",))


def put_user(call: Call) -> Row:
    """Adds a user, or sets another password."""
    name, password, mechanism = call.body["name"], call.body["password"], call.body["mechanism"]
    if not name or not name.isprintable():
        raise invalid("a user's name has characters that can be printed")
    if not password:
        raise invalid("a password is needed")
    add_user(call.cluster, name, password, {mechanism: call.body["iterations"] or ITERATIONS_MIN})
    return {"ok": True, "warning": weakness(name, password)}


def delete_user(call: Call) -> Row:
    name = call.query["name"]
    found = list_users(call.cluster).get(name)
    if not found:
        raise not_found(f"user {name[:80]!r} not found")
    remove_user(call.cluster, name, [each for each in found if each in MECHANISMS])
    return {"ok": True}


def quotas(call: Call) -> Row:
    return {"items": [{"entity": entity, "quotas": values} for entity, values in list_quotas(call.cluster)]}


def alter_quota(call: Call) -> Row:
    """`entity` has names by user, client-id and ip, null for the default; `set` numbers by quota."""
    entity, changes = call.body["entity"], call.body["set"] or {}
    if not entity or not set(entity) <= {"user", "client-id", "ip"}:
        raise invalid("entity: a user, a client-id, both, or an ip")
    if any(not (name is None or isinstance(name, str)) for name in entity.values()):
        raise invalid("entity: a name is text, or null for the default")
    for key, value in changes.items():
        if type(value) not in (int, float) or not math.isfinite(value):
            raise invalid(f"set: {key[:80]!r} must be a number")
    removed = call.body["reset"] or []
    if not changes and not removed:
        raise invalid("nothing to change: set and reset are both empty")
    alter_quotas(
        call.cluster, entity, {**{key: float(value) for key, value in changes.items()}, **dict.fromkeys(removed)}
    )
    return {"ok": True}
