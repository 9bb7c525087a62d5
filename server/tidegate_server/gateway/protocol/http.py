"""The HTTP transport: one Thrift message per POST, with logins by header or cookie."""

from __future__ import annotations

import base64
import logging
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs

from tidegate_server.core.config import Config
from tidegate_server.core.errors import Code, ServerError
from tidegate_server.gateway.auth import cookies
from tidegate_server.gateway.auth.access import Access
from tidegate_server.gateway.auth.base import ANONYMOUS, Identity, Peer, login_error
from tidegate_server.gateway.auth.forwarded import Forwarded
from tidegate_server.gateway.protocol.answer import Answerer
from tidegate_server.gateway.protocol.channel import BEFORE_LOGIN_BYTES, run_unless_lost
from tidegate_server.gateway.protocol.handler import Caller
from tidegate_server.gateway.protocol.httpstream import (
    Headers,
    HttpStream,
    RefusedError,
    Reply,
    Request,
)
from tidegate_server.gateway.protocol.listen import Streams
from tidegate_server.gateway.protocol.scan import FrameError, Message, MessageScanner

logger = logging.getLogger(__name__)

THRIFT: Final = "application/x-thrift"
_TYPES: Final = (THRIFT, "application/vnd.apache.thrift.binary")
_XSRF: Final = "x-xsrf-header"
_STATUS: Final = {
    Code.LOGIN_REFUSED.name: HTTPStatus.UNAUTHORIZED,
    Code.PROXY_REFUSED.name: HTTPStatus.FORBIDDEN,
}


class HttpTransport:
    """Serves connections whose first byte begins an HTTP request.

    Sessions belong to no connection here: they end by a call, or when they are idle.
    """

    def __init__(
        self, config: Config, access: Access, answerer: Answerer, connection_id: int
    ) -> None:
        """``connection_id`` represents all HTTP connections and never ends."""
        self._settings = config.http
        self._forwarded = Forwarded(config.http.trusted_proxies)
        self._path = f"/{config.http.path.strip('/')}"
        self._timeout = config.server.login_timeout
        self._limit = config.server.max_request_bytes
        self._access = access
        self._answerer = answerer
        self._connection_id = connection_id

    async def serve(self, streams: Streams, first: bytes, objection: ServerError | None) -> None:
        """Answer the requests of a connection until it ends.

        :raises ConnectionLostError: if it ends during a request.
        :raises TimeoutError: if it is idle or slow for too long.
        """
        idle = self._settings.idle_timeout
        stream = HttpStream(streams, first, timeout=self._timeout, idle=idle)
        while True:
            try:
                request = await stream.request()
                if request is None:
                    return
                reply = await self._reply(stream, request, streams, objection)
            except RefusedError as refused:
                await _discard(stream)
                reply = refused.reply
            if not await stream.reply(reply):
                return

    async def _reply(
        self,
        stream: HttpStream,
        request: Request,
        streams: Streams,
        objection: ServerError | None,
    ) -> Reply:
        self._check_request(request, objection)
        try:
            caller, proof = await self._caller(request, self._peer(request, streams.peer))
        except ServerError as error:
            raise self._as_http_error(error) from error
        message = _message(await stream.body(self._limit), self._limit)
        answer = self._answerer.immediate_reply(message, caller)
        if answer is None:
            answer = await run_unless_lost(self._answerer.answer(message, caller), streams.reader)
        return Reply(HTTPStatus.OK, answer, THRIFT, (*self._cookie(request, caller), *proof))

    def _check_request(self, request: Request, objection: ServerError | None) -> None:
        """Reject requests that are not calls, before authentication."""
        path = request.target.partition("?")[0]
        if (path.rstrip("/") or "/") != self._path:
            text = f"{path[:200]} does not exist: HiveServer2's Thrift calls go to {self._path}."
            raise RefusedError(HTTPStatus.NOT_FOUND, text)
        if request.method != "POST":
            text = "This is a HiveServer2: send Thrift calls as POST, for example from\n"
            text += f"jdbc:hive2://host:port/;transportMode=http;httpPath={self._path[1:]}"
            raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, text, (("Allow", "POST"),))
        if objection is not None:
            raise RefusedError(HTTPStatus.FORBIDDEN, str(objection))
        if self._settings.xsrf_header and request.header(_XSRF) is None:
            text = "The header X-XSRF-HEADER is missing; this server requires it."
            raise RefusedError(HTTPStatus.FORBIDDEN, text)
        # Pages of other sites can make a browser send a POST, but not one of these types.
        kind = (request.header("content-type") or "").partition(";")[0].strip().lower()
        if kind not in _TYPES:
            text = f"Expected Content-Type {THRIFT}, not {kind[:100] or 'none'}."
            raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text)
        coding = (request.header("content-encoding") or "identity").strip().lower()
        if coding != "identity":
            text = f"Content-Encoding {coding[:100]} is not supported."
            headers = (("Accept-Encoding", "identity"),)
            raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text, headers)

    def _peer(self, request: Request, peer: Peer) -> Peer:
        protocol = request.header("x-forwarded-proto")
        return self._forwarded.peer(peer, request.all("x-forwarded-for"), protocol)

    async def _caller(self, request: Request, peer: Peer) -> tuple[Caller, Headers]:
        """Return the caller, and the headers that authenticate the server to it."""
        identity, proof = await self._identity(request, peer)
        other = _do_as_user(request.target)
        self._access.effective_user(identity, other, peer)
        # A login precedes the body, so large requests are allowed; without authentication too.
        caller = Caller(self._connection_id, peer, identity, act_as=other, has_session=True)
        return caller, proof

    async def _identity(self, request: Request, peer: Peer) -> tuple[Identity, Headers]:
        given = request.header("authorization")
        if given is not None:
            return await self._authenticate_header(given, peer)
        if not self._access.checks:
            return ANONYMOUS, ()
        if self._access.cookies is not None and self._access.allows_secrets(peer):
            for value in _cookies(request):
                identity = self._access.cookies.read(value)
                if identity is not None:
                    return identity, ()
        raise login_error("This server requires authentication", "Send the header Authorization.")

    async def _authenticate_header(self, given: str, peer: Peer) -> tuple[Identity, Headers]:
        scheme, _, secret = given.partition(" ")
        match scheme.lower():
            case "basic":
                user, password = _basic(secret)
                return await self._password(user, password, peer), ()
            case "bearer":
                return await self._access.with_bearer(secret.strip(), peer), ()
            case "negotiate" if self._access.kerberos is not None:
                exchange = self._access.kerberos.exchange()
                # Hive's JDBC driver writes "Negotiate : " before the ticket.
                token = _decode_base64(secret.lstrip(": "))
                answer = await self._access.with_ticket(exchange, token, peer)
                if not exchange.complete:
                    raise login_error("A Kerberos login over HTTP must have a single step")
                # Clients that request mutual authentication check it (RFC 4559).
                shown = f"Negotiate {base64.b64encode(answer).decode('ascii')}"
                proof: Headers = (("WWW-Authenticate", shown),) if answer else ()
                return exchange.identity(), proof
            case _:
                raise login_error("This Authorization scheme is not supported")

    async def _password(self, user: str, password: str, peer: Peer) -> Identity:
        if not (self._access.checks and self._access.allows_secrets(peer)):
            return await self._access.with_password(user, password, peer)
        secret = f"{user}\0{password}".encode()
        identity = self._access.remembered.find(secret)
        if identity is None:
            identity = await self._access.with_password(user, password, peer)
            self._access.remembered.keep(secret, identity)
        return identity

    def _cookie(self, request: Request, caller: Caller) -> Headers:
        """Return the cookie that replaces further logins of a client that has just logged in."""
        made = self._access.cookies
        if made is None or not caller.identity.proven or request.header("authorization") is None:
            return ()
        if not self._access.allows_secrets(caller.peer):
            return ()
        secure = caller.peer.encrypted
        return (("Set-Cookie", made.header(caller.identity, path=self._path, secure=secure)),)

    def _as_http_error(self, error: ServerError) -> RefusedError:
        status = _STATUS.get(error.code, HTTPStatus.SERVICE_UNAVAILABLE)
        headers: Headers = ()
        if status is HTTPStatus.UNAUTHORIZED:
            schemes = ['Basic realm="Tidegate", charset="UTF-8"'] if self._access.passwords else []
            schemes += ["Negotiate"] if self._access.kerberos else []
            schemes += ['Bearer realm="Tidegate"'] if self._access.bearer else []
            headers = tuple(("WWW-Authenticate", scheme) for scheme in schemes)
        return RefusedError(status, f"{error} (SQLSTATE {error.sqlstate})", headers)


async def _discard(stream: HttpStream) -> None:
    try:
        await stream.discard(BEFORE_LOGIN_BYTES)
    except RefusedError as error:
        logger.debug("Discarding a rejected request failed: %s", error)


def _message(body: bytes, limit: int) -> Message:
    scanner = MessageScanner(limit)
    scanner.feed(body)
    try:
        message = scanner.next_message()
    except FrameError as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, f"The body is not a call: {error}.") from error
    if message is None:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "The body is an incomplete call.")
    return message


def _do_as_user(target: str) -> str:
    """Return the user to impersonate, from the parameter doAs; empty for none."""
    query = parse_qs(target.partition("?")[2], max_num_fields=20)
    return next((values[0] for key, values in query.items() if key.lower() == "doas"), "")


def _cookies(request: Request) -> list[str]:
    pairs = [pair for header in request.all("cookie") for pair in header.split(";")]
    named = [pair.strip().partition("=") for pair in pairs]
    return [value.strip('"') for name, _, value in named if name == cookies.NAME]


def _decode_base64(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.strip(), validate=True)
    except ValueError:
        raise login_error("The header Authorization is malformed") from None


def _basic(secret: str) -> tuple[str, str]:
    user, colon, password = _decode_base64(secret).decode("utf-8", "replace").partition(":")
    if not colon:
        raise login_error("The header Authorization has no password")
    return user, password
