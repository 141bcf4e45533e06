"""Lines of the log in which a message is one line, whatever the names in it say.

Names of groups, topics and users come from clients, and may have a line break in them, behind which anything could
stand; or characters that move the cursor of a terminal. Tracebacks keep their lines, and nothing else of that kind.
"""

from __future__ import annotations

import logging
from types import TracebackType

from kafkalite.common.printable import printable

MESSAGE_CHARS_MAX = 4_000

_Fault = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class LogLines(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:
        text = record.message
        if len(text) > MESSAGE_CHARS_MAX:
            text = f"{text[:MESSAGE_CHARS_MAX]}... ({len(text)} characters)"
        record.message = printable(text)
        return super().formatMessage(record)

    def formatException(self, ei: _Fault) -> str:
        return printable(super().formatException(ei), keep="\n")
