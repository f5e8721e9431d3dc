"""The asyncio client. Calls made in one turn of the event loop leave in one write.

One connection serves any number of tasks: a call takes a number, and the reply with that number
resolves its future. Nothing waits for a timer of its own; one timer looks at the oldest call.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from pequod.client.address import address_of
from pequod.client.calls import (
    MAX_REPLY,
    PAGE_ROWS,
    REPEATABLE,
    Backoff,
    Event,
    Pages,
    check_reply,
    check_sizes,
    checked_timeout,
    event_of,
    failure_of,
    lost,
    pairs_of,
    plain,
    rows,
    structure,
    timed,
    unreachable,
)
from pequod.errors import PequodError, ProtocolError, TimedOut, TooLarge, Unavailable
from pequod.keys import Pair, Value
from pequod.wire import BROKEN, PUSH_ID, packed, packer, reply_unpacker

Result = TypeVar("Result")

MAX_EVENTS = 10_000  # that wait for a listener; a slower one starts again
_LOOKS = 4  # times that the oldest call is looked at before it is too late


class AsyncClient:
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
        self._connection: _Connection | None = None
        self._connecting: asyncio.Task[_Connection] | None = None
        self._backoff = Backoff()
        self._closed = False

    # The methods of `Cache`.

    async def get(self, key: str) -> Value | None:
        """The value of a key, or None."""
        return await self._call("get", (key,), plain)

    async def put(self, key: str, value: Value) -> None:
        """Set a base row; a key that a join computes is refused."""
        return await self._call("put", (key, value), plain)

    async def remove(self, key: str) -> bool:
        """Remove a base row; False if there was none."""
        return await self._call("remove", (key,), plain)

    async def scan(
        self, first: str, last: str, limit: int | None = None, reverse: bool = False
    ) -> list[Pair]:
        """The rows with `first <= key < last`, in key order or reversed, at most `limit`."""
        if limit is None and not reverse:
            return await self._call("scan", (first, last), rows)
        return await self._call("scan", (first, last, limit, reverse), rows)

    async def count(self, first: str, last: str) -> int:
        """The number of rows with `first <= key < last`."""
        return await self._call("count", (first, last), plain)

    async def digest(self, first: str, last: str) -> tuple[int, str]:
        """The number of rows of a range, and a digest of them."""
        return await self._call("digest", (first, last), plain)

    async def put_many(self, pairs: Iterable[Pair] | Mapping[str, Value]) -> None:
        """Set many base rows in one step, or, if one of them is refused, none."""
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
        seen: str | None = None
        while True:
            connection = await self._connect(self._deadline())
            topic, events = connection.subscribe()
            try:
                await connection.call("watch", (topic, first, last, seen))
                async for event in _listen(events):
                    seen = event.id
                    yield event
                seen = None  # we were too slow, and start again
            except Unavailable:
                if self._closed:
                    raise
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
        self, method: str, args: tuple[Any, ...], read: Callable[[Any], Result]
    ) -> Result:
        connection = self._connection
        end = None
        while True:
            if connection is None or not connection.is_open:
                end = end or self._deadline()
                connection = await self._connect(end)
            try:
                return read(await connection.call(method, args))
            except TimedOut:
                raise
            except Unavailable:
                if method not in REPEATABLE or self._closed:
                    raise

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._timeout

    async def _connect(self, end: float) -> "_Connection":
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

    def _connected(self, task: "asyncio.Task[_Connection]") -> None:
        self._connecting = None
        if not task.cancelled() and task.exception() is None:
            self._connection = task.result()
            if self._closed:
                self._connection.close()

    async def _reach(self) -> "_Connection":
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

    async def _open(self) -> "_Connection":
        host, port, tls, token = self._address
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: _Connection(self._timeout), host, port, ssl=tls
        )
        if token is not None:
            try:
                await connection.call("auth", (token,))
            except BaseException:  # also if it is cancelled
                connection.close()
                raise
        return connection


def _forget(future: "asyncio.Future[Any]") -> None:
    """Take note of an outcome that nobody waits for."""
    if not future.cancelled():
        future.exception()


async def _listen(events: "asyncio.Queue[Event | PequodError | None]") -> AsyncIterator[Event]:
    """The events of a queue until it says that some were dropped."""
    while (event := await events.get()) is not None:
        if isinstance(event, PequodError):
            raise event
        yield event


class _Connection(asyncio.Protocol):
    """One connection: calls go out in batches, replies find their futures by number."""

    def __init__(self, timeout: float) -> None:
        self.is_open = False
        self.has_answered = False
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._pack = packer()
        self._unpacker = reply_unpacker(MAX_REPLY)
        self._number = 0
        self._out: list[bytes] = []
        self._largest = 0  # request so far
        self._paused = False
        self._waiting: dict[int, tuple[asyncio.Future[Any], float]] = {}
        self._topics: dict[int, asyncio.Queue[Event | PequodError | None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def call(self, method: str, args: tuple[Any, ...]) -> "asyncio.Future[Any]":
        """The future result of a call, which leaves at the end of this turn of the loop."""
        if not self.is_open:
            raise Unavailable("the connection was lost")
        check_sizes(method, args)
        self._number = number = self._number + 1
        message = packed(self._pack, (number, method, *args))
        future = self._loop.create_future()
        self._waiting[number] = (future, self._loop.time() + self._timeout)
        if not self._out and not self._paused:
            self._loop.call_soon(self._flush)
        self._out.append(message)
        if len(message) > self._largest:
            self._largest = len(message)
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout / _LOOKS, self._look)
        return future

    def subscribe(self) -> "tuple[int, asyncio.Queue[Event | PequodError | None]]":
        """A new topic, and the queue of what is pushed under it."""
        self._number = topic = self._number + 1
        self._topics[topic] = asyncio.Queue()
        return topic, self._topics[topic]

    def unsubscribe(self, topic: int) -> None:
        if self._topics.pop(topic, None) is not None and self.is_open:
            self.call("unwatch", (topic,)).add_done_callback(_forget)

    def close(self) -> None:
        if self._transport is not None:
            self._flush()
            self._transport.close()
        self._lose(Unavailable("this client is closed"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        waiting = self._waiting
        self.has_answered = True
        try:
            self._unpacker.feed(data)
            for message in self._unpacker:
                check_reply(message)
                if message[0] == PUSH_ID:
                    self._pushed(message[1], message[2])
                    continue
                found = waiting.pop(message[0], None)
                if found is None or found[0].done():
                    continue  # it was cancelled meanwhile
                if message[1] is None:
                    found[0].set_result(message[2])
                else:
                    found[0].set_exception(failure_of(message))
        except (*BROKEN, ProtocolError) as error:
            self._lose(ProtocolError(f"the answer is not Pequod's protocol: {error}"))

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        self._lose(lost(error or ConnectionError("the server closed it"), self._largest))
        self._transport = None

    def _flush(self) -> None:
        if self._out and not self._paused and self._transport is not None:
            out, self._out = self._out, []
            self._transport.write(b"".join(out))

    def _pushed(self, topic: int, payload: Any) -> None:
        events = self._topics.get(topic)
        if events is None:
            return
        if events.qsize() < MAX_EVENTS:
            events.put_nowait(event_of(payload))
        else:  # whoever listens is too slow: what waits is void
            self.unsubscribe(topic)
            while not events.empty():
                events.get_nowait()
            events.put_nowait(None)

    def _look(self) -> None:
        """Give up on calls that wait for too long; they are in the order of their calling."""
        self._timer = None
        now = self._loop.time()
        for number, (future, end) in list(self._waiting.items()):
            if end > now:
                break
            del self._waiting[number]
            if not future.done():
                future.set_exception(
                    TimedOut(f"no answer in {self._timeout:g} seconds; a write may have happened")
                )
        if self._waiting:
            self._timer = self._loop.call_later(self._timeout / _LOOKS, self._look)

    def _lose(self, error: PequodError) -> None:
        self.is_open = False
        self._out = []
        for events in self._topics.values():
            events.put_nowait(error)
        self._topics = {}
        waiting, self._waiting = self._waiting, {}
        for future, _ in waiting.values():
            if not future.done():
                future.set_exception(error)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None and isinstance(error, ProtocolError):
            self._transport.abort()
