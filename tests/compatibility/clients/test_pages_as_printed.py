"""Blocks of the README and of docs/ that a newcomer copies: run as they stand there, or held to what there is."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalite.cli import main
from kafkalite.cli.main import main as run_main
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.console.single_sign_on import PROPERTIES
from kafkalite.testing import Broker
from tests.support.places import ROOT
from tests.support.wait import DEADLINE_S

PAGES = ["README.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md"))]

OF_CLIENTS = ("security.protocol", "sasl.mechanism", "sasl.jaas.config", "sasl.login.callback.handler.class")


def blocks(page: str, language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    return [text for named, text in fenced if named == language]


def block(page: str, language: str, part: str) -> str:
    """The one with this part."""
    (found,) = [text for text in blocks(page, language) if part in text]
    return found


def test_the_test_of_the_readme_passes(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(block("README.md", "python", "def test_an_order_is_announced"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_orders.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_cluster_of_the_readme_elects_and_mends() -> None:
    text = block("README.md", "python", "with Cluster(3) as cluster")
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stderr


def commands(page: str) -> list[list[str]]:
    """The commands of kafkalite in the blocks of a page, without comments and redirections."""
    found = []
    for text in [*blocks(page, ""), *blocks(page, "sh")]:
        for line in text.replace("\\\n", " ").splitlines():
            for part in re.split(r"\s\|\s", line):
                words = re.split(r"\s+[#<>&]", part.strip())[0]
                if words.startswith("kafkalite ") and not words.startswith("kafkalite is ") and "[" not in words:
                    found.append([word.strip("'\"") for word in re.findall(r"'[^']*'|\S+", words)[1:]])
    return found


@pytest.mark.parametrize(
    "words",
    [words for page in PAGES for words in commands(page)],
    ids=" ".join,
)
def test_a_command_of_a_page_has_these_options(words: list[str]) -> None:
    line = [word for word in words if word not in ("...",)]
    main.command_parser(line).parse_args(line)


def test_the_topic_of_the_readme_is_created(capsys: pytest.CaptureFixture[str]) -> None:
    (words,) = [words for words in commands("README.md") if words[:2] == ["topic", "create"]]
    with Broker() as broker:
        assert run_main([*words, "-b", broker.bootstrap_servers]) == 0, capsys.readouterr().err
        assert broker.topics == {"orders": 6}


@pytest.mark.parametrize("page", PAGES)
def test_python_on_a_page_is_python(page: str) -> None:
    for text in blocks(page, "python"):
        compile(text, page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("page", PAGES)
def test_properties_on_a_page_are_settings(page: str) -> None:
    for text in blocks(page, "properties"):
        for line in text.replace("\\\n", " ").splitlines():
            if line and not line.startswith("#"):
                name = re.sub(r"^listener\.name\.[^.]+\.(?:(?:plain|scram-sha-\d+|oauthbearer|gssapi)\.)?", "", line)
                assert name.partition("=")[0] in {*BrokerConfig.by_name, *OF_CLIENTS, *PROPERTIES}, line


def test_a_message_of_the_page_of_troubles_is_printed_by_the_package() -> None:
    """Each part between backquotes that is a sentence stands in the package's source."""
    source = "".join(path.read_text() for path in (ROOT / "kafkalite").rglob("*.py"))
    text = (ROOT / "docs/troubleshooting.md").read_text().partition("## From clients")[0]
    for part in re.findall(r"`([a-z ]+(?: [a-z]+){2,}[^`]*)`", text):
        assert part.strip() in source, part
