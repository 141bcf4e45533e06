"""Faults from a file, for a daemon: a list in JSON, or in YAML where PyYAML is installed.

    - fault: error
      api: PRODUCE
      error: NOT_LEADER_OR_FOLLOWER
      topic: orders
      times: 2
    - {fault: delay, seconds: 0.5, api: FETCH, times: null}

`fault` names a method of `Faults`, and the rest are its arguments.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalite.common.errors import ConfigError
from kafkalite.testing.faults.faults import Faults
from kafkalite.testing.requests.interception import Interception

if TYPE_CHECKING:
    from kafkalite.server.broker_server import BrokerServer


def read(path: str) -> list[dict[str, Any]]:
    """The faults as the file has them; each is tried. Raises ConfigError."""
    try:
        found = _parsed(Path(path).read_text(encoding="utf-8"), path)
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise ValueError("it is no list of faults")
        Faults(Interception(), _no_broker).load(found)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--faults {path}: {error}") from None
    return found


def _parsed(text: str, path: str) -> object:
    if path.endswith(".json"):
        return json.loads(text)
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
