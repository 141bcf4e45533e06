"""Stands before the handlers of all APIs where there is an authorizer, and carries out the table of permissions.

A refused request is answered as if everything in it had failed. Of a list, the refused part is answered so, the rest is
given to the handler, and the two answers become one.
Source: kafka.server.KafkaApis.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from importlib import import_module
from typing import Any

from kafkalite.api.authorization.permissions import (
    CLUSTER,
    MESSAGES,
    PERMISSIONS,
    REFUSALS,
    Cluster,
    Each,
    Named,
    Rule,
    Special,
)
from kafkalite.api.request.access import Access
from kafkalite.api.request.error_answer import error_answer, merged
from kafkalite.api.request.request_context import RequestContext
from kafkalite.api.request.request_split import elements, without
from kafkalite.api.request.services import Services
from kafkalite.common.errors import Disconnect, ErrorCode
from kafkalite.network.client_connection import DeferredResponse
from kafkalite.protocol.apis import Api
from kafkalite.protocol.codec.schema import Message

Handler = Callable[[Services, Any, RequestContext], Any]
"""(services, request, context) -> response | awaitable of it | None (no response)."""
Change = Callable[[Any], Any]
_WITH_MESSAGES = (
    "CreatePartitions",
    "DescribeAcls",
    "CreateAcls",
    "DeleteAcls",
    "AlterClientQuotas",
    "AlterPartitionReassignments",
    "ListPartitionReassignments",
    "DescribeProducers",
)
"""Others tell the code alone, or have their messages from their own functions."""
_NULL_WHEN_REFUSED = {"DescribeClientQuotas": ("error_message", "entries")}


def authorized(api: Api, handler: Handler, access: Access) -> Handler:
    """`handler` behind the rules of its API."""
    for rule in reversed(PERMISSIONS[api.name]):
        handler = _behind(rule, api, handler, access)
    return handler


def _behind(rule: Rule, api: Api, handler: Handler, access: Access) -> Handler:
    if isinstance(rule, Special):
        if not rule.function:
            return handler
        module, _, name = rule.function.partition(".")
        special = getattr(import_module(f"kafkalite.api.authorization.{module}"), name)

        def behind_special(services: Services, request: Any, context: RequestContext) -> Any:
            return special(access, services, request, context, handler)

        return behind_special
    if isinstance(rule, Each):
        return _behind_each(rule, api, handler, access)

    def behind_whole(services: Services, request: Any, context: RequestContext) -> Any:
        if _is_allowed(rule, access, request, context):
            return handler(services, request, context)
        code = REFUSALS[rule.type if isinstance(rule, Named) else CLUSTER]
        return refused(api, request, code, context.api_version)

    return behind_whole


def _is_allowed(rule: Cluster | Named, access: Access, request: Any, context: RequestContext) -> bool:
    if isinstance(rule, Cluster):
        return access.allows_cluster(context.connection, *rule.operations)
    name = getattr(request, rule.field)
    return name is None or access.allows(context.connection, rule.operation, rule.type, name)


def _behind_each(rule: Each, api: Api, handler: Handler, access: Access) -> Handler:
    code = REFUSALS[rule.type]

    def behind_each(services: Services, request: Any, context: RequestContext) -> Any:
        connection = context.connection
        if rule.or_cluster is not None and access.allows_cluster(connection, rule.or_cluster, is_logged=False):
            return handler(services, request, context)
        denied = {name for name in elements(request) if not access.allows(connection, rule.operation, rule.type, name)}
        return without_denied(api, services, request, context, handler, denied, code)

    return behind_each


def without_denied(
    api: Api,
    services: Services,
    request: Message,
    context: RequestContext,
    handler: Handler,
    denied: Iterable[str],
    code: ErrorCode,
) -> Any:
    """Refuse what `request` lists of `denied`, and handle the rest."""
    names = set(denied)
    if not names:
        return handler(services, request, context)
    rest, left = without(request, names.__contains__)
    faulty = refused(api, without(request, lambda name: name not in names)[0], code, context.api_version)
    if not left or faulty is None:
        return faulty
    return then(handler(services, rest, context), lambda answer: merged(answer, faulty))


def refused(api: Api, request: Message, code: ErrorCode, version: int) -> Message:
    """The answer in which everything is refused. Raises Disconnect where no answer is due."""
    if api.name == "Produce" and getattr(request, "acks", 1) == 0:
        raise Disconnect(f"acks=0 leaves no other way to tell the producer of {code.name}")
    answer = error_answer(api.response, request, code, version)
    if api.name in _WITH_MESSAGES:
        _add_messages(answer, code)
    for field in _NULL_WHEN_REFUSED.get(api.name, ()):
        setattr(answer, field, None)
    return answer


def _add_messages(answer: Message, code: ErrorCode) -> None:
    if getattr(answer, "error_code", 0) == code:
        answer.error_message = MESSAGES[code]  # type: ignore[attr-defined]
    for name, field in answer.__fields__.items():
        if field.is_array and isinstance(field.kind, type) and issubclass(field.kind, Message):
            for each in getattr(answer, name) or ():
                _add_messages(each, code)


def then(response: Any, change: Change) -> Any:
    """`change` of a response that is here, or will be."""
    if response is None or isinstance(response, Message):
        return None if response is None else change(response)
    if isinstance(response, DeferredResponse):
        return _deferred(response, change)
    if isinstance(response, Coroutine):
        return _later(response, change)
    import asyncio

    return asyncio.ensure_future(_later(response, change))  # cancelled with its client, as the one that it awaits


def _deferred(response: DeferredResponse, change: Change) -> DeferredResponse:
    changed = DeferredResponse(response.cancel)

    def render(answer: object) -> list[Any]:
        changed.answer(change(answer))
        return []

    response.render, response.on_failure = render, changed.fail
    return changed


async def _later(response: Awaitable[Any], change: Change) -> Any:
    answer = await response
    return None if answer is None else change(answer)
