"""Pages of the site that are made from the code when it is built: settings, commands, the console's HTTP API.

A hook of MkDocs (https://www.mkdocs.org/user-guide/configuration/#hooks).
"""

from __future__ import annotations

import argparse
import html
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

from kafkalite.cli.main import COMMANDS, command_parser
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.group_config import GroupConfig
from kafkalite.config.settings import Setting
from kafkalite.config.topic_config import TopicConfig
from kafkalite.console.routes import ROUTES, document

WIDTH = "100"
OF_THE_SOURCE = re.compile(r"\[([^\]]+)\]\(\.\./((?:config|examples)/[^)]+)\)")


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages."""
    from mkdocs.structure.files import File

    for name, text in pages().items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Files of the source that a page links to are not part of the site: their paths are named."""
    return OF_THE_SOURCE.sub(r"\1 (`\2` of the source)", markdown)


def pages() -> dict[str, str]:
    return {"settings": settings_page(), "commands": commands_page(), "http": http_page()}


def settings_page() -> str:
    lines = [
        "# Settings",
        "",
        "Names, types and defaults are Apache Kafka's; [differences](../differences.md) has the exceptions. A setting",
        "comes from a file, from the environment (`KAFKA_LOG_SEGMENT_BYTES`) or from `--override`; the last one wins.",
        "**Dynamic** ones can be changed while the broker runs, by `kafkalite config` or `kafka-configs.sh`.",
    ]
    for title, settings in (
        ("Of a broker", BrokerConfig.settings),
        ("Of a topic", TopicConfig.settings),
        ("Of a group", GroupConfig.settings),
    ):
        lines += ["", f"## {title}", *_settings(settings)]
    return "\n".join(lines) + "\n"


def _settings(settings: Iterable[Setting]) -> Iterator[str]:
    section = None
    for setting in settings:
        if section is None or setting.section != section:
            section = setting.section
            yield from ("", *([f"### {section}", ""] if section else []), "| setting | default | |", "|---|---|---|")
        default = f"`{setting.default_text}`" if setting.default_text not in (None, "") else ""
        notes = [setting.doc, f"({setting.allowed()})" if setting.allowed() else ""]
        notes.append("**Dynamic.**" if setting.dynamic else "")
        notes.append("Nothing acts on it yet." if setting.idle else "")
        yield f"| `{setting.name}` | {default} | {_cell(' '.join(filter(None, notes)))} |"


def commands_page() -> str:
    """`--help` of every command, as it is printed."""
    os.environ["COLUMNS"] = WIDTH
    lines = ["# Commands", "", "The output of `--help`. [In the terminal](../terminal.md) has examples."]
    for name in COMMANDS:
        (parser,) = [one for below, one in _subcommands(command_parser([name])) if below == name]
        lines += ["", f"## kafkalite {name}", "", "```text", parser.format_help().rstrip(), "```"]
        for below, sub in _subcommands(parser):
            lines += ["", f"### kafkalite {name} {below}", "", "```text", sub.format_help().rstrip(), "```"]
    return "\n".join(lines) + "\n"


def _subcommands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def http_page() -> str:
    lines = [
        "# HTTP API of the console",
        "",
        "`/api/openapi.json` of a running console describes it to programs. Changes need `--write`, and the token that",
        "`/api/session` gives.",
        "",
        "| | |",
        "|---|---|",
    ]
    for path, methods in document(ROUTES, "")["paths"].items():
        for method, about in methods.items():
            lines.append(f"| `{method.upper()} {path}` | {_cell(about['summary'])} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return html.escape(text, quote=False).replace("|", "\\|").replace("[", "&#91;")
