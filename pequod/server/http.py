"""HTTP on the port, by aiohttp: who may come in, and how errors go out.

aiohttp has no time-out for a first request and for slow headers, so `HttpConnection` stands
between it and the transport and keeps the deadlines of the port. No page of another site can
drive the server: a request must be addressed to a name of this server, come from no other
origin, and carry a content type that a plain form cannot send.
"""

import asyncio
import logging
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from pequod.errors import Forbidden, PequodError, ServerFault, TooLarge, Unauthorized
from pequod.server.routes import Routes, failure
from pequod.server.service import Methods
from pequod.server.tcp import Port, Session, peer_of

log = logging.getLogger("pequod.server")

KEEPALIVE_SECONDS = 75.0

_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_SAME_SITE = frozenset({"same-origin", "none"})


class HttpConnection(Session):
    """One connection, handed on to aiohttp, with the deadlines that aiohttp lacks."""

    def __init__(self, port: Port, connections: dict[Any, "HttpConnection"], inner: Any) -> None:
        self._port = port
        self._connections = connections
        self._inner = inner
        self._transport: Any = None
        self._serving = False
        self._stalled = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._connections[self._inner] = self
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if not self._serving:
            reason = "a request that does not go on (request_seconds)"
            self._port.expect(self, self._port.config.request_seconds, reason)
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        answer: bool | None = self._inner.eof_received()
        return answer

    def pause_writing(self) -> None:
        self._stalled = True
        reason = "it does not read its answers (stall_seconds)"
        self._port.expect(self, self._port.config.stall_seconds, reason)
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._stalled = False
        self._port.relax(self)
        self._inner.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.pop(self._inner, None)
        self._port.remove(self)
        self._transport = None
        self._inner.connection_lost(error)

    def begin(self) -> None:
        """The head of a request is complete."""
        self._serving = True
        self._port.relax(self)

    def end(self) -> None:
        """The request has its answer."""
        self._serving = False
        if not self._stalled:
            self._port.relax(self)

    def close(self, reason: str) -> None:
        if self._transport is not None:
            log.warning("closed %s: %s", peer_of(self._transport), reason)
            self._transport.abort()

    def drain(self) -> None:
        if self._transport is not None and not self._serving:
            self._transport.close()


class Http:
    """The HTTP server on a port, and its connections."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._routes = Routes(port)
        self._connections: dict[Any, HttpConnection] = {}
        newcomer = port.access.newcomer
        self._open_methods = port.service.methods_for(newcomer) if newcomer else None
        self._names = _LOCAL_NAMES | {port.config.host} | set(port.config.allowed_hosts)
        # aiohttp's lower level: a router and middlewares would take a third of the time.
        self._server = web.Server(
            self._answer,
            request_factory=self._request,
            access_log=None,
            keepalive_timeout=KEEPALIVE_SECONDS,
            auto_decompress=False,  # a small body must not become a large one
        )

    async def stop(self) -> None:
        await self._server.shutdown(0.1)

    def connection(self, port: Port) -> HttpConnection:
        """The session for a connection that speaks HTTP."""
        return HttpConnection(port, self._connections, self._server())

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
            connection.begin()
        try:
            route = self._routes.find(request.method, request.path)
            if route.is_open:
                return await route.handler(request, {})
            self._check_origin(request)
            return await route.handler(request, self._methods(request))
        except PequodError as error:
            self._port.service.errors[error.code] += 1
            return failure(request, error)
        except web.HTTPRequestEntityTooLarge:
            limit = self._port.config.max_frame
            return failure(request, TooLarge(f"a request over {limit} bytes (max_frame)"))
        except Exception as error:
            log.exception("%s %s failed: %r", request.method, request.path, error)
            return failure(request, ServerFault("this failed; the server's log says why"))
        finally:
            if connection is not None:
                connection.end()

    def _check_origin(self, request: web.BaseRequest) -> None:
        """Refuse what a web page of another site made a browser send."""
        headers = request.headers
        host, origin = headers.get("Host", ""), headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != host:
            raise Forbidden("a request from a page of another site")
        if headers.get("Sec-Fetch-Site", "none") not in _SAME_SITE:
            raise Forbidden("a request from a page of another site")
        # A name of another site may lead here; a token, which that site cannot know, proves intent.
        if self._port.access.is_open and _name(host) not in self._names:
            raise Forbidden(f"{host!r:.60} is no name of this server; add it with --allowed-hosts")

    def _methods(self, request: web.BaseRequest) -> Methods:
        if self._open_methods is not None:
            return self._open_methods
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() != "bearer":
            raise Unauthorized("this server wants a token: Authorization: Bearer TOKEN")
        principal = self._port.access.principal(token.strip())
        return self._port.service.methods_for(principal)


@lru_cache(100)
def _name(host: str) -> str:
    """The name in a Host header, without its port.

    >>> _name("localhost:7709"), _name("[::1]:7709"), _name("cache")
    ('localhost', '::1', 'cache')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()
