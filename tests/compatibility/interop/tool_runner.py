"""Kafka's tools in one JVM for many calls: a second of start for all of them instead of one for each."""

from __future__ import annotations

from typing import NamedTuple

from tests.compatibility.interop.asked_program import AskedProgram
from tests.compatibility.interop.java_tools import SOURCES, java_command, tool_class


class Printed(NamedTuple):
    """The output of a tool, both kinds in the order of printing, and its exit code."""

    text: str
    code: int


class ToolRunner(AskedProgram):
    """`runner.run("GroupsCommand", "--list")` at a broker."""

    def __init__(self, version: str, bootstrap: str) -> None:
        self.version = version
        self.bootstrap = bootstrap
        super().__init__([*java_command(version), str(SOURCES / "ToolRunner.java")])

    def run(self, tool: str, *arguments: object) -> Printed:
        """Raises `Failed` if the tool throws."""
        words = [tool_class(self.version, tool), "--bootstrap-server", self.bootstrap, *map(str, arguments)]
        text, code = self.ask(words=words)
        return Printed(text.decode(), int(code))
