"""Records of `__consumer_offsets` as columns: which of them count, by the first bytes of their keys and values.

`stored_key` of `record_codec.py` is the plain version, which also logs unknown versions.
"""

from __future__ import annotations

import numpy as np

from kafkalite.coordinator.group.record_codec import (
    GROUP_KEY_VERSION,
    KEY_VERSIONS_OF_STEPS,
    OFFSET_KEY_VERSION,
    VALUE_VERSION_MAX,
)
from kafkalite.protocol.codec.codec import VERSION
from kafkalite.record.columns.batch_columns import Flags
from kafkalite.record.columns.keyed_records import first_two_bytes
from kafkalite.record.columns.record_columns import Columns

_COUNTS = np.zeros(1 << 16, np.bool_)  # by the version of the key
_COUNTS[[OFFSET_KEY_VERSION, GROUP_KEY_VERSION, *KEY_VERSIONS_OF_STEPS]] = True
_OLD_OFFSET_KEY_VERSION = 0


def counted_rows(columns: Columns) -> Flags | None:
    """The records that `stored_key` returns with their own key; None if there are some that it logs, or whose key it
    changes."""
    version = first_two_bytes(columns.data, columns.key_start)
    counts: Flags = _COUNTS.take(version)
    is_odd = (columns.key_end - columns.key_start < VERSION.size) | (version == _OLD_OFFSET_KEY_VERSION)
    value_size = columns.value_end - columns.value_start
    is_unknown = first_two_bytes(columns.data, columns.value_start) > VALUE_VERSION_MAX
    is_odd |= counts & (value_size >= 0) & (is_unknown | (value_size < VERSION.size))
    return None if is_odd.any() else counts
