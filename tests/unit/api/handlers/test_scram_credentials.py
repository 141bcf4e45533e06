"""DescribeUserScramCredentials over what stands in the cluster, sense or none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kafkalite.api.handlers.entity_configs import EntityConfigApi
from kafkalite.api.request.request_context import RequestContext
from kafkalite.protocol.messages.entity_configs import DescribeUserScramCredentialsRequest
from kafkalite.security.sasl.scram import new_credential


def test_a_credential_that_makes_no_sense_is_none() -> None:
    good = new_credential("SCRAM-SHA-256", "pencil", 5000).text
    configs = {
        "users/alice": {"SCRAM-SHA-256": good, "SCRAM-SHA-512": "nonsense"},
        "users/bob": {"SCRAM-SHA-256": "salt=,"},
        "users/alice/clients/x": {"SCRAM-SHA-256": good},
    }
    metadata: Any = SimpleNamespace(entity_configs=configs)
    api = EntityConfigApi(runtime=None, metadata=metadata)  # type: ignore[arg-type]
    context = RequestContext(None, 0, None)  # type: ignore[arg-type]
    answer = api.describe_user_scram_credentials(DescribeUserScramCredentialsRequest(users=None), context)
    (alice,) = answer.results
    assert alice.user == "alice" and [(each.mechanism, each.iterations) for each in alice.credential_infos] == [
        (1, 5000)
    ]
