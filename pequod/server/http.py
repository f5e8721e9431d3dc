"""HTTP on the port, by aiohttp: who may come in, and how errors go out.

aiohttp has no time-out for a first request and for slow headers, so `HttpConnection` stands
between it and the transport and keeps the deadlines of the port. No page of another site can
drive the server: a request must be addressed to a name of this server, come from no other
origin, and carry a content type that a plain form cannot send.
"""

import asyncio
import ipaddress
import logging
from functools import partial
from typing import Any

from aiohttp import web
from aiohttp.http import HttpProcessingError

from pequod.errors import BadRequest, Forbidden, PequodError, ServerFault, Unauthorized
from pequod.server.routes import NOBODY, Routes, failure
from pequod.server.service import Caller
from pequod.server.tcp import REQUEST, Port, Session

log = logging.getLogger("pequod.server")

_REMEMBERED_HOSTS = 100
KEEPALIVE_SECONDS = 75.0
LONGEST_TARGET = 128 * 1024  # bytes: two keys of the longest, each character as %F0%9F%90%8B

_SAME_SITE = frozenset({"same-origin", "none"})


class HttpConnection(Session):
    """One connection, handed on to aiohttp, with the deadlines that aiohttp lacks."""

    __slots__ = ("_ahead", "_arriving", "_body", "_connections", "_inner", "_taken")

    def __init__(self, port: Port, connections: dict[Any, "HttpConnection"], inner: Any) -> None:
        super().__init__(port)
        self._connections = connections
        self._inner = inner
        self._body: Any = None  # of the request that is being answered
        self._arriving = False  # the head of a request has begun to arrive
        self._ahead = False  # so has that of the next one
        self._taken = 0  # bytes that came since the last answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connections[self._inner] = self
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._taken += len(data)
        if self._body is None:
            self._arrive()
        elif self._body.is_eof():
            self._ahead = True
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        answer: bool | None = self._inner.eof_received()
        return answer

    def pause_writing(self) -> None:
        super().pause_writing()
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        if not self._stalled:  # over TLS, uvloop may say so without having said the other
            return
        super().resume_writing()
        self._inner.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.pop(self._inner, None)
        super().connection_lost(error)
        self._inner.connection_lost(error)

    def held(self) -> int:
        return super().held() + self._taken

    def overdue(self, owed: str, reason: str) -> None:
        if owed == REQUEST and self._body is not None and self._body.is_eof():
            return  # all of it came, and is being answered
        super().overdue(owed, reason)

    def drain(self) -> None:
        if self._body is None:  # otherwise its answer says that it is the last
            super().drain()

    def begin(self, body: Any) -> None:
        """The head of a request is complete."""
        self._body = body
        self._arriving = False
        self._port.relax(self, REQUEST)
        if not body.is_eof():  # whoever reads it has a deadline, and an answer for who is late
            seconds = 2 * self._port.config.request_seconds
            self._port.expect(self, REQUEST, seconds, "a body that does not end (request_seconds)")

    def end(self) -> None:
        """The request has its answer."""
        if self._body.is_eof():  # or else the connection ends
            self._port.relax(self, REQUEST)
        self._body = None
        self._taken = 0
        if self._ahead:
            self._ahead = False
            self._arrive()

    def _arrive(self) -> None:
        """The deadline counts from the first byte of a request."""
        if not self._arriving:
            self._arriving = True
            reason = "a request that does not go on (request_seconds)"
            self._port.expect(self, REQUEST, self._port.config.request_seconds, reason)


class _Handler(web.RequestHandler):
    """aiohttp's part of a connection; what is no HTTP gets our answer, and a line in our log."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if isinstance(exc, HttpProcessingError):
            # What follows the reason is what was sent, and may be a token.
            reason = exc.message.partition("\n")[0].partition(":")[0]
            log.warning("closed %s: not HTTP: %s", request.remote, reason)
            exc.__traceback__ = None  # its frames hold it: a cycle that nobody would collect
            response = failure(request, BadRequest(f"this is no HTTP: {reason}"))
        else:
            log.error("an answer failed: %r", exc, exc_info=exc)
            response = failure(request, ServerFault("this failed; the server's log says why"))
        response.force_close()
        return response


class Http:
    """The HTTP server on a port, and its connections."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._routes = Routes(port)
        self._connections: dict[Any, HttpConnection] = {}
        newcomer = port.access.newcomer
        self._anybody = port.service.caller(newcomer) if newcomer else None
        self._names = {name.lower() for name in (port.config.host, *port.config.allowed_hosts)}
        self._ours: set[str] = set()  # host names, with their ports, that were found to be ours
        # aiohttp's lower level: a router and middlewares would take a third of the time.
        self._server = web.Server(self._answer, request_factory=self._request)

    async def stop(self) -> None:
        await self._server.shutdown(0.1)

    def connection(self, port: Port) -> HttpConnection:
        """The session for a connection that speaks HTTP."""
        inner = _Handler(
            self._server,
            loop=port.loop,
            logger=log,
            access_log=None,  # type: ignore[arg-type]  # which turns it off
            keepalive_timeout=KEEPALIVE_SECONDS,
            lingering_time=port.config.request_seconds,
            max_line_size=LONGEST_TARGET,
            auto_decompress=False,  # a small body must not become a large one
        )
        return HttpConnection(port, self._connections, inner)

    def _request(
        self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any
    ) -> web.BaseRequest:
        size = self._port.config.max_frame
        return web.BaseRequest(
            message, payload, protocol, writer, task, self._port.loop, client_max_size=size
        )

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Let a request in, or not; whatever goes wrong becomes an answer."""
        connection = self._connections.get(request.protocol)
        if connection is not None:
            connection.begin(request.content)
        response: web.StreamResponse
        try:
            route = self._routes.find(request.method, request.path)
            if not route.is_open:
                self._check_origin(request)
            caller = NOBODY if route.is_open else self._caller(request)
            if route.read is not None:
                response = await self._routes.finished(partial(route.read, request, caller))
            else:
                assert route.talk is not None, "a route leads somewhere"
                response = await route.talk(request, caller)
        except PequodError as error:
            self._port.service.errors[error.code] += 1
            response = failure(request, error)
        except Exception as error:
            log.exception("%s %r failed: %r", request.method, request.path, error)
            response = failure(request, ServerFault("this failed; the server's log says why"))
        finally:
            if connection is not None:
                connection.end()
        if self._port.draining or not request.content.is_eof():
            response.force_close()
        return response

    def _check_origin(self, request: web.BaseRequest) -> None:
        """Refuse what a web page of another site made a browser send."""
        headers = request.headers
        host, origin = headers.get("Host", ""), headers.get("Origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            raise Forbidden("a request from a page of another site")
        if headers.get("Sec-Fetch-Site", "none") not in _SAME_SITE:
            raise Forbidden("a request from a page of another site")
        # A name of another site may lead here; a token, which that site cannot know, proves intent.
        if host not in self._ours and not self._is_ours(host):
            raise Forbidden(f"{host!r:.60} is no name of this server; add it with --allowed-hosts")

    def _is_ours(self, host: str) -> bool:
        if not self._port.access.is_open:
            return True
        name = _name(host)
        ours = name == "localhost" or name in self._names or _is_address(name)
        if ours and len(self._ours) < _REMEMBERED_HOSTS:
            self._ours.add(host)
        return ours

    def _caller(self, request: web.BaseRequest) -> Caller:
        if self._anybody is not None:
            return self._anybody
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() != "bearer":
            raise Unauthorized("this server wants a token: Authorization: Bearer TOKEN")
        principal = self._port.access.principal(token.strip())
        return self._port.service.caller(principal)


def _name(host: str) -> str:
    """The name in a Host header, without its port.

    >>> _name("localhost:7709"), _name("[::1]:7709"), _name("cache")
    ('localhost', '::1', 'cache')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()


def _is_address(name: str) -> bool:
    """True for the number of a machine, which no other site can own as it can a name."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
