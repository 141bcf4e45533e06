"""DescribeUserScramCredentials and AlterUserScramCredentials behind an authorizer: a refusal for each user.

Source: kafka.server.KafkaApis (handleAlterUserScramCredentialsRequest), DescribeUserScramCredentialsRequest.
"""

from __future__ import annotations

from typing import Any

from kafkalite.api.authorization.permissions import CLUSTER, MESSAGES, REFUSALS
from kafkalite.api.authorization.rules import Handler
from kafkalite.api.request.access import Access
from kafkalite.api.request.request_context import RequestContext
from kafkalite.api.request.services import Services
from kafkalite.protocol.messages.scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from kafkalite.security.acl.acl import Operation


def describe_user_scram_credentials(
    access: Access,
    services: Services,
    request: DescribeUserScramCredentialsRequest,
    context: RequestContext,
    handler: Handler,
) -> Any:
    if access.allows_cluster(context.connection, Operation.DESCRIBE):
        return handler(services, request, context)
    code = REFUSALS[CLUSTER]
    return DescribeUserScramCredentialsResponse(
        error_code=code,
        error_message=MESSAGES[code],
        results=[DescribeUserScramCredentialsResult(error_code=code) for _ in request.users or ()],  # as Kafka: no name
    )


def alter_user_scram_credentials(
    access: Access,
    services: Services,
    request: AlterUserScramCredentialsRequest,
    context: RequestContext,
    handler: Handler,
) -> Any:
    if access.allows_cluster(context.connection, Operation.ALTER):
        return handler(services, request, context)
    code = REFUSALS[CLUSTER]
    names = dict.fromkeys([*(each.name for each in request.deletions), *(each.name for each in request.upsertions)])
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=name, error_code=code, error_message=MESSAGES[code]) for name in names
        ]
    )
