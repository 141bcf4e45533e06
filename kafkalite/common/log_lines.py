"""Lines of the log in which a message is one line, whatever the names in it say.

Names of groups, topics and users come from clients, and may have a line break in them, behind which anything could
stand; or characters that move the cursor of a terminal. Tracebacks keep their lines.
"""

from __future__ import annotations

import logging

MESSAGE_CHARS_MAX = 4_000


class LogLines(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(record.message)
        return super().formatMessage(record)


def printable(text: str) -> str:
    """Without line breaks and other control characters, and not endless."""
    if len(text) > MESSAGE_CHARS_MAX:
        text = f"{text[:MESSAGE_CHARS_MAX]}... ({len(text)} characters)"
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
