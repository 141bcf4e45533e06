"""`kafkalite mirror`: the operator's mistakes, a line for each."""

from __future__ import annotations

import pytest

from kafkalite.cli.main import main


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--from", "west", "--to", "b:1"], "--from west: give ALIAS=..., such as west=west.example.com:9092"),
        (["--from", "w=a:1", "--from", "w=b:1", "--to", "c:1"], "--from w=... is given twice"),
        (["--from", "a.b=a:1", "--to", "c:1"], "the alias 'a.b' must be a name without a dot"),
        (["--from", "target=a:1", "--to", "c:1"], "the target has the alias 'target' of a source; give it another one"),
        (["--from", "w=a:1", "--to", "c:1", "--topics", "("], "is no regular expression"),
        (["--from", "w=a:1", "--to", "c:1", "--from-config", "x=f"], "--from-config x=...: there is no --from x=..."),
        (["--from", "w=a", "--to", "c:1"], "'a' must be HOST:PORT, such as localhost:9092"),
        (["--from", "w=a:1", "--to", "c"], "'c' must be HOST:PORT, such as localhost:9092"),
        (["--from", "w=a:1", "--to", "c:1", "--metrics", "x"], "--metrics x: "),
    ],
)
def test_mistakes(capsys: pytest.CaptureFixture[str], arguments: list[str], why: str) -> None:
    assert main(["mirror", *arguments]) == 1
    said = capsys.readouterr().err
    assert why in said and said.count("\n") == 1
