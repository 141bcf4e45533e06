"""A warning of the doctor: what is wrong, and how it is mended."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """Both are sentences without a full stop."""

    fault: str
    remedy: str
