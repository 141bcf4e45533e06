"""`kafkalite completion`: the script by which a shell completes our commands, their options, topics and groups.

    source <(kafkalite completion bash)          # in ~/.bashrc; for zsh the same in ~/.zshrc, after compinit
    kafkalite completion fish | source           # in ~/.config/fish/config.fish

The script runs this program, through the package argcomplete (the extra `console`). Names of topics and groups come
from the broker that the typed line names, if it answers within a second.
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from kafkalite.cli.command_config import security_of
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.group_admin import GroupAdmin
from kafkalite.common.errors import ConfigError, Unanswered
from kafkalite.common.names import INTERNAL_TOPICS

SHELLS = ("bash", "zsh", "fish")
_TIMEOUT_S = 1.0
_TOPICS, _GROUPS = ("topic", "topics"), ("group", "groups")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS)


def run(options: argparse.Namespace) -> int:
    """Returns the exit code. Raises ConfigError."""
    print(_argcomplete().shellcode(["kafkalite"], shell=options.shell))
    return 0


def words_of_line() -> list[str] | None:
    """The words after our name in the line that a shell wants completed; None if this is no completion."""
    line = os.environ.get("COMP_LINE")
    if "_ARGCOMPLETE" not in os.environ or line is None:
        return None
    try:
        return shlex.split(line)[1:]
    except ValueError:  # an open quote
        return line.split()[1:]


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell; does not return. Raises ConfigError without argcomplete."""
    argcomplete = _argcomplete()
    _equip(parser)
    argcomplete.autocomplete(parser, always_complete_options="long")


def _argcomplete() -> Any:
    try:
        import argcomplete  # an extra
    except ImportError:
        raise ConfigError("completion needs the package argcomplete: pip install 'kafkalite[console]'") from None
    return argcomplete


def _equip(parser: argparse.ArgumentParser) -> None:
    """Adds completers to the arguments that are names of topics and groups."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in dict.fromkeys(action.choices.values()):
                _equip(command)
        elif action.dest in _TOPICS and action.choices is None:
            action.completer = _completer(_topics)  # type: ignore[attr-defined]
        elif action.dest in _GROUPS and action.choices is None:
            action.completer = _completer(_groups)  # type: ignore[attr-defined]


def _completer(names: Callable[[ClusterClient], Sequence[str]]) -> Callable[..., Sequence[str]]:
    def completer(prefix: str, parsed_args: argparse.Namespace, **_: object) -> Sequence[str]:
        if getattr(parsed_args, "bootstrap_server", None) is None:
            return ()
        try:
            with ClusterClient(parsed_args.bootstrap_server, _TIMEOUT_S, security_of(parsed_args)) as cluster:
                return [name for name in names(cluster) if name.startswith(prefix) and name.isprintable()]
        except (Unanswered, ConfigError):
            return ()

    return completer


def _topics(cluster: ClusterClient) -> Sequence[str]:
    return sorted(cluster.topics - INTERNAL_TOPICS)


def _groups(cluster: ClusterClient) -> Sequence[str]:
    return sorted(group.group_id for group in GroupAdmin(cluster, _TIMEOUT_S).list_groups())
