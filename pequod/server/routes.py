"""The HTTP routes: the methods by `POST /rpc`, plain reads for people, health and metrics.

JSON has no bytes, so a value of bytes is written {"base64": "..."}, in both directions.
"""

import asyncio
import base64
import binascii
import json
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from aiohttp import web

from pequod.errors import (
    BadRequest,
    ComputedKey,
    Forbidden,
    MissingData,
    PequodError,
    ServerFault,
    TimedOut,
    TooLarge,
    Unauthorized,
    UnknownJoin,
    UnknownMethod,
)
from pequod.keys import prefix
from pequod.server.metrics import exposition
from pequod.server.openapi import document
from pequod.server.pages import HOME
from pequod.server.service import Methods, check_arguments, too_large, unknown_method
from pequod.server.tcp import Port
from pequod.wire import BROKEN, error_map, packer, unpack_request

JSON, MSGPACK = "application/json", "application/msgpack"
MAX_BATCH = 10_000  # calls

Handler = Callable[[web.BaseRequest, Methods], Awaitable[web.StreamResponse]]


class NoSuchKey(PequodError):
    """The answer of a plain read that finds nothing."""

    code = "no_such_key"


class UnsupportedType(BadRequest):
    """A body in a format that is not spoken here."""

    code = "unsupported_type"


class NoSuchRoute(PequodError):
    """A path that leads nowhere."""

    code = "no_such_route"


class WrongVerb(BadRequest):
    """A path that does not take this verb."""

    code = "wrong_verb"

    def __init__(self, message: str, allowed: str) -> None:
        super().__init__(message)
        self.allowed = allowed


_STATUS: tuple[tuple[type[PequodError], int], ...] = (
    (TooLarge, 413),
    (ComputedKey, 409),
    (UnknownMethod, 404),
    (UnknownJoin, 404),
    (NoSuchKey, 404),
    (NoSuchRoute, 404),
    (WrongVerb, 405),
    (UnsupportedType, 415),
    (TimedOut, 408),
    (MissingData, 503),
    (Unauthorized, 401),
    (Forbidden, 403),
    (ServerFault, 500),
    (PequodError, 400),
)
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}
_HEADERS_OF = {kind: {**_HEADERS, "Content-Type": kind} for kind in (JSON, MSGPACK)}
_PAGE_HEADERS = {
    **_HEADERS,
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "frame-ancestors 'none'; base-uri 'none'",
}


class Route(NamedTuple):
    """What answers a path; an open one needs no token."""

    verb: str
    handler: Handler
    is_open: bool = False


class Routes:
    """All paths of a server."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._paths = {
            "/": Route("GET", self.home),
            "/healthz": Route("GET", self.health, is_open=True),
            "/livez": Route("GET", self.health, is_open=True),
            "/readyz": Route("GET", self.ready, is_open=True),
            "/metrics": Route("GET", self.metrics),
            "/openapi.json": Route("GET", self.openapi),
            "/v1/get": Route("GET", self.get),
            "/v1/scan": Route("GET", self.scan),
            "/v1/count": Route("GET", self.count),
            "/v1/explain": Route("GET", self.explain),
            "/v1/joins": Route("GET", self.joins),
            "/v1/stats": Route("GET", self.stats),
            "/rpc": Route("POST", self.rpc),
        }

    def find(self, verb: str, path: str) -> Route:
        route = self._paths.get(path)
        if route is None:
            raise NoSuchRoute(f"there is no {path!r:.60}; / lists what there is")
        if verb != route.verb and (verb, route.verb) != ("HEAD", "GET"):
            raise WrongVerb(f"{path} takes {route.verb}, not {verb:.20}", route.verb)
        return route

    # Reads for people.

    async def get(self, request: web.BaseRequest, methods: Methods) -> web.Response:
        key = _needed(_query(request, "key"), "key")
        value = self._call(methods, "get", key)
        if value is None:
            raise NoSuchKey(f"there is no key {key!r:.100}")
        return self._answer(value)

    async def scan(self, request: web.BaseRequest, methods: Methods) -> web.Response:
        query = _query(request, "prefix", "first", "last", "limit", "reverse")
        limit, reverse = _number(query, "limit"), _flag(query, "reverse")
        return self._answer(self._call(methods, "scan", *_range(query), limit, reverse))

    async def count(self, request: web.BaseRequest, methods: Methods) -> web.Response:
        query = _query(request, "prefix", "first", "last")
        return self._answer(self._call(methods, "count", *_range(query)))

    async def explain(self, request: web.BaseRequest, methods: Methods) -> web.Response:
        query = _query(request, "prefix", "first", "last")
        return self._answer(self._call(methods, "explain", *_range(query)))

    async def joins(self, request: web.BaseRequest, methods: Methods) -> web.Response:
        _query(request)
        return self._answer(self._call(methods, "joins"))

    async def stats(self, request: web.BaseRequest, methods: Methods) -> web.Response:
        _query(request)
        return self._answer(self._call(methods, "stats"))

    # Everything, for programs.

    async def rpc(self, request: web.BaseRequest, methods: Methods) -> web.Response:
        """One call `[method, args...]`, or a list of calls, in JSON or msgpack."""
        kind = request.content_type
        if kind not in (JSON, MSGPACK):
            raise UnsupportedType(f"a body of {kind:.60}; send {JSON} or {MSGPACK}")
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise UnsupportedType("a compressed body; send it as it is")
        said = _parsed(await self._body(request), kind)
        if not isinstance(said, list | tuple) or not said:
            raise BadRequest("say [method, argument...], or a list of such calls")
        if isinstance(said[0], str):
            return self._answer({"result": self._call(methods, *said)}, kind)
        if len(said) > MAX_BATCH:
            raise TooLarge(f"{len(said)} calls in a batch; at most {MAX_BATCH}")
        return self._answer([self._outcome(methods, call) for call in said], kind)

    async def _body(self, request: web.BaseRequest) -> bytes:
        seconds = self._port.config.request_seconds
        try:
            async with asyncio.timeout(seconds):
                return await request.read()
        except TimeoutError as error:
            raise TimedOut(f"the body did not arrive in {seconds:g} seconds") from error

    def _outcome(self, methods: Methods, call: object) -> dict[str, Any]:
        """What one call of a batch has come to."""
        try:
            if not isinstance(call, list | tuple) or not call or not isinstance(call[0], str):
                raise BadRequest("a call is [method, argument...]")
            return {"result": self._call(methods, *call)}
        except PequodError as error:
            return {"error": error_map(error)}

    def _call(self, methods: Methods, name: str, *args: Any) -> Any:
        method = methods.get(name)
        if method is None:
            raise unknown_method(name)
        try:
            result = method(*args)
        except TypeError:
            check_arguments(name, method, args)
            raise
        self._port.service.calls[name] += 1
        return result

    def _answer(self, result: Any, kind: str = JSON) -> web.Response:
        return answer(result, kind, limit=self._port.config.max_reply)

    # The server itself.

    async def home(self, request: web.BaseRequest, methods: Methods) -> web.Response:
        return web.Response(text=HOME, content_type="text/html", headers=_PAGE_HEADERS)

    async def health(self, request: web.BaseRequest, methods: Methods) -> web.Response:
        return answer({"status": "ok"})

    async def ready(self, request: web.BaseRequest, methods: Methods) -> web.Response:
        if self._port.draining:
            return answer({"status": "stopping"}, status=503)
        return answer({"status": "ok"})

    async def metrics(self, request: web.BaseRequest, methods: Methods) -> web.Response:
        text = exposition(self._call(methods, "stats"))
        headers = {**_HEADERS, "Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=text.encode(), headers=headers)

    async def openapi(self, request: web.BaseRequest, methods: Methods) -> web.Response:
        return answer(document())


# Answers.


def answer(
    result: Any, kind: str = JSON, status: int = 200, limit: int = sys.maxsize
) -> web.Response:
    body = packer()(result) if kind == MSGPACK else f"{_to_json(result)}\n".encode()
    if len(body) > limit:
        raise too_large(limit)
    return web.Response(body=body, status=status, headers=_HEADERS_OF[kind])


def failure(request: web.BaseRequest, error: PequodError) -> web.Response:
    """The answer for an error, in the format of the request."""
    kind = MSGPACK if request.content_type == MSGPACK and request.path == "/rpc" else JSON
    status = next(status for of, status in _STATUS if isinstance(error, of))
    response = answer({"error": error_map(error)}, kind, status)
    if isinstance(error, Unauthorized):
        response.headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, WrongVerb):
        response.headers["Allow"] = error.allowed
    return response


def _written(value: object) -> dict[str, str]:
    assert isinstance(value, bytes), f"{type(value).__name__} is not a part of any answer"
    return {"base64": base64.b64encode(value).decode()}


_to_json = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, default=_written, separators=(",", ":")
).encode


def _parsed(body: bytes, kind: str) -> Any:
    try:
        if kind == MSGPACK:
            return unpack_request(body)
        return json.loads(body.decode("utf-8"), object_hook=_read)
    except (*BROKEN, binascii.Error) as error:
        raise BadRequest(f"the body is no {kind}: {error}") from error


def _read(found: dict[str, Any]) -> Any:
    if found.keys() == {"base64"} and isinstance(found["base64"], str):
        return base64.b64decode(found["base64"], validate=True)
    return found


# Query parameters.


def _query(request: web.BaseRequest, *known: str) -> dict[str, str]:
    """The parameters of the address, each known and given once."""
    found: dict[str, str] = {}
    for name, value in request.query.items():
        if name not in known:
            raise BadRequest(f"no parameter {name!r:.40}; {_listed(known)}")
        if name in found:
            raise BadRequest(f"parameter {name} is there twice")
        found[name] = value
    return found


def _listed(known: Iterable[str]) -> str:
    names = ", ".join(known)
    return f"there are {names}" if names else "there are none here"


def _needed(query: dict[str, str], name: str) -> str:
    if name not in query:
        raise BadRequest(f"parameter {name} is missing")
    return query[name]


def _range(query: dict[str, str]) -> tuple[str, str]:
    if "prefix" in query:
        if "first" in query or "last" in query:
            raise BadRequest("give either prefix, or first and last")
        return prefix(query["prefix"])
    return _needed(query, "first"), _needed(query, "last")


def _number(query: dict[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise BadRequest(f"{name} is a number of rows, not {text!r:.40}")
    return int(text)


def _flag(query: dict[str, str], name: str) -> bool:
    text = query.get(name, "false")
    if text not in ("true", "false", "1", "0"):
        raise BadRequest(f"{name} is true or false, not {text!r:.40}")
    return text in ("true", "1")
