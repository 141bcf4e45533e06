"""Messages as frames in a stream: a length of four bytes, then a pickle.

Both ends are the same program of the same user, so pickles are as safe as memory.
"""

from __future__ import annotations

import pickle

from kafkalite.cleaner.job.worker_messages import FromWorker, ToWorker

_LENGTH_BYTES = 4


def encode(message: ToWorker | FromWorker) -> bytes:
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


class Frames:
    """Decodes messages from a stream that arrives in pieces."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[ToWorker | FromWorker]:
        """The messages that are complete now."""
        buffer = self._buffer
        buffer += data
        messages = []
        at = 0
        while len(buffer) - at >= _LENGTH_BYTES:
            end = at + _LENGTH_BYTES + int.from_bytes(buffer[at : at + _LENGTH_BYTES], "big")
            if len(buffer) < end:
                break
            messages.append(pickle.loads(buffer[at + _LENGTH_BYTES : end]))
            at = end
        del buffer[:at]
        return messages
