"""SCRAM credentials and client quotas: DescribeUserScramCredentials, AlterUserScramCredentials, DescribeClientQuotas,
AlterClientQuotas. Both stand in the entity configs of the cluster.

A client sends a salted password; the stored and described values are derived from it and prove nothing by themselves.
Quotas are those of users, client ids and IP addresses.
Source: kafka.server.ZkAdminManager (describeUserScramCredentials, alterUserScramCredentials, describeClientQuotas,
alterClientQuotas), KIP-554, KIP-546.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

from kafkalite.api.request.request_context import CLUSTER, RequestContext, Runtime, refusal
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import desanitized, sanitized
from kafkalite.metadata.cluster_metadata import ClusterMetadata
from kafkalite.protocol.messages import entity_configs as wire
from kafkalite.security.acl.acl import Operation
from kafkalite.security.quota.entities import IP, Alteration, Component, Entity, EntityFilter, Match, changed
from kafkalite.security.sasl.scram import ITERATIONS_MAX, ITERATIONS_MIN, credential_of, parse_credential

_USERS = "users/"
_DEFAULT = "<default>"
_NAMES = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_NUMBERS = {name: number for number, name in _NAMES.items()}
ScramAlteration = wire.ScramCredentialDeletion | wire.ScramCredentialUpsertion


class EntityConfigApi(NamedTuple):
    """The APIs of quotas and SCRAM credentials."""

    runtime: Runtime
    metadata: ClusterMetadata

    def describe_user_scram_credentials(
        self, request: wire.DescribeUserScramCredentialsRequest, context: RequestContext
    ) -> wire.DescribeUserScramCredentialsResponse:
        if not context.may_cluster(Operation.DESCRIBE):
            error = refusal(CLUSTER)
            return wire.DescribeUserScramCredentialsResponse(
                error_code=error.code,
                error_message=error.message,
                results=[
                    wire.DescribeUserScramCredentialsResult(error_code=error.code) for _ in request.users or ()
                ],  # no names
            )
        known = _all(self.metadata.entity_configs)
        if not request.users:
            return wire.DescribeUserScramCredentialsResponse(
                results=[
                    wire.DescribeUserScramCredentialsResult(user=name, credential_infos=infos)
                    for name, infos in sorted(known.items())
                ]
            )
        results = []
        for name, count in Counter(each.name for each in request.users).items():
            result = wire.DescribeUserScramCredentialsResult(user=name, credential_infos=known.get(name, []))
            if count > 1:
                result.error_code, result.credential_infos = ErrorCode.DUPLICATE_RESOURCE, []
                result.error_message = (
                    f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
                )
            elif name not in known:
                result.error_code = ErrorCode.RESOURCE_NOT_FOUND
                result.error_message = f"Attempt to describe a user credential that does not exist: {name}"
            results.append(result)
        return wire.DescribeUserScramCredentialsResponse(results=results)

    async def alter_user_scram_credentials(
        self, request: wire.AlterUserScramCredentialsRequest, context: RequestContext
    ) -> wire.AlterUserScramCredentialsResponse:
        by_user: dict[str, list[ScramAlteration]] = {}
        alterations: list[ScramAlteration] = [*request.deletions, *request.upsertions]
        for each in alterations:
            by_user.setdefault(each.name, []).append(each)
        results = []
        is_allowed = context.may_cluster(Operation.ALTER)
        for name, own in by_user.items():
            result = wire.AlterUserScramCredentialsResult(user=name)
            try:
                if not is_allowed:
                    raise refusal(CLUSTER)
                _check_alterations(name, own)
                await self._alter_credentials(name, own)
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.message
            results.append(result)
        return wire.AlterUserScramCredentialsResponse(results=results)

    async def _alter_credentials(self, name: str, alterations: list[ScramAlteration]) -> None:
        def changed(there: Mapping[str, str]) -> Mapping[str, str]:
            config = dict(there)
            for each in alterations:
                mechanism = _NAMES[each.mechanism]
                if isinstance(each, wire.ScramCredentialUpsertion):
                    salt, salted = bytes(each.salt), bytes(each.salted_password)
                    config[mechanism] = credential_of(mechanism, salt, salted, each.iterations).text
                elif config.pop(mechanism, None) is None:
                    message = f"Attempt to delete a user credential that does not exist with username {name}"
                    raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, message)
            return config

        await self.metadata.writes.change_entity_config(_USERS + sanitized(name), changed)

    def describe_client_quotas(
        self, request: wire.DescribeClientQuotasRequest, context: RequestContext
    ) -> wire.DescribeClientQuotasResponse:
        if not context.may_cluster(Operation.DESCRIBE_CONFIGS):
            return wire.DescribeClientQuotasResponse(
                error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None, entries=None
            )
        try:
            components = [(each.entity_type, _component(each)) for each in request.components]
            found = EntityFilter(components, strict=request.strict).quotas(self.metadata.entity_configs)
        except KafkaError as error:
            return wire.DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
        return wire.DescribeClientQuotasResponse(
            entries=[
                wire.DescribedQuotas(
                    entity=[wire.QuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity.names],
                    values=[wire.QuotaValue(key=key, value=value) for key, value in quotas.items()],
                )
                for entity, quotas in found.items()
            ]
        )

    async def alter_client_quotas(
        self, request: wire.AlterClientQuotasRequest, context: RequestContext
    ) -> wire.AlterClientQuotasResponse:
        results: dict[
            Entity, wire.AlterClientQuotasResult
        ] = {}  # an entity that comes twice has the result of its last entry
        for wanted in request.entries:
            entity = _entity(wanted)
            result = wire.AlterClientQuotasResult(
                entity=[wire.QuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity.names]
            )
            try:
                await self._alter(entity, wanted, validate_only=request.validate_only)
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.message
            results[entity] = result
        return wire.AlterClientQuotasResponse(entries=list(results.values()))

    async def _alter(self, entity: Entity, wanted: wire.AlteredEntity, *, validate_only: bool) -> None:
        path = entity.path
        alterations = [Alteration(each.key, None if each.remove else each.value) for each in wanted.ops]
        for kind, name in entity.names:
            if kind == IP and name is not None and not await self._is_known(name):
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} is not a valid IP or resolvable host.")
        configs = self.metadata.entity_configs

        def change(there: Mapping[str, str]) -> Mapping[str, str]:
            return changed(path, there, alterations)

        change(configs.get(path, {}))  # before anything is written
        if not validate_only:
            await self.metadata.writes.change_entity_config(path, change)

    async def _is_known(self, host: str) -> bool:
        try:
            await self.runtime.loop.getaddrinfo(host, None)
        except (OSError, UnicodeError):
            return False
        return True


def _all(configs: Mapping[str, Mapping[str, str]]) -> dict[str, list[wire.CredentialInfo]]:
    found: dict[str, list[wire.CredentialInfo]] = {}
    for path, config in configs.items():
        if not path.startswith(_USERS) or "/" in path[len(_USERS) :] or path == _USERS + _DEFAULT:
            continue
        infos = []
        for mechanism, number in _NUMBERS.items():
            text = config.get(mechanism)
            if text is not None:
                with suppress(ValueError):  # no user can log in with it
                    infos.append(wire.CredentialInfo(mechanism=number, iterations=parse_credential(text).iterations))
        if infos:
            found[desanitized(path[len(_USERS) :])] = infos
    return found


def _check_alterations(name: str, alterations: list[ScramAlteration]) -> None:
    """Raises KafkaError for an invalid alteration; then nothing of this user is changed."""
    if not name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    for each in alterations:
        if each.mechanism not in _NAMES:
            raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        if isinstance(each, wire.ScramCredentialUpsertion):
            if not ITERATIONS_MIN <= each.iterations <= ITERATIONS_MAX:
                few = each.iterations < ITERATIONS_MIN
                message = f"Too {'few' if few else 'many'} iterations"
                raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
            if not each.salt or not each.salted_password:
                raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the salt or the salted password is empty")
    if len({each.mechanism for each in alterations}) < len(alterations):
        message = "A user credential cannot be altered twice in the same request"
        raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, message)


def _component(wanted: wire.QuotaFilterComponent) -> Component:
    if wanted.match_type not in tuple(Match) or (wanted.match_type == Match.EXACT and wanted.match is None):
        what = "needs a name to match" if wanted.match_type == Match.EXACT else "has an unknown match type"
        message = f"The filter component of type {wanted.entity_type} {what}"
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)
    match = Match(wanted.match_type)
    return Component(match, wanted.match if match is Match.EXACT else None)


def _entity(wanted: wire.AlteredEntity) -> Entity:
    names = {each.entity_type: each.entity_name for each in wanted.entity}
    return Entity(tuple(sorted(names.items(), reverse=True)))
