"""A connection to ZooKeeper: kazoo's thread, which sends our requests and passes on undecoded answers.

kazoo connects, reconnects, keeps the session, pings, and logs in. It has neither MultiRead nor persistent watches, and
its treatment of answers, watches and callbacks costs two more threads. Requests therefore go directly into its queue,
with a `Reply` in place of its AsyncResult, and the bytes of a watch event are taken before kazoo handles them. This
relies on `KazooClient._call`, `_connection`, `_notify_pending`, `_session_id`; `ConnectionHandler._connect`,
`_read_watch_event`; and the methods of its handlers (`kazoo_handler`, the only other module that uses kazoo).
`KazooConnection` refuses a kazoo that lacks one.

    connection thread    on_state  on_watch_event(path)  Reply.set(answer)  on_end       each must return at once
    event loop           open  submit
    any other thread     close, which waits
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from kafkalite.common.errors import ConfigError
from kafkalite.zk.client.operations import ConnectionState
from kafkalite.zk.client.request_queue import Reply
from kafkalite.zk.client.wire_requests import Request, watch_event
from kafkalite.zk.client.zookeeper_config import ZooKeeperConfig

logger = logging.getLogger(__name__)

RETRY_DELAY_S = 0.1  # before the second attempt to connect to each server; grows to half a second
RETRY_DELAY_MAX_S = 0.5
_AUTH = 100  # the type of the request that carries credentials

CLOSE_TIMEOUT_S = 2.0  # for the servers' answer to "close this session"; without it they wait for its timeout


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

        from kafkalite.zk.client.kazoo_handler import KazooHandler

        self._on_state = on_state
        self._on_watch_event = on_watch_event
        self._lock = threading.Lock()  # orders submitted requests and the loss of the connection
        self._closing = threading.Lock()
        self._is_open = False
        self.session_timeout_ms = settings.session_timeout_ms  # the negotiated timeout once connected
        self._handler = KazooHandler(settings, on_end)
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
        """The session id, as in the `ephemeral_owner` of a node; 0 without a session."""
        return self._client._session_id or 0

    @property
    def last_fault(self) -> str:
        """Why the last attempt to connect failed, in kazoo's words; empty when none has."""
        return self._log.warning_text

    def open(self) -> None:
        """Begin to connect."""
        self._client.start_async()

    def submit(self, request: Request, reply: Reply) -> bool:
        """Send a request over the present connection. Returns False, and sends nothing, when there is none.

        A request that was sent gets its answer, or an error when the connection is lost. It is never sent over a later
        connection.
        """
        with self._lock:
            if not self._is_open:
                return False
            self._client._call(request, reply)
            return True

    def close(self) -> None:
        """End the session and the thread. Blocks, so it must not run on the event loop."""
        with self._lock:
            was_open, self._is_open = self._is_open, False
        hangup = threading.Timer(CLOSE_TIMEOUT_S if was_open else 0, self._handler.hang_up)
        hangup.daemon = True
        with self._closing:
            hangup.start()
            try:
                self._client.stop()
                self._client.close()
            except Exception as fault:  # kazoo raises plain Exceptions here; its thread is a daemon
                logger.warning("ZooKeeper: the connection did not end in order: %s", fault)
            finally:
                hangup.cancel()
                hangup.join()

    def _state_changed(self, _: object) -> None:
        """kazoo's listener, on its thread. The client's state is a lost connection, an expired session or refused
        credentials."""
        state = self._client.client_state
        connected = state == "CONNECTED"
        with self._lock:
            self._is_open = connected
            if not connected:
                # kazoo has failed the requests under way before this call; one that was submitted in between must not
                # stay in its queue for the next connection, long after its caller was notified of the loss
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
    """Logs kazoo's lines at level DEBUG, since the session logs each event once."""

    warning_text = ""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if args and getattr(args[-1], "type", None) == _AUTH:
            return  # the request with the password in it
        if level == logging.WARNING:
            self.warning_text = str(msg) % args if args else str(msg)
        super().log(min(level, logging.DEBUG), msg, *args, **kwargs)

    def warn(self, msg: object, *args: object, **kwargs: Any) -> None:
        self.log(logging.WARNING, msg, *args, **kwargs)
