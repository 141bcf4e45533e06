"""kazoo's connection thread, with our requests put in and bare answers taken out; no other module uses kazoo.

kazoo gives connecting and reconnecting, the session, pings, and logging in. Its treatment of answers, watches and
callbacks costs two more threads and knows neither MultiRead nor persistent watches; so requests go past its methods
into its queue with a `Reply` of ours in place of its AsyncResult, and the bytes of watch events are taken before it
looks for watchers. This relies on `KazooClient._call`, `_connection`, `_notify_pending`, `_session_id`;
`ConnectionHandler._connect`, `_read_watch_event`; and the verbs of its handlers. `KazooConnection` refuses a kazoo that
lacks one.

    connection thread    on_state  on_watch_event(path)  Reply.set(answer)  on_end       each must return at once
    event loop           open  submit
    any other thread     close, which waits
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from kafkalite.common.errors import ConfigError
from kafkalite.zk.client.operations import ConnectionState
from kafkalite.zk.client.wire_requests import Answer, Request, watch_event
from kafkalite.zk.client.zookeeper_config import ZooKeeperConfig

logger = logging.getLogger(__name__)

RETRY_DELAY_S = 0.1  # before the second round of dialling; half a second soon after, and never more
RETRY_DELAY_MAX_S = 0.5
_AUTH = 100  # the type of kazoo's request that shows credentials

CLOSE_TIMEOUT_S = 2.0  # for the servers' answer to "close this session"; without it they wait for its timeout


class Reply:
    """Where the answer to one request goes: `done(answer, None)` or `done(None, error)`, on the connection thread."""

    __slots__ = ("_done",)

    def __init__(self, done: Callable[[Answer | None, Exception | None], None]) -> None:
        self._done = done

    def set(self, answer: Any) -> None:
        data, offset = answer  # of a multi kazoo makes a list
        self._done((data, offset), None)

    def set_exception(self, error: Exception) -> None:
        self._done(None, error)


class KazooConnection:
    """One kazoo client and its thread; opened once, closed once."""

    def __init__(
        self,
        settings: ZooKeeperConfig,
        *,
        on_state: Callable[[ConnectionState], None],
        on_watch_event: Callable[[str], None],
        on_end: Callable[[], None],
    ) -> None:
        from kazoo.client import KazooClient
        from kazoo.retry import KazooRetry

        self._on_state = on_state
        self._on_watch_event = on_watch_event
        self._lock = threading.Lock()  # between a request that goes in and a connection that goes away
        self._closing = threading.Lock()
        self._is_open = False
        self.session_timeout_ms = settings.session_timeout_ms  # what the servers agreed to, once they have
        self._handler = _handler(settings, on_end)
        retry = KazooRetry(max_tries=-1, delay=RETRY_DELAY_S, max_delay=RETRY_DELAY_MAX_S)
        sasl = settings.sasl
        self._log = _DebugLog(logger, {})
        self._client = KazooClient(
            hosts=settings.servers,
            timeout=settings.session_timeout_ms / 1000,
            handler=self._handler,
            connection_retry=retry,
            auth_data=[("digest", settings.digest)] if settings.digest is not None else None,
            sasl_options={key: value for key, value in sasl._asdict().items() if value is not None} if sasl else None,
            use_ssl=settings.tls is not None,
            logger=self._log,
        )
        self._client.add_listener(self._state_changed)
        self._attach()

    def _attach(self) -> None:
        """Hooks into the connection's bytes. Raises ConfigError when this kazoo is built differently."""
        from kazoo.version import __version__

        client, connection = self._client, self._client._connection
        for owner, name in (
            (client, "_call"),
            (client, "_notify_pending"),
            (client, "_session_id"),
            (connection, "_connect"),
            (connection, "_read_watch_event"),
        ):
            if not hasattr(owner, name):
                raise ConfigError(f"zookeeper.connect: kazoo {__version__} has no {name}; install kazoo 2.11")
        connect = connection._connect

        def connect_and_note(*where: Any) -> Any:
            read_timeout_ms, connect_timeout_ms = connect(*where)
            self.session_timeout_ms = round(read_timeout_ms * 1.5)  # kazoo keeps two thirds of it
            return read_timeout_ms, connect_timeout_ms

        connection._connect = connect_and_note
        connection._read_watch_event = lambda data, offset: self._on_watch_event(watch_event(data, offset))

    @property
    def session_id(self) -> int:
        """The session as a node's `ephemeral_owner` has it; 0 while there is none."""
        return self._client._session_id or 0

    @property
    def last_fault(self) -> str:
        """Why the last attempt to connect failed, in kazoo's words; empty when none has."""
        return self._log.warning_text

    def open(self) -> None:
        """Begin to connect."""
        self._client.start_async()

    def submit(self, request: Request, reply: Reply) -> bool:
        """Send a request over the present connection; False, and nothing is sent, when there is none.

        A request that was sent gets its answer, or an error when the connection goes; it never goes over a later one.
        """
        with self._lock:
            if not self._is_open:
                return False
            self._client._call(request, reply)
            return True

    def close(self) -> None:
        """End the session and the thread. Waits: not for the loop."""
        with self._lock:
            was_open, self._is_open = self._is_open, False
        hangup = threading.Timer(CLOSE_TIMEOUT_S if was_open else 0, self._handler.hang_up)
        hangup.daemon = True
        with self._closing:
            hangup.start()
            try:
                self._client.stop()
                self._client.close()
            except Exception as fault:  # kazoo raises bare ones here; its thread is a daemon and does no more harm
                logger.warning("ZooKeeper: the connection did not end in order: %s", fault)
            finally:
                hangup.cancel()
                hangup.join()

    def _state_changed(self, _: object) -> None:
        """kazoo's listener, on its thread. The client's state tells a lost connection, an expired session and refused
        credentials apart."""
        state = self._client.client_state
        connected = state == "CONNECTED"
        with self._lock:
            self._is_open = connected
            if not connected:
                # kazoo has failed the requests under way before it told us; one that came in between must not wait in
                # its queue for the next connection, where it would be done long after its caller was told of the loss
                self._client._notify_pending(state)
        if connected:
            self._on_state(ConnectionState.CONNECTED)
        elif state == "EXPIRED_SESSION":
            self._on_state(ConnectionState.EXPIRED)
        elif state == "AUTH_FAILED":
            self._on_state(ConnectionState.AUTH_FAILED)
        elif state == "CONNECTING":
            self._on_state(ConnectionState.SUSPENDED)


class _DebugLog(logging.LoggerAdapter[logging.Logger]):
    """kazoo's own lines, for debugging only: the session logs each event once."""

    warning_text = ""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if args and getattr(args[-1], "type", None) == _AUTH:
            return  # the request with the password in it
        if level == logging.WARNING:
            self.warning_text = str(msg) % args if args else str(msg)
        super().log(min(level, logging.DEBUG), msg, *args, **kwargs)

    def warn(self, msg: object, *args: object, **kwargs: Any) -> None:
        self.log(logging.WARNING, msg, *args, **kwargs)


def _handler(settings: ZooKeeperConfig, on_end: Callable[[], None]) -> Any:
    """One of kazoo's handlers that has one thread and makes the sockets itself."""
    from kazoo.handlers.threading import SequentialThreadingHandler

    context = settings.tls.context() if settings.tls is not None else None
    # kazoo would give one server that swallows packets the whole session timeout, and the session would be gone
    connect_timeout_s = settings.session_timeout_ms / 1000 / (settings.servers.count(",") + 1)

    class OneThread(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
        _socket: socket.socket | None = None
        _hung_up = False

        def start(self) -> None:
            """No threads for callbacks: there are none."""

        def stop(self) -> None:
            pass

        def select(
            self, rlist: Any, wlist: Any, xlist: Any, timeout: float | None = None
        ) -> tuple[list[Any], list[Any], list[Any]]:
            """select.select for any number of open files. kazoo's own makes an epoll each time, three for each message:
            without them, and with fewer turns of the loop, 10,000 watch events take 0.3 s of CPU instead of 0.9."""
            poll = select.poll()
            for source in rlist:
                poll.register(source, select.POLLIN)
            for sink in wlist:
                poll.register(sink, select.POLLOUT)
            ready = {fd for fd, _ in poll.poll(None if timeout is None else timeout * 1000)}
            return [s for s in rlist if s.fileno() in ready], [s for s in wlist if s.fileno() in ready], []

        def spawn(self, func: Callable[[], None], *_: object, **__: object) -> threading.Thread:
            def run() -> None:
                try:
                    func()
                except Exception:
                    logger.exception("ZooKeeper: the connection thread failed")
                finally:
                    on_end()

            thread = threading.Thread(target=run, name="kafkalite-zookeeper", daemon=True)
            thread.start()
            return thread

        def create_connection(self, address: Any, hostname: str, *_: object, **__: object) -> socket.socket:
            connection = self._dial(address)
            try:
                connection.settimeout(connect_timeout_s)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if context is not None:
                    self._socket = connection = context.wrap_socket(connection, server_hostname=hostname)
            except BaseException:
                connection.close()
                raise
            return connection

        def _dial(self, address: Any) -> socket.socket:
            """Connects like `socket.create_connection`; `hang_up` ends it at once also where packets are swallowed."""
            family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
            self._socket = connection = socket.socket(family, socket.SOCK_STREAM)
            connection.setblocking(False)
            code = connection.connect_ex(address)
            deadline = time.monotonic() + connect_timeout_s
            while code == errno.EINPROGRESS and not self._hung_up and time.monotonic() < deadline:
                if self.select([], [connection], [], 0.1)[1]:
                    code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code or self._hung_up:
                connection.close()
                raise OSError(code, os.strerror(code))
            return connection

        def hang_up(self) -> None:
            """End the present connection, from any thread."""
            self._hung_up = True
            if self._socket is not None:
                with contextlib.suppress(OSError):  # it has ended by itself
                    self._socket.shutdown(socket.SHUT_RDWR)

    return OneThread()
