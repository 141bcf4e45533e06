"""Names of users and clients as nodes of ZooKeeper: URL-encoded.

Source: org.apache.kafka.common.utils.Sanitizer.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

_SAFE = "-_."  # what java.net.URLEncoder leaves as it is, but for *


def sanitized(name: str) -> str:
    return quote(name, safe=_SAFE).replace("~", "%7E")


def desanitized(name: str) -> str:
    return unquote(name)
