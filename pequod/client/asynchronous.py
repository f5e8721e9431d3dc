"""The asyncio client. Calls made in one turn of the event loop leave in one write.

One connection serves any number of tasks (`pipelined.py`); the client makes it, and makes it anew.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar

from pequod.client.address import address_of, is_map
from pequod.client.calls import (
    PAGE_ROWS,
    REPEATABLE,
    Backoff,
    Event,
    Pages,
    checked_timeout,
    pairs_of,
    plain,
    rows,
    structure,
    timed,
    unreachable,
)
from pequod.client.pipelined import Connection, heard
from pequod.client.session import Claiming
from pequod.errors import TimedOut, TooLarge, Unavailable
from pequod.keys import Pair, Value

Result = TypeVar("Result")


class AsyncClient(Claiming):
    """A client for asyncio with the methods of `Cache`.

    async with AsyncClient("pequod://localhost:7709") as pq:
        rows = await pq.scan(*prefix("t|ann|"), limit=20, reverse=True)

    It connects when it is first used, and again when the connection was lost. Calls that only read
    are then made again by themselves; a write that was on its way raises `Unavailable`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        timeout: float = 10.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Without a `url`, that of the variable PEQUOD_URL; `timeout` is in seconds."""
        self._address = address_of(url, token, tls)
        self._timeout = checked_timeout(timeout)
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[Connection] | None = None
        self._backoff = Backoff()
        self._closed = False

    # What `pequod.cluster` makes of the map of a cluster: it lies above, and tells by itself.
    of_cluster: ClassVar["type[AsyncClient] | None"] = None

    def __new__(cls, url: str | None = None, **_: Any) -> Self:
        """With the path of a cluster's map, a client of that cluster."""
        if cls is AsyncClient and cls.of_cluster is not None and is_map(url):
            return super().__new__(cls.of_cluster)  # type: ignore[return-value]
        return super().__new__(cls)

    # The methods of `Cache`.

    async def get(self, key: str, *, after: str | None = None) -> Value | None:
        """The value of a key, or None; `after` is as for `scan`."""
        return await self._call("get", (key,) if after is None else (key, after), plain)

    async def put(self, key: str, value: Value) -> str | None:
        """Set a base row; a key that a join computes is refused.

        Gives a token for `after` if the row was written to a database behind the cache.
        """
        return await self._call("put", (key, value), plain)

    async def remove(self, key: str) -> bool:
        """Remove a base row; False if there was none."""
        return await self._call("remove", (key,), plain)

    async def scan(
        self,
        first: str,
        last: str,
        limit: int | None = None,
        reverse: bool = False,
        *,
        after: str | None = None,
    ) -> list[Pair]:
        """The rows with `first <= key < last`, in key order or reversed, at most `limit`.

        With the token of a write as `after`, the answer has that write: the server waits for it.
        """
        if after is not None:
            return await self._call("scan", (first, last, limit, reverse, after), rows)
        if limit is None and reverse is False:
            return await self._call("scan", (first, last), rows)
        return await self._call("scan", (first, last, limit, reverse), rows)

    async def count(self, first: str, last: str, *, after: str | None = None) -> int:
        """The number of rows with `first <= key < last`; `after` is as for `scan`."""
        args = (first, last) if after is None else (first, last, after)
        return await self._call("count", args, plain)

    async def digest(self, first: str, last: str) -> tuple[int, str]:
        """The number of rows of a range, and a digest of them."""
        return await self._call("digest", (first, last), plain)

    async def put_many(self, pairs: Iterable[Pair] | Mapping[str, Value]) -> str | None:
        """Set many base rows in one step, or, if one of them is refused, none; see `put`."""
        return await self._call("put_many", (pairs_of(pairs),), plain)

    async def remove_range(self, first: str, last: str) -> int:
        """Remove the base rows of a range and say how many there were; computed rows stay."""
        return await self._call("remove_range", (first, last), plain)

    async def add_join(self, text: str) -> list[dict[str, Any]]:
        """Install the joins of `text`, all or none; gives the name and warnings of each."""
        return await self._call("add_join", (text,), structure)

    async def drop_join(self, name: str) -> None:
        """Take a join and all it computed away."""
        return await self._call("drop_join", (name,), plain)

    async def joins(self) -> list[dict[str, Any]]:
        """The installed joins in the order of their installation."""
        return await self._call("joins", (), structure)

    async def explain(self, first: str, last: str) -> dict[str, Any]:
        """Which joins make up a range, from which sources, fresh or not, and at what cost."""
        return await self._call("explain", (first, last), structure)

    async def stats(self) -> dict[str, Any]:
        """Counts and bytes, in all, per table and per join, and of the server."""
        return await self._call("stats", (), structure)

    async def timed(self, method: str, *args: Any) -> tuple[Any, float]:
        """The result of a method, and the microseconds that it took in the server."""
        return await self._call("timed", (method, *args), timed)

    async def iterate(
        self, first: str, last: str, *, reverse: bool = False, page: int = PAGE_ROWS
    ) -> AsyncIterator[Pair]:
        """The rows of a range of any length, asked for page after page."""
        pages = Pages(first, last, reverse, page)
        while not pages.done:
            try:
                found = await self.scan(*pages.arguments)
            except TooLarge as error:
                pages.shrink(error)
                continue
            pages.turn(found)
            for row in found:
                yield row

    async def watch(self, first: str, last: str) -> AsyncGenerator[Event, None]:
        """The rows of a range, then each change to them, for as long as one listens.

        If the connection is lost, it goes on where it was, or, if too much was missed, with a
        new `init`.
        """
        async with aclosing(self._watch(first, last)) as events:
            async for event in events:
                yield event

    async def _watch(
        self, first: str, last: str, patience: float | None = None
    ) -> AsyncGenerator[Event, None]:
        """The same; with `patience` it ends with the connection, which is waited for so long."""
        seen: str | None = None
        has_begun = False
        backoff = Backoff()
        while True:
            try:
                connection = await self._connect(self._deadline(patience))
            except Unavailable:
                if self._closed or not has_begun or patience is not None:
                    raise
                continue  # connecting has pauses of its own
            topic, events = connection.subscribe()
            try:
                await connection.call("watch", (topic, first, last, seen))
                has_begun, backoff = True, Backoff()
                async for event in heard(events):
                    seen = event.id
                    yield event
                seen = None  # we were too slow, and start again
            except Unavailable:
                if self._closed or patience is not None:
                    raise
                if connection.is_open:  # the server itself said so, and may soon be better
                    await asyncio.sleep(backoff.next_seconds())
            finally:
                connection.unsubscribe(topic)

    # The connection.

    async def close(self) -> None:
        """Close the connection; calls that wait fail with `Unavailable`."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _call(
        self,
        method: str,
        args: tuple[Any, ...],
        read: Callable[[Any], Result],
        patience: float | None = None,
    ) -> Result:
        """The result of a call; a connection is waited for so long, or for the timeout."""
        connection = self._connection
        end = None
        while True:
            if connection is None or not connection.is_open:
                end = end or self._deadline(patience)
                connection = await self._connect(end)
            try:
                return read(await connection.call(method, args))
            except TimedOut:
                raise
            except Unavailable:
                # If the connection stands, it is the server that says so.
                if method not in REPEATABLE or self._closed or connection.is_open:
                    raise

    def _deadline(self, patience: float | None = None) -> float:
        seconds = self._timeout if patience is None else min(patience, self._timeout)
        return asyncio.get_running_loop().time() + seconds

    async def _connect(self, end: float) -> Connection:
        """An open connection, made by one task for all that wait for it."""
        loop = asyncio.get_running_loop()
        while self._connection is None or not self._connection.is_open:
            if self._closed:
                raise Unavailable("this client is closed")
            if self._connecting is None:
                self._connecting = loop.create_task(self._reach())
                self._connecting.add_done_callback(self._connected)
            wait = asyncio.shield(self._connecting)
            try:
                await asyncio.wait_for(wait, max(0.0, end - loop.time()))
            except TimeoutError as error:
                raise Unavailable(
                    f"no server answers at {self._address}; is it running?"
                ) from error
            except asyncio.CancelledError:
                if self._closed:  # and so it was the connecting that was cancelled
                    raise Unavailable("this client is closed") from None
                raise
        return self._connection

    def _connected(self, task: "asyncio.Task[Connection]") -> None:
        self._connecting = None
        if not task.cancelled() and task.exception() is None:
            self._connection = task.result()
            if self._closed:
                self._connection.close()

    async def _reach(self) -> Connection:
        """Try until a connection stands, with pauses that grow; a first one must stand at once."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._timeout
        if self._connection is None or self._connection.has_answered:
            self._backoff = Backoff()
        else:
            await asyncio.sleep(self._backoff.next_seconds())
        while True:
            try:
                return await self._open()
            except OSError as error:
                if self._connection is None or loop.time() > end:
                    raise unreachable(self._address, error) from error
            await asyncio.sleep(self._backoff.next_seconds())

    async def _open(self) -> Connection:
        host, port, tls, token = self._address
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(self._timeout), host, port, ssl=tls
        )
        if token is not None:
            try:
                await connection.call("auth", (token,))
            except BaseException:  # also if it is cancelled
                connection.close()
                raise
        return connection
