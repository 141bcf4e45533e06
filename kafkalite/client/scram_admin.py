"""The users of SCRAM of a cluster that runs, by Kafka's APIs: no password travels, only the salted one.

Source: org.apache.kafka.clients.admin.KafkaAdminClient (alterUserScramCredentials), KIP-554.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Mapping

from kafkalite.client.blocking_client import Unanswered, name_of_error
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.protocol.messages.entity_configs import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kafkalite.security.sasl.scram import MECHANISMS, SALT_BYTES

_NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_VERSION = 0


def list_users(cluster: ClusterClient) -> dict[str, dict[str, int]]:
    """The iterations of each user's credentials, by mechanism. Raises Unanswered."""
    answer = cluster.first.ask(DescribeUserScramCredentialsRequest(users=None), _VERSION)
    if answer.error_code:
        raise Unanswered(f"the users cannot be listed: {answer.error_message or name_of_error(answer.error_code)}")
    names = {number: name for name, number in _NUMBERS.items()}
    return {
        each.user: {names.get(info.mechanism, "unknown"): info.iterations for info in each.credential_infos}
        for each in sorted(answer.results, key=lambda each: each.user)
    }


def add_user(cluster: ClusterClient, name: str, password: str, iterations: Mapping[str, int]) -> None:
    """Sets the password for these mechanisms, with so many iterations. Raises Unanswered."""
    upsertions = []
    for mechanism, count in iterations.items():
        salt = secrets.token_bytes(SALT_BYTES)
        salted = hashlib.pbkdf2_hmac(MECHANISMS[mechanism], password.encode(), salt, count)
        upsertions.append(
            ScramCredentialUpsertion(
                name=name, mechanism=_NUMBERS[mechanism], iterations=count, salt=salt, salted_password=salted
            )
        )
    _alter(cluster, AlterUserScramCredentialsRequest(upsertions=upsertions))


def remove_user(cluster: ClusterClient, name: str, mechanisms: Collection[str]) -> None:
    """Removes the credentials of these mechanisms. Raises Unanswered."""
    deletions = [ScramCredentialDeletion(name=name, mechanism=_NUMBERS[each]) for each in mechanisms]
    _alter(cluster, AlterUserScramCredentialsRequest(deletions=deletions))


def _alter(cluster: ClusterClient, request: AlterUserScramCredentialsRequest) -> None:
    """Apache Kafka has this answered by the controller alone."""
    for each in cluster.controller().ask(request, _VERSION).results:
        if each.error_code:
            why = each.error_message or name_of_error(each.error_code)
            raise Unanswered(f"{each.user} stays as it was: {why}")
