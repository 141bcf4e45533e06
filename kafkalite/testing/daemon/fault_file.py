"""Faults for a daemon: from a file, a list in JSON, or in YAML where PyYAML is installed.

    - fault: error
      api: PRODUCE
      error: NOT_LEADER_OR_FOLLOWER
      topic: orders
      times: 2
    - {fault: delay, seconds: 0.5, api: FETCH, times: null}

`fault` names a method of `Faults`, and the rest are its arguments. Or one of them from the command line:

    error,api=PRODUCE,error=NOT_LEADER_OR_FOLLOWER,topic=orders,times=2
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalite.common.errors import ConfigError
from kafkalite.common.text import read_json
from kafkalite.testing.faults.faults import Faults
from kafkalite.testing.requests.interception import Interception

if TYPE_CHECKING:
    from kafkalite.server.broker_server import BrokerServer

_TEXTS = ("api", "topic", "client_id")


def read(path: str) -> list[dict[str, Any]]:
    """The faults as the file has them; each is tried. Raises ConfigError."""
    try:
        found = _parsed(Path(path).read_text(encoding="utf-8"), path)
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise ValueError("it is no list of faults")
        _try(found)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"--faults {path}: {error}") from None
    return found


def from_option(text: str) -> dict[str, Any]:
    """The fault that an option of the command line describes; it is tried. Values are numbers, true, false, null or
    text. Raises ConfigError."""
    kind, *pairs = text.split(",")
    fault: dict[str, Any] = {"fault": kind.strip()}
    try:
        for pair in pairs:
            name, equals, value = (part.strip() for part in pair.partition("="))
            if not equals or not name:
                raise ValueError(f"{pair!r} is not name=value")
            if name in fault:
                raise ValueError(f"{name} is given twice")
            fault[name] = value if name in _TEXTS else _value(value)
        _try([fault])
    except ValueError as error:
        raise ConfigError(f"--fault {text}: {error}") from None
    return fault


def _value(text: str) -> object:
    try:
        found = read_json(text)
    except ValueError:
        return text
    return text if isinstance(found, list | dict) else found


def _try(faults: list[dict[str, Any]]) -> None:
    """Raises ValueError."""
    Faults(Interception(), _no_broker).load(faults)


def _parsed(text: str, path: str) -> object:
    if path.endswith(".json"):
        return read_json(text)
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise ConfigError(
            f"--faults {path}: YAML needs PyYAML (pip install pyyaml); a .json file needs nothing"
        ) from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def _no_broker() -> BrokerServer:
    raise AssertionError("nothing was asked yet")
