"""The parser of the command line: a wrong option ends with the usage of its command and the nearest name."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, NoReturn

_CHOICE = re.compile(r"invalid choice: '([^']*)'")


class CommandParser(argparse.ArgumentParser):
    """A parser whose subparsers are of the same kind, and refuse what they do not know themselves."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        """Prints the usage of this command and the fault, and exits with 2."""
        super().error(message + self._suggestion(message))

    def _suggestion(self, message: str) -> str:
        from difflib import get_close_matches

        if (choice := _CHOICE.search(message)) is not None:
            found = get_close_matches(choice[1], self._commands(), 1)
        elif message.startswith("unrecognized arguments: -"):
            word = message.split()[2].partition("=")[0]
            found = get_close_matches(word, self._option_string_actions, 1)
        else:
            return ""
        return f"; did you mean {found[0]}?" if found else ""

    def _commands(self) -> list[str]:
        return [
            str(name)
            for action in self._actions
            for name in (action.choices or () if isinstance(action, argparse._SubParsersAction) else ())
        ]
