"""`python -m bench.ceiling`: how fast a discarding reader can be served at all on this machine.

A server that is nothing but a loop around sendfile (no protocol, no log, no event loop; a blocking socket with the
send buffer of a broker) gives pieces of a file to the reader of `bench.discard`. No broker that sends its files over
loopback can be faster: the difference to a broker's own row is the most that could be gained.
"""

from __future__ import annotations

import argparse
import os
import socket
import tempfile
import time
from multiprocessing import get_context

from bench.discard import SINK_BYTES

FILE_BYTES = 512 << 20
SEND_BUFFER_BYTES = 102_400  # socket.send.buffer.bytes of both brokers
_HEAD_BYTES = 90  # about what stands before the records in an answer
_ASK_BYTES = 108  # and a request's size
_SIZES = (1 << 20, 8 << 20)


def serve(listening: socket.socket, path: str, piece_bytes: int) -> None:
    """Answer each request with the next piece of the file until the reader disconnects."""
    fd = os.open(path, os.O_RDONLY)
    sock, _ = listening.accept()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    position, out = 0, sock.fileno()
    while sock.recv(_ASK_BYTES, socket.MSG_WAITALL):
        if position + piece_bytes > FILE_BYTES:
            position = 0
        sock.send(bytes(_HEAD_BYTES), socket.MSG_MORE)
        end = position + piece_bytes
        while position < end:
            position += os.sendfile(out, fd, position, end - position)
    os.close(fd)


def read(sock: socket.socket, piece_bytes: int, seconds: float) -> float:
    """Ask again and again for `seconds`; bytes a second."""
    head, sink, ask = bytearray(_HEAD_BYTES), bytearray(SINK_BYTES), bytes(_ASK_BYTES)
    total, started = 0, time.perf_counter()
    while (passed := time.perf_counter() - started) < seconds:
        sock.sendall(ask)
        sock.recv_into(head, _HEAD_BYTES, socket.MSG_WAITALL)
        left = piece_bytes
        while left:
            part = min(left, SINK_BYTES)
            if sock.recv_into(sink, part, socket.MSG_WAITALL) != part:
                raise ConnectionError("the server is gone")
            left -= part
        total += piece_bytes
    return total / passed


def ceiling(piece_bytes: int, seconds: float, directory: str) -> float:
    path = os.path.join(directory, "pieces")
    if not os.path.exists(path):
        with open(path, "wb") as file:
            for _ in range(FILE_BYTES >> 20):
                file.write(os.urandom(1 << 20))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = get_context("fork").Process(target=serve, args=(listening, path, piece_bytes), daemon=True)
        server.start()
        with socket.create_connection(listening.getsockname()) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            read(sock, piece_bytes, seconds / 4)
            rate = read(sock, piece_bytes, seconds)
        server.join()
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ceiling", description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as directory:
        for piece_bytes in _SIZES:
            print(f"{piece_bytes >> 20} MiB: {ceiling(piece_bytes, seconds, directory) / 1e9:.2f} GB/s")


if __name__ == "__main__":
    main()
