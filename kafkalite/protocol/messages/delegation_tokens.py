"""CreateDelegationToken (38), RenewDelegationToken (39), ExpireDelegationToken (40), DescribeDelegationToken (41):
KIP-48, KIP-373.
"""

from __future__ import annotations

from kafkalite.protocol.codec.schema import Message, array, blob, int16, int32, int64, string


class CreatableRenewers(Message):
    principal_type: str = string("0+")
    principal_name: str = string("0+")


class CreateDelegationTokenRequest(Message, flexible="2+"):
    owner_principal_type: str | None = string("3+", nullable="3+", default="")
    owner_principal_name: str | None = string("3+", nullable="3+", default="")
    renewers: list[CreatableRenewers] = array(CreatableRenewers, "0+")
    max_lifetime_ms: int = int64("0+")


class CreateDelegationTokenResponse(Message, flexible="2+"):
    error_code: int = int16("0+")
    principal_type: str = string("0+")
    principal_name: str = string("0+")
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp_ms: int = int64("0+")
    expiry_timestamp_ms: int = int64("0+")
    max_timestamp_ms: int = int64("0+")
    token_id: str = string("0+")
    hmac: bytes = blob("0+")
    throttle_time_ms: int = int32("0+")


class RenewDelegationTokenRequest(Message, flexible="2+"):
    hmac: bytes = blob("0+")
    renew_period_ms: int = int64("0+")


class RenewDelegationTokenResponse(Message, flexible="2+"):
    error_code: int = int16("0+")
    expiry_timestamp_ms: int = int64("0+")
    throttle_time_ms: int = int32("0+")


class ExpireDelegationTokenRequest(Message, flexible="2+"):
    hmac: bytes = blob("0+")
    expiry_time_period_ms: int = int64("0+")


class ExpireDelegationTokenResponse(Message, flexible="2+"):
    error_code: int = int16("0+")
    expiry_timestamp_ms: int = int64("0+")
    throttle_time_ms: int = int32("0+")


class DescribeDelegationTokenOwner(Message):
    principal_type: str = string("0+")
    principal_name: str = string("0+")


class DescribeDelegationTokenRequest(Message, flexible="2+"):
    owners: list[DescribeDelegationTokenOwner] | None = array(DescribeDelegationTokenOwner, "0+", nullable="0+")


class DescribedDelegationTokenRenewer(Message):
    principal_type: str = string("0+")
    principal_name: str = string("0+")


class DescribedDelegationToken(Message):
    principal_type: str = string("0+")
    principal_name: str = string("0+")
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp: int = int64("0+")
    expiry_timestamp: int = int64("0+")
    max_timestamp: int = int64("0+")
    token_id: str = string("0+")
    hmac: bytes = blob("0+")
    renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer, "0+")


class DescribeDelegationTokenResponse(Message, flexible="2+"):
    error_code: int = int16("0+")
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken, "0+")
    throttle_time_ms: int = int32("0+")
