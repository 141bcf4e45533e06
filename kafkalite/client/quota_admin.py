"""Quotas of a running cluster, for an administrator.

Source: org.apache.kafka.clients.admin.KafkaAdminClient (describeClientQuotas, alterClientQuotas), KIP-546.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkalite.client.blocking_client import name_of_error
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.common.errors import Unanswered
from kafkalite.protocol.messages import entity_configs as wire

_VERSION = 1


def list_quotas(cluster: ClusterClient) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    """Each entity with its quotas: names by user, client-id and ip, of which None is the default of all others. Raises
    Unanswered."""
    answer = cluster.first.ask(wire.DescribeClientQuotasRequest(components=[], strict=False), _VERSION)
    if answer.error_code:
        raise Unanswered(f"the quotas cannot be read: {answer.error_message or name_of_error(answer.error_code)}")
    return [
        ({one.entity_type: one.entity_name for one in each.entity}, {one.key: one.value for one in each.values})
        for each in answer.entries or ()
    ]


def alter_quotas(cluster: ClusterClient, entity: Mapping[str, str | None], changes: Mapping[str, float | None]) -> None:
    """Sets quotas of an entity; None removes one. Raises Unanswered."""
    altered = wire.AlteredEntity(
        entity=[wire.QuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[wire.QuotaOperation(key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()],
    )
    answer = cluster.controller().ask(wire.AlterClientQuotasRequest(entries=[altered]), _VERSION)
    for one in answer.entries:
        if one.error_code:
            raise Unanswered(f"the quotas stay as they were: {one.error_message or name_of_error(one.error_code)}")
