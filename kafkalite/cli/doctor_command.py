"""`kafkalite doctor`: how clients connect, with settings to be copied, and warnings of anything open to the world.

It checks the settings that `kafkalite serve` would use with the same file and environment, or a running broker. The
exit code is 1 if there are warnings. With --client stdout gets only that client's settings.
"""

from __future__ import annotations

import argparse
import os
import socket
import time
from collections.abc import Iterable, Iterator, Sequence

from kafkalite.cli.command_config import add_command_config, add_running_broker, add_timeout, security_of
from kafkalite.cli.config_command import own_config
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.common.errors import ConfigError, Unanswered
from kafkalite.common.output import complain, say
from kafkalite.inspection.doctor.client_properties import CLIENTS, client_properties
from kafkalite.inspection.doctor.exposure import Endpoint, Finding, endpoints_of, exposures, host_of

_PREFERRED = ("SCRAM-SHA-512", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI", "PLAIN")
_TITLES = {
    "java": "Java, and --command-config of our commands",
    "librdkafka": "librdkafka",
    "kafka-python": "kafka-python",
}


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of `kafkalite doctor`."""
    command.description = "Show how clients connect to each listener, and warn of anything open to the world."
    command.add_argument("config", nargs="?", metavar="server.properties", help="the settings of the broker")
    command.add_argument("--config", dest="config_option", metavar="FILE", help="the same as server.properties")
    add_running_broker(command, "check a running broker")
    add_command_config(command)
    command.add_argument("--listener", metavar="NAME", help="only this listener")
    command.add_argument("--mechanism", help="the SASL mechanism of the settings (default: the safest that is enabled)")
    command.add_argument("--client", choices=CLIENTS, help="print only the settings of this client")
    command.add_argument("--user", default="alice", metavar="NAME", help="the user in these settings (default: alice)")
    command.add_argument("--ca", metavar="FILE", help="the authorities that clients trust (default: the broker's)")
    add_timeout(command, 5.0)


def run(options: argparse.Namespace) -> int:
    """Returns the exit code. Raises ConfigError."""
    options.config = options.config_option or options.config
    endpoints, findings = _running(options) if options.bootstrap_server is not None else _settings(options)
    if options.ca is not None:
        endpoints = [one._replace(ca=options.ca) for one in endpoints]
    if options.listener is not None:
        endpoints = [one for one in endpoints if one.listener.upper() == options.listener.upper()]
        if not endpoints:
            raise ConfigError(f"--listener {options.listener}: there is no such listener")
    if options.client is not None:
        chosen = endpoints[0]
        text = client_properties(options.client, chosen, mechanism_for(chosen, options.mechanism), options.user)
        say(*text.splitlines())
        return 0
    for one in endpoints:
        say(*_shown(one, options))
    say(*_finding_lines(findings))
    return 1 if findings else 0


def _settings(options: argparse.Namespace) -> tuple[list[Endpoint], list[Finding]]:
    from kafkalite.inspection.doctor.checkup import settings_findings

    config = own_config(options.config, os.environ)
    endpoints = endpoints_of(config, socket.gethostname())
    return endpoints, list(settings_findings(config, endpoints, options.config, time.time()))


def _running(options: argparse.Namespace) -> tuple[list[Endpoint], list[Finding]]:
    """The listener that was named, and those in the settings of its brokers, if the caller may read them."""
    from kafkalite.inspection.doctor.checkup import broker_settings, probe_findings, probe_listener

    if options.config is not None:
        raise ConfigError("a running broker, or the settings of one: give only one of --bootstrap-server and a file")
    address = options.bootstrap_server.split(",")[0].strip()
    probed = probe_listener(address, options.timeout)
    endpoints, findings = [probed.endpoint], list(probe_findings(probed, time.time()))
    try:
        with ClusterClient(options.bootstrap_server, options.timeout, security_of(options)) as cluster:
            for broker_id, place in sorted(cluster.brokers.items()):
                config = broker_settings(cluster, broker_id)
                own = endpoints_of(config, host_of(place))
                if not endpoints[0].listener:
                    endpoints = sorted(own, key=lambda one: one.port != probed.endpoint.port)  # the one that was named
                findings += [
                    Finding(f"broker {broker_id}: {each.fault}", each.remedy) for each in exposures(config, own)
                ]
    except Unanswered as error:
        complain(f"only the listener at {address} is checked: {error}")
    return endpoints, findings


def mechanism_for(endpoint: Endpoint, wanted: str | None) -> str | None:
    """The mechanism of the printed settings; None without SASL. Raises ConfigError."""
    if not endpoint.has_sasl:
        return None
    if wanted is not None:
        if wanted.upper() not in endpoint.mechanisms:
            raise ConfigError(f"--mechanism {wanted}: enabled there are {', '.join(endpoint.mechanisms)}")
        return wanted.upper()
    known = (each for each in _PREFERRED if each in endpoint.mechanisms)
    return next(known, endpoint.mechanisms[0] if endpoint.mechanisms else "PLAIN")


def _shown(endpoint: Endpoint, options: argparse.Namespace) -> Iterator[str]:
    mechanism = mechanism_for(endpoint, options.mechanism)
    by = f", by {', '.join(endpoint.mechanisms)}" if endpoint.mechanisms else ""
    name = f"listener {endpoint.listener}: " if endpoint.listener else ""
    yield f"{name}{endpoint.protocol} at {endpoint.address}{by}"
    if endpoint.advertised not in (None, endpoint.address):
        yield f"  its advertised address is {endpoint.advertised}"
    if endpoint.client_auth != "none":
        yield f"  clients' certificates are {endpoint.client_auth}"
    for kind in CLIENTS:
        yield ""
        yield f"  {_TITLES[kind]}{f' ({mechanism})' if mechanism else ''}:"
        for line in client_properties(kind, endpoint, mechanism, options.user).splitlines():
            yield f"    {line}"
    yield ""


def _finding_lines(findings: Sequence[Finding]) -> Iterable[str]:
    if not findings:
        return ["No warnings."]
    count = f"{len(findings)} warnings" if len(findings) > 1 else "1 warning"
    return [
        f"{count}:",
        *(line for each in dict.fromkeys(findings) for line in (f"! {each.fault}", f"  {each.remedy}")),
    ]
