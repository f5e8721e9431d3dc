"""The HTTP routes: the methods by `POST /rpc`, plain reads for people, health and metrics.

JSON has no bytes, so a value of bytes is written {"base64": "..."}, in both directions.
"""

import asyncio
import base64
import binascii
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

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
from pequod.server import metrics, pages
from pequod.server.openapi import document
from pequod.server.service import Methods, check_arguments, too_large, unknown_method
from pequod.server.tcp import Port
from pequod.wire import BROKEN, error_map, packer, unpack_request

JSON, MSGPACK = "application/json", "application/msgpack"
MAX_BATCH = 10_000  # calls

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

SERVICE = web.AppKey("port", Port)
METHODS: web.RequestKey[Methods] = web.RequestKey("methods", object)  # type: ignore[arg-type]


class NoSuchKey(PequodError):
    """The answer of a plain read that finds nothing."""

    code = "no_such_key"


class UnsupportedType(BadRequest):
    """A body in a format that is not spoken here."""

    code = "unsupported_type"


_STATUS: tuple[tuple[type[PequodError], int], ...] = (
    (TooLarge, 413),
    (ComputedKey, 409),
    (UnknownMethod, 404),
    (UnknownJoin, 404),
    (NoSuchKey, 404),
    (UnsupportedType, 415),
    (TimedOut, 408),
    (MissingData, 503),
    (Unauthorized, 401),
    (Forbidden, 403),
    (ServerFault, 500),
    (PequodError, 400),
)
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_PAGE_HEADERS = {
    **_HEADERS,
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "frame-ancestors 'none'; base-uri 'none'",
}


def routes() -> list[web.RouteDef]:
    return [
        web.get("/", home),
        web.get("/healthz", health),
        web.get("/livez", health),
        web.get("/readyz", ready),
        web.get("/metrics", prometheus),
        web.get("/openapi.json", openapi),
        web.get("/v1/get", get),
        web.get("/v1/scan", scan),
        web.get("/v1/count", count),
        web.get("/v1/explain", explain),
        web.get("/v1/joins", joins),
        web.get("/v1/stats", stats),
        web.post("/rpc", rpc),
    ]


# Reads for people.


async def get(request: web.Request) -> web.Response:
    query = _query(request, "key")
    value = _call(request, "get", _needed(query, "key"))
    if value is None:
        raise NoSuchKey(f"there is no key {query['key']!r:.100}")
    return answer(value)


async def scan(request: web.Request) -> web.Response:
    query = _query(request, "prefix", "first", "last", "limit", "reverse")
    limit, reverse = _number(query, "limit"), _flag(query, "reverse")
    return answer(_call(request, "scan", *_range(query), limit, reverse))


async def count(request: web.Request) -> web.Response:
    return answer(_call(request, "count", *_range(_query(request, "prefix", "first", "last"))))


async def explain(request: web.Request) -> web.Response:
    return answer(_call(request, "explain", *_range(_query(request, "prefix", "first", "last"))))


async def joins(request: web.Request) -> web.Response:
    _query(request)
    return answer(_call(request, "joins"))


async def stats(request: web.Request) -> web.Response:
    _query(request)
    return answer(_call(request, "stats"))


# Everything, for programs.


async def rpc(request: web.Request) -> web.Response:
    """One call `[method, args...]`, or a list of calls, in JSON or msgpack."""
    kind = request.content_type
    if kind not in (JSON, MSGPACK):
        raise UnsupportedType(f"a body of {kind}; send {JSON} or {MSGPACK}")
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise UnsupportedType("a compressed body; send it as it is")
    seconds = request.app[SERVICE].config.request_seconds
    try:
        async with asyncio.timeout(seconds):
            body = await request.read()
    except TimeoutError as error:
        raise TimedOut(f"the body did not arrive in {seconds:g} seconds") from error
    said = _parsed(body, kind)
    if not isinstance(said, list | tuple) or not said:
        raise BadRequest("say [method, argument...], or a list of such calls")
    if isinstance(said[0], str):
        return answer({"result": _call(request, *said)}, kind, _limit(request))
    if len(said) > MAX_BATCH:
        raise TooLarge(f"{len(said)} calls in a batch; at most {MAX_BATCH}")
    return answer([_outcome(request, call) for call in said], kind, _limit(request))


def _outcome(request: web.Request, call: object) -> dict[str, Any]:
    """What one call of a batch has come to."""
    try:
        if not isinstance(call, list | tuple) or not call or not isinstance(call[0], str):
            raise BadRequest("a call is [method, argument...]")
        return {"result": _call(request, *call)}
    except PequodError as error:
        return {"error": error_map(error)}


def _call(request: web.Request, name: str, *args: Any) -> Any:
    method = request[METHODS].get(name)
    if method is None:
        raise unknown_method(name)
    try:
        result = method(*args)
    except TypeError:
        check_arguments(name, method, args)
        raise
    request.app[SERVICE].service.calls[name] += 1
    return result


def _limit(request: web.Request) -> int:
    return request.app[SERVICE].config.max_reply


# The server itself.


async def home(request: web.Request) -> web.Response:
    return web.Response(text=pages.HOME, content_type="text/html", headers=_PAGE_HEADERS)


async def health(request: web.Request) -> web.Response:
    return answer({"status": "ok"})


async def ready(request: web.Request) -> web.Response:
    if request.app[SERVICE].draining:
        return web.json_response({"status": "stopping"}, status=503, headers=_HEADERS)
    return answer({"status": "ok"})


async def prometheus(request: web.Request) -> web.Response:
    text = metrics.exposition(_call(request, "stats"))
    headers = {**_HEADERS, "Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
    return web.Response(body=text.encode(), headers=headers)


async def openapi(request: web.Request) -> web.Response:
    return answer(document())


# Answers.


def answer(result: Any, kind: str = JSON, limit: int | None = None) -> web.Response:
    if kind == MSGPACK:
        body = packer()(result)
    else:
        body = json.dumps(result, default=_written, ensure_ascii=False).encode()
    if limit is not None and len(body) > limit:
        raise too_large(limit)
    return web.Response(body=body, content_type=kind, headers=_HEADERS)


def failure(
    request: web.Request, error: PequodError, status: int | None = None, allow: str | None = None
) -> web.Response:
    """The answer for an error, in the format of the request."""
    kind = MSGPACK if request.content_type == MSGPACK and request.path == "/rpc" else JSON
    response = answer({"error": error_map(error)}, kind)
    response.set_status(status or next(code for of, code in _STATUS if isinstance(error, of)))
    if isinstance(error, Unauthorized):
        response.headers["WWW-Authenticate"] = "Bearer"
    if allow is not None:
        response.headers["Allow"] = allow
    return response


def _written(value: object) -> dict[str, str]:
    assert isinstance(value, bytes), f"{type(value).__name__} is not a part of any answer"
    return {"base64": base64.b64encode(value).decode()}


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


def _query(request: web.Request, *known: str) -> dict[str, str]:
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
