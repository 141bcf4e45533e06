"""DescribeClientQuotas (48), AlterClientQuotas (49): KIP-546. DescribeUserScramCredentials (50),
AlterUserScramCredentials (51): KIP-554."""

from __future__ import annotations

from kafkalite.protocol.codec.schema import Message, array, blob, boolean, float64, int8, int16, int32, string


class UserName(Message):
    name: str = string("0+")


class DescribeUserScramCredentialsRequest(Message, flexible="0+"):
    users: list[UserName] | None = array(UserName, "0+", nullable="0+")


class CredentialInfo(Message):
    mechanism: int = int8("0+")
    iterations: int = int32("0+")


class DescribeUserScramCredentialsResult(Message):
    user: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    credential_infos: list[CredentialInfo] = array(CredentialInfo, "0+")


class DescribeUserScramCredentialsResponse(Message, flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default="")
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult, "0+")


class ScramCredentialDeletion(Message):
    name: str = string("0+")
    mechanism: int = int8("0+")


class ScramCredentialUpsertion(Message):
    name: str = string("0+")
    mechanism: int = int8("0+")
    iterations: int = int32("0+")
    salt: bytes = blob("0+")
    salted_password: bytes = blob("0+")


class AlterUserScramCredentialsRequest(Message, flexible="0+"):
    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion, "0+")
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion, "0+")


class AlterUserScramCredentialsResult(Message):
    user: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class AlterUserScramCredentialsResponse(Message, flexible="0+"):
    throttle_time_ms: int = int32("0+")
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult, "0+")


class QuotaFilterComponent(Message):
    entity_type: str = string("0+")
    match_type: int = int8("0+")
    match: str | None = string("0+", nullable="0+")


class DescribeClientQuotasRequest(Message, flexible="1+"):
    components: list[QuotaFilterComponent] = array(QuotaFilterComponent, "0+")
    strict: bool = boolean("0+")


class QuotaEntity(Message):
    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable="0+")


class QuotaValue(Message):
    key: str = string("0+")
    value: float = float64("0+")


class DescribedQuotas(Message):
    entity: list[QuotaEntity] = array(QuotaEntity, "0+")
    values: list[QuotaValue] = array(QuotaValue, "0+")


class DescribeClientQuotasResponse(Message, flexible="1+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default="")
    entries: list[DescribedQuotas] | None = array(DescribedQuotas, "0+", nullable="0+")


class QuotaOperation(Message):
    key: str = string("0+")
    value: float = float64("0+")
    remove: bool = boolean("0+")


class AlteredEntity(Message):
    entity: list[QuotaEntity] = array(QuotaEntity, "0+")
    ops: list[QuotaOperation] = array(QuotaOperation, "0+")


class AlterClientQuotasRequest(Message, flexible="1+"):
    entries: list[AlteredEntity] = array(AlteredEntity, "0+")
    validate_only: bool = boolean("0+")


class AlterClientQuotasResult(Message):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    entity: list[QuotaEntity] = array(QuotaEntity, "0+")


class AlterClientQuotasResponse(Message, flexible="1+"):
    throttle_time_ms: int = int32("0+")
    entries: list[AlterClientQuotasResult] = array(AlterClientQuotasResult, "0+")
