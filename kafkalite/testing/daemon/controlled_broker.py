"""The broker of a daemon that tests control: with the faults of a file, and with a control over HTTP."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalite.common.errors import ConfigError
from kafkalite.testing.async_broker import AsyncBroker
from kafkalite.testing.daemon import fault_file
from kafkalite.testing.daemon.control import PREFIX, Control

if TYPE_CHECKING:
    from kafkalite.config.broker_config import BrokerConfig

logger = logging.getLogger(__name__)


class ControlledBroker(AsyncBroker):
    """Makes the faults of `faults_file`, and each of `faults`, as the command line has them. Without `token_file` there
    is no control. Raises ConfigError, also for what the files have."""

    def __init__(
        self,
        config: BrokerConfig,
        adopts: bool,
        faults_file: str | None = None,
        token_file: str | None = None,
        faults: Sequence[str] = (),
    ) -> None:
        super().__init__(config, adopt=adopts)
        self._faults: list[dict[str, Any]] = [] if faults_file is None else fault_file.read(faults_file)
        self._faults += map(fault_file.from_option, faults)
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
            logger.warning("whoever has the token controls this broker: http://%s%s", self.metrics_address, PREFIX)
