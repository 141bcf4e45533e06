"""Records of `__consumer_offsets` as columns: which of them count, and the values of committed offsets.

`stored_key` and `read_offset_value` of `record_codec.py` are the plain versions, which also log unknown versions, and
read values of older and newer ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat

import numpy as np
import numpy.typing as npt

from kafkalite.common.names import ZERO_UUID
from kafkalite.coordinator.group.offset_store import OffsetAndMetadata
from kafkalite.coordinator.group.record_codec import (
    GROUP_KEY_VERSION,
    KIND_OF_STEP,
    OFFSET_KEY_VERSION,
    OFFSET_VALUE_VERSION,
    VALUE_VERSION_MAX,
)
from kafkalite.coordinator.runtime.last_values import Entry
from kafkalite.protocol.codec.codec import VERSION
from kafkalite.protocol.records import NO_TIMESTAMP
from kafkalite.record.columns.batch_columns import Flags
from kafkalite.record.columns.keyed_records import first_two_bytes
from kafkalite.record.columns.record_columns import Columns

_COUNTS = np.zeros(1 << 16, np.bool_)  # by the version of the key
_COUNTS[[OFFSET_KEY_VERSION, GROUP_KEY_VERSION, *KIND_OF_STEP]] = True
_OLD_OFFSET_KEY_VERSION = 0

_VALUE_HEAD = np.dtype([("version", ">i2"), ("offset", ">i8"), ("leader_epoch", ">i4"), ("metadata_size", ">i2")])
_VALUE_TAIL_BYTES = 8  # the time of the commit
_VALUE_BYTES_MIN = _VALUE_HEAD.itemsize + _VALUE_TAIL_BYTES
_make = tuple.__new__


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


def read_offset_values(entries: Sequence[Entry]) -> Sequence[OffsetAndMetadata | None]:
    """The decoded values; None for each that is not of the version that brokers write."""
    values = [value for value, _ in entries]
    size = np.fromiter(map(len, values), np.int64, len(values))
    if not entries or int(size.min()) < _VALUE_BYTES_MIN:
        return [None] * len(entries)
    data, end = b"".join(values), np.cumsum(size)
    # every position seen as a value's beginning or end, of which those of the values are copied
    heads = np.ndarray((len(data) - _VALUE_HEAD.itemsize + 1,), _VALUE_HEAD, data, strides=(1,))[end - size]
    times: npt.NDArray[np.int64] = np.ndarray((len(data) - 7,), ">i8", data, strides=(1,))[end - _VALUE_TAIL_BYTES]
    size -= _VALUE_BYTES_MIN
    is_usual = (heads["version"] == OFFSET_VALUE_VERSION) & (heads["metadata_size"] == size)
    metadata: Iterable[str] = repeat("")
    if size.any():
        try:
            metadata = [value[_VALUE_HEAD.itemsize : -_VALUE_TAIL_BYTES].decode() for value in values]
        except UnicodeDecodeError:
            return [None] * len(entries)
    fields = zip(
        heads["offset"].tolist(), heads["leader_epoch"].tolist(), metadata, times.tolist(), repeat(NO_TIMESTAMP),
        [order for _, order in entries], repeat(ZERO_UUID), strict=False,
    )  # fmt: skip
    found: list[OffsetAndMetadata | None] = list(map(_make, repeat(OffsetAndMetadata), fields))
    for row in np.flatnonzero(~is_usual).tolist():
        found[row] = None
    return found
