"""/api/session, /api/login, /api/logout: users of the console, and the token that every change needs.

If the brokers require SASL, users log in with the names and passwords that the brokers accept: they are tried on a
connection, and the session's connections log in with them. A password is kept only in the memory of the session.
With a provider of OpenID Connect they log in there, and the session's connections by its tokens.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, RedirectResponse, Response

from kafkalite.client.blocking_client import REFUSES
from kafkalite.client.broker_reports import KAFKALITE
from kafkalite.client.logins import PASSWORD_MECHANISMS, TOKEN_MECHANISM, ClientSecurity, by_password
from kafkalite.client.sasl_login import NOT_ENABLED
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.text import read_json
from kafkalite.console.brokers.broker_pool import BrokerPool
from kafkalite.console.calls.route import COOKIE, FailedLogins, Session, Sessions
from kafkalite.console.messages.payload import available
from kafkalite.console.request.parameters import (
    CLIENT_FAULTS,
    WRITE_SETTING,
    ApiError,
    Parameter,
    Row,
    invalid,
    of_client,
    read_body,
    too_many,
)
from kafkalite.console.routes import CSRF_HEADER
from kafkalite.console.single_sign_on import BEGUN_S_MAX, ISSUER, SignOnFault, SingleSignOn
from kafkalite.console.single_sign_on import COOKIE as SIGN_ON_COOKIE

if TYPE_CHECKING:
    from starlette.requests import Request

_FIELDS = (
    Parameter("user", required=True, where="body", text_max=500),
    Parameter("password", required=True, where="body", text_max=1000),
)
_BODY_BYTES_MAX = 16 << 10
_TARGET_CHARS_MAX = 2_000
SIGN_ON_PATH, BACK_PATH = "/api/login/oidc", "/api/login/oidc/back"

logger = logging.getLogger("kafkalite.console")


class Place(NamedTuple):
    """The cluster's place in its console: its name and path, the names and paths of all, and whether it speaks TLS."""

    name: str = ""
    path: str = ""
    siblings: tuple[tuple[str, str], ...] = ()
    is_secure: bool = False


@dataclass(slots=True)
class Login:
    """`properties` are those of a Kafka client, with which sessions connect; with SASL in security.protocol each
    session needs a login of its own. `has` says for registry and mirrors whether this console has them."""

    bootstrap: str
    properties: Mapping[str, str] = field(repr=False)
    sessions: Sessions
    may_write: bool
    has: Mapping[str, bool] = field(default_factory=dict)
    place: Place = field(default_factory=Place)
    sign_on: SingleSignOn | None = None
    monotonic_s: Callable[[], float] = time.monotonic
    _failures: FailedLogins = field(default_factory=FailedLogins)

    @property
    def is_required(self) -> bool:
        return self.sessions.shared is None

    @property
    def mechanisms(self) -> list[str]:
        named = self.properties.get("sasl.mechanism", "").strip().upper()
        if not self.is_required or (self.sign_on is not None and named == TOKEN_MECHANISM):
            return []
        return [named] if named in PASSWORD_MECHANISMS else list(reversed(PASSWORD_MECHANISMS))

    async def session(self, request: Request) -> Response:
        """Returns the session of the cookie, or begins one."""
        found = self.sessions.find(request.cookies.get(COOKIE))
        session = found or self.sessions.begin()
        return await self._session_answer(session, is_new=found is None)

    async def log_in(self, request: Request) -> Response:
        """Checks name and password with a broker. Raises ApiError."""
        self._check_origin(request)
        if not self.is_required:
            raise invalid("the brokers require no login")
        fields = read_body(_FIELDS, await _small_body(request))
        now_s = self.monotonic_s()
        address = "" if request.client is None else request.client.host
        if not self._failures.may_try(address, fields["user"], now_s):
            raise too_many("too many logins have failed; try again in a minute")
        try:
            pool = await run_in_threadpool(self._connected, fields["user"], fields["password"])
        except ApiError as fault:
            if fault.status == 401:
                self._failures.add(address, fields["user"], now_s)
            raise
        if (former := self.sessions.find(request.cookies.get(COOKIE))) is not None:
            self.sessions.end(former)
        return await self._session_answer(self.sessions.begin(pool, fields["user"]), is_new=True)

    async def to_provider(self, request: Request) -> Response:
        """Sends the browser to the provider of OpenID Connect."""
        assert self.sign_on is not None
        target = request.query_params.get("to", "/")[:_TARGET_CHARS_MAX]
        scheme = "https" if self.place.is_secure else "http"
        own = f"{scheme}://{request.headers.get('host', '')}{self.place.path}{BACK_PATH}"
        try:
            key, url = await run_in_threadpool(self.sign_on.begin, self.sign_on.redirect_uri or own, target)
        except SignOnFault as fault:
            return self._not_signed_on(str(fault))
        answer = RedirectResponse(url, 303, {"cache-control": "no-store"})
        path, is_secure = f"{self.place.path}{BACK_PATH}", self.place.is_secure
        how: dict[str, Any] = {"path": path, "secure": is_secure, "httponly": True, "samesite": "lax"}
        answer.set_cookie(SIGN_ON_COOKIE, key, max_age=int(BEGUN_S_MAX), **how)
        return answer

    async def from_provider(self, request: Request) -> Response:
        """Begins a session for the user with whom the provider sends the browser back."""
        assert self.sign_on is not None
        key = request.cookies.get(SIGN_ON_COOKIE)
        try:
            finish = self.sign_on.finish
            user, security, target = await run_in_threadpool(finish, key, request.url.query)
            pool = await run_in_threadpool(self._accepted, security)
        except (SignOnFault, ApiError) as fault:
            return self._not_signed_on(str(fault))
        if (former := self.sessions.find(request.cookies.get(COOKIE))) is not None:
            self.sessions.end(former)
        is_ours = target.startswith("/") and not target.startswith(("//", "/\\"))
        answer = RedirectResponse(f"{self.place.path}{target if is_ours else '/'}", 303, {"cache-control": "no-store"})
        self._set_cookie(answer, self.sessions.begin(pool, user))
        answer.delete_cookie(SIGN_ON_COOKIE, path=f"{self.place.path}{BACK_PATH}", httponly=True, samesite="lax")
        return answer

    def _not_signed_on(self, why: str) -> Response:
        """The login page, which says so; the reason is for the log."""
        logger.warning("a login by %s failed: %s", ISSUER, why)
        return RedirectResponse(f"{self.place.path}/login?fault=provider", 303, {"cache-control": "no-store"})

    def _accepted(self, security: ClientSecurity) -> BrokerPool:
        """The connections of a login, which a broker accepts. Raises ApiError."""
        pool = BrokerPool(self.bootstrap, security)
        try:
            pool.check()
        except CLIENT_FAULTS as fault:
            pool.close()
            raise of_client(fault) from None
        return pool

    async def log_out(self, request: Request) -> Response:
        session = self.sessions.find(request.cookies.get(COOKIE))
        if session is not None:
            self.check_token(request, session)
            self.sessions.end(session)
        answer = JSONResponse({"ok": True})
        answer.delete_cookie(COOKIE, path=f"{self.place.path}/", httponly=True, samesite="strict")
        return answer

    def check_token(self, request: Request, session: Session) -> None:
        """Raises ApiError for a change that is not from our own pages."""
        self._check_origin(request)
        if not session.key or not session.is_token(request.headers.get(CSRF_HEADER, "")):
            text = f"a change needs the cookie and the header {CSRF_HEADER}, both from /api/session"
            raise ApiError(403, "CSRF", text)

    @staticmethod
    def _check_origin(request: Request) -> None:
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise ApiError(403, "CSRF", "a page of another site has sent this")

    def _connected(self, user: str, password: str) -> BrokerPool:
        """The connections of a user. Raises ApiError."""
        if not user or not password:
            raise ApiError(401, "BAD_LOGIN", "a name and a password are needed")
        is_refused, refusal = False, "no mechanism of the brokers accepts a password"
        for mechanism in self.mechanisms:  # each has users of its own
            try:
                security = ClientSecurity.of(self.properties, by_password(mechanism, user, password))
                pool = BrokerPool(self.bootstrap, security)
                pool.check()
                return pool
            except ValueError as fault:
                raise ApiError(401, "BAD_LOGIN", f"this name or password {fault}") from None
            except CLIENT_FAULTS as fault:
                text = str(fault)
                if NOT_ENABLED in text:
                    refusal = text
                elif REFUSES in text:
                    is_refused = True
                else:
                    raise of_client(fault) from None
        raise ApiError(401, "BAD_LOGIN", "wrong user name or password" if is_refused else refusal)

    async def _session_answer(self, session: Session, *, is_new: bool) -> Response:
        answer = JSONResponse(await run_in_threadpool(self._describe, session))
        answer.headers["cache-control"] = "no-store"
        if is_new:
            self._set_cookie(answer, session)
        return answer

    def _set_cookie(self, answer: Response, session: Session) -> None:
        path, is_secure = f"{self.place.path}/", self.place.is_secure
        answer.set_cookie(COOKIE, session.key, path=path, secure=is_secure, httponly=True, samesite="strict")

    def _describe(self, session: Session) -> Row:
        row: dict[str, Any] = {
            "user": session.user,
            "login_required": self.is_required,
            "mechanisms": self.mechanisms,
            "sign_on": self.sign_on is not None,
            "write": self.may_write,
            "write_setting": WRITE_SETTING,
            "csrf_token": session.csrf_token,
            "cluster_id": None,
            "kind": None,
            "version": None,
            "bootstrap": self.bootstrap,
            "can_compact": False,
            "lacks": None,
            "formats": available(),
            "has_registry": self.has.get("registry", False),
            "has_mirrors": self.has.get("mirrors", False),
            "cluster": self.place.name,
            "clusters": [{"name": name, "path": f"{path}/"} for name, path in self.place.siblings],
        }
        if session.pool is None:
            return row
        with session.pool.borrow() as cluster:
            kind = session.pool.kind_of(cluster)
            row.update(cluster_id=cluster.cluster_id, kind=kind, can_compact=kind == KAFKALITE)
            row["lacks"] = None if kind is not None else "DESCRIBE on the cluster"
        return row


async def _small_body(request: Request) -> Any:
    body = await request.body()
    if len(body) > _BODY_BYTES_MAX or request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise invalid("a login is JSON, with Content-Type: application/json")
    try:
        return read_json(body, strict=True)
    except ValueError:
        raise invalid("the body is no JSON") from None
