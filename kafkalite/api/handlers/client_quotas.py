"""DescribeClientQuotas, AlterClientQuotas: the quotas of users, client ids and IP addresses.

They stand in the entity configs of the cluster, beside the credentials of SCRAM.
Source: kafka.server.ZkAdminManager (describeClientQuotas, alterClientQuotas), KIP-546.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkalite.api.request.request_context import RequestContext
from kafkalite.api.request.services import Services
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.protocol.messages.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResult,
    AlteredEntity,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedQuotas,
    QuotaEntity,
    QuotaFilterComponent,
    QuotaValue,
)
from kafkalite.security.acl.acl import Operation
from kafkalite.security.quota.entities import IP, Alteration, Component, Entity, EntityFilter, Match, changed


def describe_client_quotas(
    services: Services, request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    if not context.may_cluster(Operation.DESCRIBE_CONFIGS):
        return DescribeClientQuotasResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None, entries=None
        )
    try:
        components = [(each.entity_type, _component(each)) for each in request.components]
        found = EntityFilter(components, strict=request.strict).quotas(services.metadata.entity_configs)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    return DescribeClientQuotasResponse(
        entries=[
            DescribedQuotas(
                entity=[QuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity.names],
                values=[QuotaValue(key=key, value=value) for key, value in quotas.items()],
            )
            for entity, quotas in found.items()
        ]
    )


def _component(wanted: QuotaFilterComponent) -> Component:
    if wanted.match_type not in tuple(Match) or (wanted.match_type == Match.EXACT and wanted.match is None):
        what = "needs a name to match" if wanted.match_type == Match.EXACT else "has an unknown match type"
        message = f"The filter component of type {wanted.entity_type} {what}"
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)
    match = Match(wanted.match_type)
    return Component(match, wanted.match if match is Match.EXACT else None)


async def alter_client_quotas(
    services: Services, request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    results: dict[Entity, AlterClientQuotasResult] = {}  # an entity that comes twice has the result of its last entry
    for wanted in request.entries:
        entity = _entity(wanted)
        result = AlterClientQuotasResult(
            entity=[QuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity.names]
        )
        try:
            await _alter(services, entity, wanted, validate_only=request.validate_only)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results[entity] = result
    return AlterClientQuotasResponse(entries=list(results.values()))


def _entity(wanted: AlteredEntity) -> Entity:
    names = {each.entity_type: each.entity_name for each in wanted.entity}
    return Entity(tuple(sorted(names.items(), reverse=True)))


async def _alter(services: Services, entity: Entity, wanted: AlteredEntity, *, validate_only: bool) -> None:
    path = entity.path
    alterations = [Alteration(each.key, None if each.remove else each.value) for each in wanted.ops]
    for kind, name in entity.names:
        if kind == IP and name is not None and not await _is_known(services, name):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} is not a valid IP or resolvable host.")
    configs = services.metadata.entity_configs

    def change(there: Mapping[str, str]) -> Mapping[str, str]:
        return changed(path, there, alterations)

    change(configs.get(path, {}))  # before anything is written
    if not validate_only:
        await services.metadata.change_entity_config(path, change)


async def _is_known(services: Services, host: str) -> bool:
    try:
        await services.runtime.loop.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return False
    return True
