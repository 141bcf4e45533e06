"""SCRAM users of a running cluster, for an administrator. Only salted passwords are sent to a broker.

Source: org.apache.kafka.clients.admin.KafkaAdminClient (describe and alterUserScramCredentials), KIP-554.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Mapping

from kafkalite.client.blocking_client import name_of_error
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.common.errors import Unanswered
from kafkalite.protocol.messages import entity_configs as wire
from kafkalite.security.sasl.scram import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISMS, SALT_BYTES, weakness

__all__ = ["ITERATIONS_MAX", "ITERATIONS_MIN", "MECHANISMS", "add_user", "list_users", "remove_user", "weakness"]

_NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_VERSION = 0


def list_users(cluster: ClusterClient) -> dict[str, dict[str, int]]:
    """The iterations of each user's credentials, by mechanism. Raises Unanswered."""
    answer = cluster.first.ask(wire.DescribeUserScramCredentialsRequest(users=None), _VERSION)
    if answer.error_code:
        raise Unanswered(f"the users cannot be listed: {answer.error_message or name_of_error(answer.error_code)}")
    names = {number: name for name, number in _NUMBERS.items()}
    return {
        each.user: {names.get(info.mechanism, "unknown"): info.iterations for info in each.credential_infos}
        for each in sorted(answer.results, key=lambda each: each.user)
    }


def add_user(cluster: ClusterClient, name: str, password: str, iterations: Mapping[str, int]) -> None:
    """Sets the password for these mechanisms, each with its iterations. Raises Unanswered."""
    upsertions = []
    for mechanism, count in iterations.items():
        salt = secrets.token_bytes(SALT_BYTES)
        salted = hashlib.pbkdf2_hmac(MECHANISMS[mechanism], password.encode(), salt, count)
        upsertions.append(
            wire.ScramCredentialUpsertion(
                name=name, mechanism=_NUMBERS[mechanism], iterations=count, salt=salt, salted_password=salted
            )
        )
    _alter(cluster, wire.AlterUserScramCredentialsRequest(upsertions=upsertions))


def remove_user(cluster: ClusterClient, name: str, mechanisms: Collection[str]) -> None:
    """Removes the credentials of these mechanisms. Raises Unanswered."""
    deletions = [wire.ScramCredentialDeletion(name=name, mechanism=_NUMBERS[each]) for each in mechanisms]
    _alter(cluster, wire.AlterUserScramCredentialsRequest(deletions=deletions))


def _alter(cluster: ClusterClient, request: wire.AlterUserScramCredentialsRequest) -> None:
    """Sends the request to the controller, as Apache Kafka requires. Raises Unanswered."""
    for each in cluster.controller().ask(request, _VERSION).results:
        if each.error_code:
            why = each.error_message or name_of_error(each.error_code)
            raise Unanswered(f"{each.user} stays as it was: {why}")
