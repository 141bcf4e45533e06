"""`kafkalite user`: the SCRAM users of a running cluster, or of a broker before its first start.

With --bootstrap-server the command uses Kafka's APIs. Otherwise it writes the users where the broker with these
settings will read them: into its journal, while it does not run, or into ZooKeeper, at any time. Passwords are typed,
or read from a file; never given on the command line, where others can see them. Only the salted password is sent to a
broker.
Source: org.apache.kafka.tools.ConfigCommand (users), KIP-554.
"""

from __future__ import annotations

import argparse
import asyncio
import getpass
import os
import sys
from collections.abc import Mapping, Sequence

from kafkalite.cli.command_config import (
    add_command_config,
    add_running_broker,
    add_timeout,
    add_yes,
    is_confirmed,
    security_of,
)
from kafkalite.cli.config_command import own_config
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.user_admin import add_user, list_users, remove_user
from kafkalite.common.errors import ConfigError
from kafkalite.common.output import aligned, complain, json_line, print_all, say
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.security.sasl.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MECHANISMS,
    new_credential,
    weakness,
)

_DEFAULT = "SCRAM-SHA-512"
_NAME_CHARS_MAX = 1_000
_PASSWORD_CHARS_MAX = 10_000
Users = Mapping[str, Mapping[str, int]]
"""The iterations by mechanism, by user."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The commands of `kafkalite user`."""
    commands = parser.add_subparsers(dest="user_command", metavar="COMMAND", required=True)
    for name, help_text in (
        ("add", "add a user, or change its password"),
        ("list", "list users with their mechanisms and iterations"),
        ("remove", "remove a user's credentials"),
    ):
        command = commands.add_parser(name, help=help_text, description=help_text[0].upper() + help_text[1:] + ".")
        if name != "list":
            command.add_argument("name", metavar="NAME")
            command.add_argument(
                "--mechanism",
                action="append",
                choices=tuple(MECHANISMS),
                help=f"may be repeated (default: {_DEFAULT if name == 'add' else 'all'})",
            )
        if name == "add":
            command.add_argument("--iterations", type=int, default=ITERATIONS_MIN, help=f"(default: {ITERATIONS_MIN})")
            command.add_argument(
                "--password-file", metavar="FILE", help="its first line is the password; - is standard input"
            )
        command.add_argument("--config", metavar="server.properties", help="the settings of the broker")
        add_running_broker(command, "a running broker")
        if name == "remove":
            add_yes(command)
        add_command_config(command)
        command.add_argument("--json", action="store_true", help="one JSON object a line")
        add_timeout(command, 10.0)


def run(options: argparse.Namespace) -> int:
    """Returns the exit code. Raises ConfigError."""
    if options.bootstrap_server is not None and options.config is not None:
        raise ConfigError("--bootstrap-server and --config: a running broker, or the settings of one; give only one")
    if options.bootstrap_server is None and options.command_config is not None:
        raise ConfigError("--command-config is for a running broker, which --bootstrap-server names")
    if options.user_command == "remove" and not is_confirmed(options, f"{options.name} can log in no longer."):
        return 1
    if options.bootstrap_server is not None:
        with ClusterClient(options.bootstrap_server, options.timeout, security_of(options)) as cluster:
            return _ask(cluster, options)
    return asyncio.run(_write(own_config(options.config, os.environ), options))


def _ask(cluster: ClusterClient, options: argparse.Namespace) -> int:
    if options.user_command == "list":
        return _show(list_users(cluster), options)
    if options.user_command == "add":
        name, mechanisms, iterations = _wanted(options)
        add_user(cluster, name, read_password(options), dict.fromkeys(mechanisms, iterations))
        return _done(options, mechanisms)
    there = list_users(cluster).get(options.name, {})
    removed = _to_remove(options, list(there))
    remove_user(cluster, options.name, removed)
    return _done(options, removed)


def _done(options: argparse.Namespace, mechanisms: Sequence[str]) -> int:
    """Says what was done, unless lines of JSON are wanted. Returns the exit code."""
    if not options.json:
        verb = "set" if options.user_command == "add" else "removed"
        say(f"credentials of {options.name} {verb}: {', '.join(mechanisms)}")
    return 0


async def _write(config: BrokerConfig, options: argparse.Namespace) -> int:
    from kafkalite.server.stored_users import stored_users  # brings the whole broker

    credentials = {}
    if options.user_command == "add":
        name, mechanisms, iterations = _wanted(options)
        password = read_password(options)
        credentials = {each: new_credential(each, password, iterations) for each in mechanisms}
    async with stored_users(config) as users:
        known = await users.all()
        if options.user_command == "list":
            shown = {
                name: {mechanism: one.iterations for mechanism, one in there.items()} for name, there in known.items()
            }
            return _show(shown, options)
        if options.user_command == "add":
            await users.put(name, credentials)
            return _done(options, mechanisms)
        removed = _to_remove(options, list(known.get(options.name, {})))
        await users.remove(options.name, frozenset(removed))
    return _done(options, removed)


def _wanted(options: argparse.Namespace) -> tuple[str, list[str], int]:
    """Name, mechanisms and iterations of a user to be added. Raises ConfigError."""
    name, iterations = options.name, options.iterations
    if not name or len(name) > _NAME_CHARS_MAX or not name.isprintable():
        raise ConfigError(f"a user's name has 1 to {_NAME_CHARS_MAX} characters that can be printed")
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ConfigError(f"--iterations {iterations} must be from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    return name, list(dict.fromkeys(options.mechanism or [_DEFAULT])), iterations


def _to_remove(options: argparse.Namespace, there: Sequence[str]) -> list[str]:
    wanted = list(dict.fromkeys(options.mechanism or there))
    missing = [each for each in wanted if each not in there]
    if not there or missing:
        what = f" for {missing[0]}" if there else ""
        raise ConfigError(f"{options.name!r} has no credentials{what}; `kafkalite user list` shows the users")
    return wanted


def read_password(options: argparse.Namespace) -> str:
    """The password from the file, or typed twice. Raises ConfigError."""
    if options.password_file == "-":
        password = sys.stdin.readline(_PASSWORD_CHARS_MAX + 2)
    elif options.password_file is not None:
        try:
            with open(options.password_file, encoding="utf-8") as file:
                password = file.readline(_PASSWORD_CHARS_MAX + 2)
        except (OSError, UnicodeDecodeError) as fault:
            why = getattr(fault, "strerror", None) or "it is not UTF-8"
            raise ConfigError(f"--password-file {options.password_file} cannot be read: {why}") from None
    elif sys.stdin.isatty():
        password = getpass.getpass(f"Password of {options.name}: ")
        if getpass.getpass("Again: ") != password:
            raise ConfigError("the two passwords are not the same")
    else:
        raise ConfigError("there is no terminal to ask for the password; give --password-file FILE, or - for stdin")
    password = password.rstrip("\r\n")
    if not password:
        raise ConfigError("the password is empty")
    if len(password) > _PASSWORD_CHARS_MAX:
        raise ConfigError(f"the password has more than {_PASSWORD_CHARS_MAX} characters")
    if weak := weakness(options.name, password):
        complain(f"warning: the password {weak}")
    return password


def _show(users: Users, options: argparse.Namespace) -> int:
    rows = [(name, mechanism, count) for name, there in users.items() for mechanism, count in there.items()]
    if options.json:
        for name, mechanism, count in rows:
            print(json_line({"user": name, "mechanism": mechanism, "iterations": count}))
        return 0
    table = [("USER", "MECHANISM", "ITERATIONS"), *((name, mechanism, str(count)) for name, mechanism, count in rows)]
    print_all(aligned(table, left=(0, 1)))
    return 0
