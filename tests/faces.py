"""The four ways to a cache, each with the methods of `Cache`: one test can run over all.

`Cache` itself, the blocking `Client`, `AsyncClient`, and HTTP in JSON.
"""

import base64
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any

from pequod import AsyncClient, Cache, Client
from pequod.wire import error_of
from tests.live import LiveServer, LoopThread

METHODS = (
    "get",
    "put",
    "remove",
    "scan",
    "count",
    "digest",
    "add_join",
    "drop_join",
    "joins",
    "explain",
    "stats",
    "put_many",
    "remove_range",
)


class AsyncFace:
    """`AsyncClient`, with each call awaited."""

    def __init__(self, url: str) -> None:
        self._loop = LoopThread()
        self._client = AsyncClient(url)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        return lambda *args, **options: self._loop.run(method(*args, **options))

    def close(self) -> None:
        self._loop.run(self._client.close())
        self._loop.close()


class HttpFace:
    """`POST /rpc` in JSON."""

    def __init__(self, port: int) -> None:
        self._connection = HTTPConnection("127.0.0.1", port)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **options: self._call(name, args, options)

    def _call(self, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if options:  # over the wire, arguments have no names
            args = (*args, options.get("limit"), options.get("reverse", False))
        body = json.dumps([name, *map(_sent, args)])
        self._connection.request("POST", "/rpc", body, {"Content-Type": "application/json"})
        answer = json.loads(self._connection.getresponse().read(), object_hook=_received)
        if "error" in answer:
            raise error_of(answer["error"])
        if name == "scan":
            return [tuple(row) for row in answer["result"]]
        return answer["result"]

    def close(self) -> None:
        self._connection.close()


def _sent(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {key: _sent(item) for key, item in value.items()}
    return [_sent(item) for item in value] if isinstance(value, list | tuple) else value


def _received(found: dict[str, Any]) -> Any:
    return base64.b64decode(found["base64"]) if found.keys() == {"base64"} else found


FACES = ("cache", "client", "async", "http")


@contextmanager
def face(kind: str, clock: Callable[[], float] = time.monotonic) -> Iterator[Any]:
    """An empty cache, behind one of the faces."""
    if kind == "cache":
        yield Cache(clock=clock)
        return
    with LiveServer(clock) as live:
        one: Any = {
            "client": lambda: Client(live.url),
            "async": lambda: AsyncFace(live.url),
            "http": lambda: HttpFace(live.port),
        }[kind]()
        try:
            yield one
        finally:
            one.close()
