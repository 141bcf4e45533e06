"""Keys and values that are one number or one UUID, as Kafka's own serializers write them.

Source: org.apache.kafka.common.serialization.{Short,Integer,Long,Float,Double,UUID}Serializer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from uuid import UUID

INTEGER, FLOAT, UUID_FORMAT = SCALARS = ("integer", "float", "uuid")
_INTEGER_BYTES = (1, 2, 4, 8)
_FLOATS = {4: struct.Struct(">f"), 8: struct.Struct(">d")}
_UUID_BYTES = 16


class ScalarDecoder:
    """Decodes by the name of a format."""

    def __init__(self, name: str) -> None:
        self._name = name

    def expect(self, _: Iterable[bytes | None], /) -> None:
        """Nothing is decoded ahead."""

    def __call__(self, data: bytes) -> str:
        """Raises ValueError."""
        if self._name == INTEGER:
            if len(data) not in _INTEGER_BYTES:
                raise ValueError(f"{len(data)} bytes, not 1, 2, 4 or 8")
            return str(int.from_bytes(data, "big", signed=True))
        if self._name == FLOAT:
            if len(data) not in _FLOATS:
                raise ValueError(f"{len(data)} bytes, not 4 or 8")
            return str(_FLOATS[len(data)].unpack(data)[0])
        if len(data) == _UUID_BYTES:
            return str(UUID(bytes=data))
        return str(UUID(data.decode("ascii")))
