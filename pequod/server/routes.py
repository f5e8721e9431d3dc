"""The HTTP routes: the methods by `POST /rpc`, plain reads for people, health and metrics."""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from email.utils import formatdate
from functools import lru_cache, partial
from time import monotonic, time
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote_plus

from aiohttp import web

from pequod.errors import (
    BadRequest,
    MissingData,
    PequodError,
    ServerFault,
    TimedOut,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from pequod.keys import EVERYTHING, KeyRange, prefix
from pequod.server.access import READ, Principal
from pequod.server.feeds import Event, Listener
from pequod.server.formats import (
    JSON,
    MSGPACK,
    NoSuchKey,
    NoSuchRoute,
    UnsupportedType,
    WrongVerb,
    array,
    packed,
    parsed,
    status_of,
)
from pequod.server.loading import Later
from pequod.server.metrics import exposition
from pequod.server.openapi import document
from pequod.server.pages import CONSOLE
from pequod.server.service import SLICE_SECONDS, Caller, check_arguments, too_large, unknown_method
from pequod.server.tcp import Port
from pequod.wire import error_map

log = logging.getLogger("pequod.server")

MAX_BATCH = 10_000  # calls
BEAT_SECONDS = 15.0  # between signs of life in a stream, which also find out who has left

Result = TypeVar("Result")
Read = Callable[[web.BaseRequest, Caller], "Answer"]
Talk = Callable[[web.BaseRequest, Caller], Awaitable[web.StreamResponse]]


# How aiohttp says that a body is broken, or that the client has left; the last, if before it read.
_BROKEN_OFF = (web.RequestPayloadError, ConnectionError, RuntimeError)

_SAFETY = "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
_PAGE_SAFETY = (
    "Content-Security-Policy: default-src 'self'; img-src data:; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'self'\r\n"
)
_STREAM_HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}

NOBODY = Caller(Principal("nobody", READ, ()), {})


class Route(NamedTuple):
    """What answers a path: at once, or by and by. An open one needs no token."""

    read: Read | None = None
    talk: Talk | None = None
    verb: str = "GET"
    is_open: bool = False


class Routes:
    """All paths of a server."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._paths = {
            "/": Route(self.file, is_open=True),
            "/console.js": Route(self.file, is_open=True),
            "/console.css": Route(self.file, is_open=True),
            "/healthz": Route(self.health, is_open=True),
            "/livez": Route(self.health, is_open=True),
            "/readyz": Route(self.ready, is_open=True),
            "/metrics": Route(self.metrics),
            "/openapi.json": Route(self.openapi),
            "/v1/get": Route(self.get),
            "/v1/scan": Route(self.scan),
            "/v1/count": Route(self.count),
            "/v1/explain": Route(self.explain),
            "/v1/joins": Route(self.joins),
            "/v1/stats": Route(self.stats),
            "/v1/watch": Route(talk=self.watch),
            "/rpc": Route(talk=self.rpc, verb="POST"),
        }

    def find(self, verb: str, path: str) -> Route:
        route = self._paths.get(path)
        if route is None:
            raise NoSuchRoute(f"there is no {path!r:.60}; / lists what there is")
        is_stream = route.verb == "GET" and route.talk is not None
        verbs = ("GET", "HEAD") if route.verb == "GET" and not is_stream else (route.verb,)
        if verb not in verbs:
            raise WrongVerb(f"{path} takes {route.verb}, not {verb:.20}", ", ".join(verbs))
        return route

    # Reads for people.

    def get(self, request: web.BaseRequest, caller: Caller) -> "Answer":
        query = _query(request, "key", "after")
        key = _needed(query, "key")
        value = self._call(caller, "get", key, *_after(query))
        if value is None:
            raise NoSuchKey(f"there is no key {key!r:.100}")
        return self._answer(value)

    def scan(self, request: web.BaseRequest, caller: Caller) -> "Answer":
        query = _query(request, "prefix", "first", "last", "limit", "reverse", "after")
        page = _number(query, "limit"), _flag(query, "reverse")
        return self._answer(self._call(caller, "scan", *_range(query), *page, *_after(query)))

    def count(self, request: web.BaseRequest, caller: Caller) -> "Answer":
        query = _query(request, "prefix", "first", "last", "after")
        return self._answer(self._call(caller, "count", *_range(query), *_after(query)))

    def explain(self, request: web.BaseRequest, caller: Caller) -> "Answer":
        query = _query(request, "prefix", "first", "last")
        return self._answer(self._call(caller, "explain", *_range(query)))

    def joins(self, request: web.BaseRequest, caller: Caller) -> "Answer":
        _query(request)
        return self._answer(self._call(caller, "joins"))

    def stats(self, request: web.BaseRequest, caller: Caller) -> "Answer":
        _query(request)
        return self._answer(self._call(caller, "stats"))

    async def watch(self, request: web.BaseRequest, caller: Caller) -> web.StreamResponse:
        """A range as it changes, as server-sent events."""
        keys = _range(_query(request, "prefix", "first", "last"))
        caller.principal.check_reach("watch", [keys])
        told = asyncio.Event()
        seen = request.headers.get("Last-Event-ID")
        listener = await self.finished(
            lambda: self._port.feeds.listen(keys, lambda _: told.set(), seen)
        )
        try:
            return await self._stream(request, listener, told)
        finally:
            listener.leave()

    async def _stream(
        self, request: web.BaseRequest, listener: Listener, told: asyncio.Event
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers=_STREAM_HEADERS)
        response.force_close()  # what ends a stream is the end of its connection
        await response.prepare(request)
        with suppress(ConnectionError):  # the client has left
            while not listener.has_ended:
                told.clear()
                text = "".join(map(_event_text, listener.take())) or ": still here\n\n"
                await response.write(text.encode())
                with suppress(TimeoutError):
                    async with asyncio.timeout(BEAT_SECONDS):
                        await told.wait()
        return response

    async def finished(self, call: Callable[[], Result]) -> Result:
        """The result of a call, at once or after it has waited for data from elsewhere."""
        try:
            return call()
        except (MissingData, Later) as reason:
            return await self._port.loader.finish(call, reason)

    # Everything, for programs.

    async def rpc(self, request: web.BaseRequest, caller: Caller) -> "Answer":
        """One call `[method, args...]`, or a list of calls, in JSON or msgpack."""
        kind = request.content_type
        if kind not in (JSON, MSGPACK):
            raise UnsupportedType(f"a body of {kind:.60}; send {JSON} or {MSGPACK}")
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise UnsupportedType("a compressed body; send it as it is")
        said = parsed(await self._body(request), kind)
        if not isinstance(said, list | tuple) or not said:
            raise BadRequest("say [method, argument...], or a list of such calls")
        if isinstance(said[0], str):
            result = await self.finished(partial(self._call, caller, *said))
            return self._answer({"result": result}, kind)
        if len(said) > MAX_BATCH:
            raise TooLarge(f"{len(said)} calls in a batch; at most {MAX_BATCH}")
        body = array(await self._batch(caller, said, kind), kind)
        return Answer(body, kind)

    async def _body(self, request: web.BaseRequest) -> bytes:
        limit, seconds = self._port.config.max_frame, self._port.config.request_seconds
        if (request.content_length or 0) > limit:
            raise _too_long(limit)
        try:
            async with asyncio.timeout(seconds):
                if request.headers.get("Expect", "").lower() == "100-continue":
                    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                return await request.read()
        except web.HTTPRequestEntityTooLarge as error:
            raise _too_long(limit) from error
        except TimeoutError as error:
            raise TimedOut(f"the body did not arrive in {seconds:g} seconds") from error
        except _BROKEN_OFF as error:
            error.__traceback__ = None  # aiohttp keeps it: a cycle that nobody would collect
            raise BadRequest(f"the body broke off: {error}") from error

    async def _batch(self, caller: Caller, calls: Iterable[object], kind: str) -> list[bytes]:
        """What each call has come to; others are served in between."""
        outcomes, size, limit = [], 0, self._port.config.max_reply
        end = monotonic() + SLICE_SECONDS
        for call in calls:
            outcome = await self._outcome(caller, call, kind)
            if size + len(outcome) > limit:
                outcome = packed({"error": error_map(too_large(limit))}, kind)
            size += len(outcome)
            outcomes.append(outcome)
            if monotonic() > end:
                await asyncio.sleep(0)
                if self._port.draining:
                    raise Unavailable("the server stops")
                end = monotonic() + SLICE_SECONDS
        return outcomes

    async def _outcome(self, caller: Caller, call: object, kind: str) -> bytes:
        """What one call of a batch has come to."""
        try:
            if not isinstance(call, list | tuple) or not call or not isinstance(call[0], str):
                raise BadRequest("a call is [method, argument...]")
            result = await self.finished(partial(self._call, caller, *call))
            return packed({"result": result}, kind)
        except PequodError as error:
            return self._refused(error, kind)
        except Exception as error:
            log.exception("a call of a batch failed: %r", error)
            return self._refused(ServerFault("this failed; the server's log says why"), kind)

    def _refused(self, error: PequodError, kind: str) -> bytes:
        self._port.service.errors[error.code] += 1
        return packed({"error": error_map(error)}, kind)

    def _call(self, caller: Caller, name: str, *args: Any) -> Any:
        method = caller.methods.get(name)
        if method is None:
            raise unknown_method(name)
        try:
            result = method(*args)
        except TypeError:
            check_arguments(name, method, args)
            raise
        self._port.service.calls[name] += 1
        return result

    def _answer(self, result: Any, kind: str = JSON) -> "Answer":
        more, database = "", self._port.database
        if database is not None and database.age:
            more = f"Age: {int(database.age)}\r\nX-Pequod-Age: {database.age:.3f}\r\n"
        return answer(result, kind, limit=self._port.config.max_reply, more=more)

    # The server itself.

    def file(self, request: web.BaseRequest, caller: Caller) -> "Answer":
        """A file of the console; it knows nothing before it has asked, so it needs no token."""
        body, kind = CONSOLE[request.path]
        return Answer(body, kind, more=_PAGE_SAFETY)

    def health(self, request: web.BaseRequest, caller: Caller) -> "Answer":
        return answer({"status": "ok"})

    def ready(self, request: web.BaseRequest, caller: Caller) -> "Answer":
        if self._port.draining or not self._port.ready:
            return answer({"status": "stopping"}, status=503)
        database = self._port.database
        if database is not None and not database.is_ready:
            return answer({"status": "catching up", "database": database.stats()}, status=503)
        return answer({"status": "ok"})

    def metrics(self, request: web.BaseRequest, caller: Caller) -> "Answer":
        text = exposition(self._call(caller, "stats"))
        return Answer(text.encode(), "text/plain; version=0.0.4; charset=utf-8")

    def openapi(self, request: web.BaseRequest, caller: Caller) -> "Answer":
        return answer(document(self._port.loader.has_source))


# Answers.


class Answer(web.StreamResponse):
    """A finished answer: the head, put together at once, leaves with the body in one write."""

    def __init__(self, body: bytes, kind: str, status: int = 200, more: str = "") -> None:
        """`more` has further headers, each with its line end."""
        super().__init__(status=status)
        self._rest = f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n{_SAFETY}{more}"
        self._whole = body

    async def prepare(self, request: web.BaseRequest) -> None:
        if self._keep_alive is None:
            self._keep_alive = request.keep_alive
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the client has left")
        major, minor = request.version
        head = (
            f"HTTP/{major}.{minor} {self.status} {self.reason}\r\n{self._rest}"
            f"Date: {_date(int(time()))}\r\n"
            f"Connection: {'keep-alive' if self._keep_alive else 'close'}\r\n\r\n"
        )
        body = b"" if request.method == "HEAD" else self._whole
        transport.write(head.encode() + body)
        await request.writer.drain()

    async def write_eof(self, data: bytes = b"") -> None:
        self._eof_sent = True


@lru_cache(1)
def _date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)


def answer(
    result: Any,
    kind: str = JSON,
    status: int = 200,
    limit: int = sys.maxsize,
    more: str = "",
) -> "Answer":
    """A result as a response; one over the limit is refused."""
    body = packed(result, kind)
    if len(body) > limit:
        raise too_large(limit)
    return Answer(body, kind, status, more)


def failure(request: web.BaseRequest, error: PequodError) -> "Answer":
    """The answer for an error, in the format of the request."""
    kind = MSGPACK if request.content_type == MSGPACK and request.path == "/rpc" else JSON
    more = ""
    if isinstance(error, Unauthorized):
        more = "WWW-Authenticate: Bearer\r\n"
    if isinstance(error, WrongVerb):
        more = f"Allow: {error.allowed}\r\n"
    return answer({"error": error_map(error)}, kind, status_of(error), more=more)


def _too_long(limit: int) -> TooLarge:
    return TooLarge(f"a request over {limit} bytes (max_frame)")


def _event_text(event: Event) -> str:
    data = packed(event.data, JSON).decode().rstrip()
    return f"id: {event.id}\nevent: {event.kind}\ndata: {data}\n\n"


# Query parameters.


def _query(request: web.BaseRequest, *known: str) -> dict[str, str]:
    """The parameters of the address, each known and given once."""
    found: dict[str, str] = {}
    text = request.raw_path.partition("?")[2]
    for part in text.split("&") if text else ():
        name, _, value = part.partition("=")
        if "%" in part or "+" in part:
            name, value = _decoded(name), _decoded(value)
        if name not in known:
            raise BadRequest(f"no parameter {name!r:.40}; {_listed(known)}")
        if name in found:
            raise BadRequest(f"parameter {name} is there twice")
        found[name] = value
    return found


def _decoded(text: str) -> str:
    try:
        return unquote_plus(text, errors="strict")
    except UnicodeDecodeError as error:
        raise BadRequest(f"{text!r:.60} is not UTF-8") from error


def _listed(known: Iterable[str]) -> str:
    names = ", ".join(known)
    return f"there are {names}" if names else "there are none here"


def _needed(query: dict[str, str], name: str) -> str:
    if name not in query:
        raise BadRequest(f"parameter {name} is missing")
    return query[name]


def _range(query: dict[str, str]) -> KeyRange:
    """The keys that have the prefix and lie between first and last; each may be left out."""
    within = KeyRange(query.get("first", EVERYTHING.first), query.get("last", EVERYTHING.last))
    return prefix(query["prefix"]).clip(within) if "prefix" in query else within


def _after(query: dict[str, str]) -> tuple[str, ...]:
    """The token of a write to wait for, if there is one."""
    return (query["after"],) if "after" in query else ()


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
