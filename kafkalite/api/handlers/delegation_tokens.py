"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, DescribeDelegationToken.

Only an authenticated client gets tokens, and one that is authenticated by a token gets none.
Source: kafka.server.KafkaApis (handleCreateTokenRequest and its neighbours, allowTokenRequests).
"""

from __future__ import annotations

from collections.abc import Callable

from kafkalite.api.request.request_context import RequestContext, Runtime
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import format_uuid, random_uuid
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.metadata.cluster_metadata import ClusterMetadata
from kafkalite.network.client_connection import ANONYMOUS
from kafkalite.protocol.messages import delegation_tokens as wire
from kafkalite.security.acl.acl import Operation, ResourceType
from kafkalite.security.delegation_tokens import DelegationToken, Lifetimes, TokenHmacs, ended, hmac_of, issued, renewed
from kafkalite.security.principal import USER

_NO_TIME = -1
_NAME_CHARS_MAX = 1_000  # of owners and renewers, which are stored
_RENEWERS_MAX = 100


class DelegationTokenApi(NamedTuple):
    """The APIs of delegation tokens."""

    runtime: Runtime
    config: Callable[[], BrokerConfig]
    metadata: ClusterMetadata
    hmacs: TokenHmacs

    async def create_delegation_token(
        self, request: wire.CreateDelegationTokenRequest, context: RequestContext
    ) -> wire.CreateDelegationTokenResponse:
        requester = context.connection.principal
        owner = requester
        if request.owner_principal_name:
            owner = f"{request.owner_principal_type or ''}:{request.owner_principal_name}"
        answer = wire.CreateDelegationTokenResponse(
            issue_timestamp_ms=_NO_TIME, expiry_timestamp_ms=_NO_TIME, max_timestamp_ms=_NO_TIME
        )
        answer.principal_type, _, answer.principal_name = owner.partition(":")
        answer.token_requester_principal_type, _, answer.token_requester_principal_name = requester.partition(":")
        try:
            self._check_login(context)
            if owner != requester and not context.may(
                Operation.CREATE_TOKENS, ResourceType.USER, owner, is_logged=False
            ):
                raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
            if any(each.principal_type != USER for each in request.renewers):
                raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
            secret = self._secret()
            renewers = tuple(f"{each.principal_type}:{each.principal_name}" for each in request.renewers)
            if len(renewers) > _RENEWERS_MAX or max(map(len, (owner, *renewers))) > _NAME_CHARS_MAX:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            now_ms, token_id = self.runtime.clock.wall_ms(), format_uuid(random_uuid())
            token = issued(token_id, owner, requester, renewers, request.max_lifetime_ms, now_ms, self._lifetimes())
            await self.metadata.writes.change_delegation_token(token_id, lambda _: token)
        except KafkaError as error:
            answer.error_code = error.code
            return answer
        answer.token_id, answer.hmac = token_id, hmac_of(token_id, secret)
        answer.issue_timestamp_ms, answer.max_timestamp_ms = token.issued_ms, token.max_ms
        answer.expiry_timestamp_ms = token.expiry_ms
        return answer

    async def renew_delegation_token(
        self, request: wire.RenewDelegationTokenRequest, context: RequestContext
    ) -> wire.RenewDelegationTokenResponse:
        now_ms, by, limits = self.runtime.clock.wall_ms(), context.connection.principal, self._lifetimes()
        period_ms = request.renew_period_ms
        try:
            token = await self._change(
                context, bytes(request.hmac), lambda token: renewed(token, by, period_ms, now_ms, limits)
            )
        except KafkaError as error:
            return wire.RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=_NO_TIME)
        return wire.RenewDelegationTokenResponse(expiry_timestamp_ms=now_ms if token is None else token.expiry_ms)

    async def expire_delegation_token(
        self, request: wire.ExpireDelegationTokenRequest, context: RequestContext
    ) -> wire.ExpireDelegationTokenResponse:
        now_ms, by = self.runtime.clock.wall_ms(), context.connection.principal
        period_ms = request.expiry_time_period_ms
        try:
            token = await self._change(context, bytes(request.hmac), lambda token: ended(token, by, period_ms, now_ms))
        except KafkaError as error:
            return wire.ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=_NO_TIME)
        return wire.ExpireDelegationTokenResponse(expiry_timestamp_ms=now_ms if token is None else token.expiry_ms)

    async def _change(
        self,
        context: RequestContext,
        hmac: bytes,
        change: Callable[[DelegationToken], DelegationToken | None],
    ) -> DelegationToken | None:
        """Change a token; returns it, or None if it has been deleted. Raises KafkaError."""
        self._check_login(context)
        found = self.hmacs.find(hmac, self._secret())
        if found is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        after: DelegationToken | None = None

        def changed(there: DelegationToken | None) -> DelegationToken | None:
            nonlocal after
            if there is None:
                raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
            after = change(there)
            return after

        await self.metadata.writes.change_delegation_token(found.token_id, changed)
        return after

    def describe_delegation_token(
        self, request: wire.DescribeDelegationTokenRequest, context: RequestContext
    ) -> wire.DescribeDelegationTokenResponse:
        try:
            self._check_login(context)
            secret = self._secret()
        except KafkaError as error:
            return wire.DescribeDelegationTokenResponse(error_code=error.code)
        owners = request.owners
        wanted = None if owners is None else [f"{each.principal_type}:{each.principal_name}" for each in owners]
        return wire.DescribeDelegationTokenResponse(
            tokens=[
                _described(token, secret)
                for token in self.metadata.delegation_tokens.values()
                if (wanted is None or any(token.is_of(each) for each in wanted)) and _may_see(context, token)
            ]
        )

    def _check_login(self, context: RequestContext) -> None:
        """Raises KafkaError unless the client is authenticated by something else than a token."""
        connection = context.connection
        protocols = {each.name: each.protocol for each in self.config().listeners}
        protocol = protocols.get(connection.listener_name, "PLAINTEXT")
        is_anonymous = protocol == "PLAINTEXT" or (protocol == "SSL" and connection.principal == ANONYMOUS)
        if is_anonymous or connection.is_by_token:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)

    def _secret(self) -> str:
        """Raises KafkaError."""
        secret = self.config().token_secret
        if not secret:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        return secret

    def _lifetimes(self) -> Lifetimes:
        config = self.config()
        return Lifetimes(config.delegation_token_max_lifetime_ms, config.delegation_token_expiry_time_ms)


def _may_see(context: RequestContext, token: DelegationToken) -> bool:
    return (
        token.is_of(context.connection.principal)
        or context.may(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id, is_logged=False)
        or context.may(Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner, is_logged=False)
    )


def _described(token: DelegationToken, secret: str) -> wire.DescribedDelegationToken:
    owner_type, _, owner = token.owner.partition(":")
    requester_type, _, requester = token.requester.partition(":")
    renewers = [each.partition(":") for each in token.renewers]
    return wire.DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=hmac_of(token.token_id, secret),
        renewers=[wire.DescribedDelegationTokenRenewer(principal_type=a, principal_name=b) for a, _, b in renewers],
    )
