"""Text that cannot steer a terminal: names and messages of others, as they are printed and logged.

Groups, clients, topics, hosts, principals and the errors of brokers are text that somebody else has chosen. A control
character in it moves the cursor or changes colours, a line break forges a line, a bidirectional override shows
letters in another order than they have.
"""

from __future__ import annotations

import re

# C0 and C1, DEL, marks and overrides of the direction of writing, separators of lines, halves of characters
_UNSAFE = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str, keep: str = "") -> str:
    """`text` with \\x1b, \\n, \\u202e and so on in the place of what steers a terminal, but for the characters in
    `keep`. Text that was not UTF-8 (surrogateescape) shows its bytes as \\udcXX."""
    if text.isprintable():
        return text
    return _UNSAFE.sub(lambda found: found[0] if found[0] in keep else ascii(found[0])[1:-1], text)


def safe_json(text: str) -> str:
    """JSON with these characters as \\uXXXX, which means the same to whoever parses it."""
    return text if text.isprintable() else _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
