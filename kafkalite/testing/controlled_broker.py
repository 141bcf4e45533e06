"""A broker in a process of its own whose faults and clock tests control: by a file of faults, and over HTTP.

A file is a list in JSON, or in YAML if PyYAML is installed. `fault` names a method of `Faults`, the other fields are
its arguments; the last line is a fault on the command line.

    - fault: error
      api: PRODUCE
      error: NOT_LEADER_OR_FOLLOWER
      topic: orders
      times: 2
    - {fault: delay, seconds: 0.5, api: FETCH, times: null}

    error,api=PRODUCE,error=NOT_LEADER_OR_FOLLOWER,topic=orders,times=2

The control over HTTP is `kafkalite.testing.control`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalite.common.errors import ConfigError
from kafkalite.common.text import read_json
from kafkalite.testing.async_broker import AsyncBroker
from kafkalite.testing.control import PREFIX, Control
from kafkalite.testing.faults.faults import Faults
from kafkalite.testing.requests.interception import Interception

if TYPE_CHECKING:
    from kafkalite.config.broker_config import BrokerConfig
    from kafkalite.server.broker_server import BrokerServer

logger = logging.getLogger(__name__)


class ControlledBroker(AsyncBroker):
    """Makes the faults of `faults_file` and `faults`, options of the command line. Without `token_file` there is no
    control. Raises ConfigError, also for the contents of the files."""

    def __init__(
        self,
        config: BrokerConfig,
        adopts: bool,
        faults_file: str | None = None,
        token_file: str | None = None,
        faults: Sequence[str] = (),
    ) -> None:
        super().__init__(config, adopt=adopts)
        self._faults: list[dict[str, Any]] = [] if faults_file is None else read_faults(faults_file)
        self._faults += map(fault_from_option, faults)
        self._control = None if token_file is None else self._new_control(token_file, config)

    def _new_control(self, path: str, config: BrokerConfig) -> Control:
        if not config.metrics_listener:
            raise ConfigError("--control-token-file needs a listener for HTTP: set metrics.listener=127.0.0.1:0")
        try:
            return Control(self, Path(path).read_text(encoding="utf-8").strip())
        except (OSError, ValueError) as error:
            raise ConfigError(f"--control-token-file {path}: {error}") from None

    async def start(self) -> None:
        await super().start()
        for fault in self.faults.load(self._faults):
            logger.warning("this broker will make a fault: %s", fault)
        if self._control is not None and self.server.metrics is not None:
            self.server.metrics.control = self._control.answer
            logger.warning(
                "every client with the token controls this broker: http://%s%s", self.metrics_address, PREFIX
            )


_TEXTS = ("api", "topic", "client_id")


def read_faults(path: str) -> list[dict[str, Any]]:
    """The faults of a file, each validated. Raises ConfigError."""
    try:
        found = _parsed(Path(path).read_text(encoding="utf-8"), path)
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise ValueError("it is no list of faults")
        _validate(found)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"--faults {path}: {error}") from None
    return found


def fault_from_option(text: str) -> dict[str, Any]:
    """The fault of an option of the command line, validated. Values are numbers, true, false, null or text. Raises
    ConfigError."""
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
        _validate([fault])
    except ValueError as error:
        raise ConfigError(f"--fault {text}: {error}") from None
    return fault


def _value(text: str) -> object:
    try:
        found = read_json(text)
    except ValueError:
        return text
    return text if isinstance(found, list | dict) else found


def _validate(faults: list[dict[str, Any]]) -> None:
    """Raises ValueError for an invalid fault."""
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
    raise AssertionError("no request was sent yet")
