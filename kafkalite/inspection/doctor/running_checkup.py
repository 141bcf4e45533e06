"""The checkup of a broker that runs: a listener is met as a stranger meets it, and the broker asked for its settings.

A stranger learns the protocol, the SASL mechanisms and the certificate. A broker that lets us describe its configs
tells its listeners and most of its other settings; secrets it keeps to itself.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.client.blocking_client import BlockingClient, Unanswered, parse_address
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.logins import ClientSecurity
from kafkalite.common.errors import ErrorCode
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.inspection.doctor.exposure import Endpoint, Finding, host_of
from kafkalite.inspection.doctor.settings_checkup import NO_CRYPTOGRAPHY, can_look_at_certificates, certificate_findings
from kafkalite.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkalite.protocol.messages.sasl import SaslHandshakeRequest

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_NO_MECHANISM = "?"  # a broker that has SASL answers with those that it has
_BROKER = 4  # the type of the resource
_DESCRIBE_VERSION = 4
_DEFAULT_CONFIG = 5  # the source of a value that nobody has set


class Met(NamedTuple):
    """A listener as a stranger sees it. `certificate`: its own, as DER."""

    endpoint: Endpoint
    certificate: bytes | None


def meet(address: str, timeout_s: float) -> Met:
    """Raises Unanswered if nobody is there."""
    host, port = parse_address(address)
    try:
        socket.create_connection((host, port), timeout_s).close()
    except OSError as error:
        raise Unanswered(f"cannot reach {address}: {error.strerror or error}") from None
    context = _trusting_context()
    certificate = _certificate(context, host, port, timeout_s)
    security = ClientSecurity(context) if certificate is not None else None
    transport = "SSL" if certificate is not None else "PLAINTEXT"
    try:
        with BlockingClient(address, timeout_s, security) as client:
            answer = client.ask(SaslHandshakeRequest(mechanism=_NO_MECHANISM), 1)
    except Unanswered:
        if certificate is None:
            raise
        return Met(Endpoint("", transport, address, client_auth="required"), certificate)  # it wants to see ours
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        return Met(Endpoint("", f"SASL_{transport}", address, mechanisms=tuple(answer.mechanisms)), certificate)
    return Met(Endpoint("", transport, address), certificate)


def met_findings(met: Met, now_s: float) -> Iterator[Finding]:
    """The warnings about its certificate."""
    if met.certificate is None:
        return
    if not can_look_at_certificates():
        yield NO_CRYPTOGRAPHY
        return
    address = met.endpoint.address
    yield from certificate_findings(address, [_parsed(met.certificate)], [host_of(address)], now_s)


def broker_settings(cluster: ClusterClient, broker_id: int) -> BrokerConfig:
    """The settings of a broker, as far as it tells them. Raises Unanswered, ConfigError."""
    client = cluster.client(broker_id)
    resource = DescribeConfigsResource(resource_type=_BROKER, resource_name=str(broker_id), configuration_keys=None)
    (result,) = client.ask(DescribeConfigsRequest(resources=[resource]), _DESCRIBE_VERSION).results
    if result.error_code:
        raise Unanswered(f"broker {broker_id} does not tell its settings: {result.error_message or result.error_code}")
    return BrokerConfig.load(
        {
            each.name: each.value
            for each in result.configs
            if each.value is not None and each.config_source != _DEFAULT_CONFIG
        }
    )


def _certificate(context: ssl.SSLContext, host: str, port: int, timeout_s: float) -> bytes | None:
    try:
        with (
            socket.create_connection((host, port), timeout_s) as raw,
            context.wrap_socket(raw, server_hostname=host) as tls,
        ):
            return tls.getpeercert(binary_form=True)
    except OSError:
        return None


def _trusting_context() -> ssl.SSLContext:
    """We send no secrets, and want to see every certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _parsed(der: bytes) -> Certificate:
    from cryptography import x509

    return x509.load_der_x509_certificate(der)
