"""CRC-32C from the C extension of the `crc32c` package, and murmur2, the hash of a record's key that gives its
partition.

The extension alone loads in less than a millisecond. Importing the package takes 25 to 40 ms more, an eighth of the
time to "ready": it asks importlib.metadata for its own version and imports its command line.
`kafkalite.client.producer.bulk_load` hashes columns of keys, and is tested against the murmur2 of one key here.
Source: org.apache.kafka.common.utils.Utils.murmur2, toPositive.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader, PathFinder

EXTENSION = "crc32c._crc32c"
Checksum = Callable[..., int]


def _load() -> Checksum:
    package = PathFinder.find_spec("crc32c")
    locations = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec(EXTENSION, locations) if locations is not None else None
    if spec is None or not isinstance(spec.loader, ExtensionFileLoader):
        import crc32c as package_of_another_layout

        checksum: Checksum = package_of_another_layout.crc32c
        return checksum
    module = spec.loader.create_module(spec)
    spec.loader.exec_module(module)
    found: Checksum = module.crc32c
    return found


crc32c = _load()
"""The checksum of anything with a buffer, as an unsigned 32-bit integer. Holds the interpreter lock."""


_MASK = 0xFFFFFFFF
_MULTIPLIER = 0x5BD1E995
MURMUR2_SEED = 0x9747B28C


def murmur2(data: bytes) -> int:
    """The hash, unsigned."""
    value = MURMUR2_SEED ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        value = value * _MULTIPLIER & _MASK ^ word
    if rest := data[whole:]:
        value = (value ^ int.from_bytes(rest, "little")) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return value ^ value >> 15


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition that producers choose for a record with this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
