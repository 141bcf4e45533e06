"""The command line: finds the module of a command and runs it.

Only the module of the named command is imported: a broker is to be ready a quarter of a second after the process
started.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kafkalite.cli.exit_code import exit_code
from kafkalite.common.output import version

if TYPE_CHECKING:
    import argparse

COMMANDS = {
    "serve": "run a broker",
    "health": "check whether a broker serves, for health checks",
    "log": "inspect data directories: dump, verify, count",
    "read": "write records of topics as Parquet, Arrow, CSV or JSON lines, from the files",
    "topic": "topics: list, create, delete, alter, describe",
    "group": "consumer groups: list, describe, reset, delete",
    "txn": "transactions, with hanging ones to find and abort: list, describe, describe-producers, abort, find-hanging",
    "doctor": "how clients connect to a broker, and insecure settings",
    "produce": "write lines as records",
    "consume": "print the records of topics, and new ones as they arrive",
    "mirror": "copy topics of other clusters to one, exactly once, until it is stopped",
    "top": "topics, groups and brokers with their rates, live",
    "user": "users that log in by SCRAM: add, list, remove",
    "acl": "access control lists: list, add, remove",
    "quota": "client quotas: list, set, remove",
    "cleaner": "show and start log compaction: status, run",
    "zookeeper": "run a small ZooKeeper for brokers and clients on this machine",
    "console": "topics, messages, groups and the brokers in the browser",
    "completion": "print the script by which bash, zsh or fish completes these commands",
    "config": "settings of topics and brokers, or server.properties with every setting, its meaning and default",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Returns the exit code."""
    arguments = _as_options(sys.argv[1:] if arguments is None else arguments)
    _open_missing_streams()
    if "_ARGCOMPLETE" in os.environ:
        return _complete()
    try:
        return exit_code(lambda: _run(arguments))
    finally:
        gc.enable()


def _as_options(arguments: Sequence[str]) -> Sequence[str]:
    """`version` and `help [COMMAND]`, as other tools have them, as the options of this one."""
    match list(arguments[:1]):
        case ["version"]:
            return ["--version", *arguments[1:]]
        case ["help"]:
            return [*arguments[1:], "--help"]
    return arguments


def _run(arguments: Sequence[str]) -> int:
    parser = command_parser(arguments)
    options = parser.parse_args(arguments)
    if options.version:
        print(f"kafkalite {version()}")
        return 0
    if options.command is None:
        parser.print_help(sys.stderr)
        return 2
    code: int = _module(options.command).run(options)
    return code


def _open_missing_streams() -> None:
    """Opens /dev/null for each standard stream that is closed (`<&-`, `>&-`). Text that the encoding of the terminal
    does not have is escaped."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (as long as the process)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _complete() -> int:
    """Answers a shell that completes a line."""
    from kafkalite.cli.completion_command import complete, words_of_line

    words = words_of_line()
    if words is not None:
        complete(command_parser(words, only_named=False))  # "top" may become "topic"
    return 1


def command_parser(arguments: Sequence[str], *, only_named: bool = True) -> argparse.ArgumentParser:
    """The parser of all commands, with the options of the one that is named in `arguments`. Unless `only_named` is
    false, the others are left out if that is the first argument: each takes 0.2 ms, and nothing asks for them."""
    from kafkalite.cli.command_parser import CommandParser

    parser = CommandParser(prog="kafkalite", description="A Kafka-compatible broker in pure Python.")
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    # argparse would format its usage to find out `prog`, for which it imports shutil
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", prog=parser.prog)
    named = next((argument for argument in arguments if argument in COMMANDS), None)
    is_first = only_named and named is not None and named == arguments[0]
    for name, help_text in COMMANDS.items():
        if is_first and name != named:
            continue
        command = commands.add_parser(name, help=help_text)
        if name == named:
            _module(name).add_arguments(command)
    return parser


def _module(command: str) -> Any:
    """The module of a command: it has `add_arguments` and `run`."""
    module: Any
    match command:
        case "serve":
            gc.disable()  # until it serves: collections would take 10 of 140 ms and free nothing
            from kafkalite.cli import serve_command as module
        case "health":
            from kafkalite.cli import health_command as module
        case "log":
            from kafkalite.cli import log_command as module
        case "read":
            from kafkalite.cli import read_command as module
        case "topic":
            from kafkalite.cli import topic_command as module
        case "group":
            from kafkalite.cli import group_command as module
        case "txn":
            from kafkalite.cli import txn_command as module
        case "doctor":
            from kafkalite.cli import doctor_command as module
        case "produce":
            from kafkalite.cli import produce_command as module
        case "consume":
            from kafkalite.cli import consume_command as module
        case "mirror":
            from kafkalite.cli import mirror_command as module
        case "top":
            from kafkalite.cli import top_command as module
        case "user":
            from kafkalite.cli import user_command as module
        case "acl":
            from kafkalite.cli import acl_command as module
        case "quota":
            from kafkalite.cli import quota_command as module
        case "cleaner":
            from kafkalite.cli import cleaner_command as module
        case "zookeeper":
            from kafkalite.cli import zookeeper_command as module
        case "console":
            from kafkalite.cli import console_command as module
        case "completion":
            from kafkalite.cli import completion_command as module
        case "config":
            from kafkalite.cli import config_command as module
    return module
