"""A connection of the asyncio client: calls leave together, replies find their futures.

One connection serves any number of tasks: a call takes a number, and the reply with that number
resolves its future. Nothing waits for a timer of its own; one timer looks at the oldest call.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from pequod.client.calls import (
    MAX_REPLY,
    MAY_HAVE_HAPPENED,
    Event,
    check_reply,
    check_sizes,
    closes,
    event_of,
    failure_of,
    lost,
)
from pequod.errors import PequodError, ProtocolError, TimedOut, Unavailable
from pequod.wire import BROKEN, PUSH_ID, packed, packer, reply_unpacker

MAX_EVENTS = 10_000  # that wait for a listener; a slower one starts again
_LOOKS = 4  # times that the oldest call is looked at before it is too late


def _forget(future: "asyncio.Future[Any]") -> None:
    """Take note of an outcome that nobody waits for."""
    if not future.cancelled():
        future.exception()


async def heard(events: "asyncio.Queue[Event | PequodError | None]") -> AsyncIterator[Event]:
    """The events of a queue until it says that some were dropped."""
    while (event := await events.get()) is not None:
        if isinstance(event, PequodError):
            raise event
        yield event


class Connection(asyncio.Protocol):
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
                    if closes(message):
                        self.is_open = False  # so that the next call takes another
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
                    TimedOut(f"no answer in {self._timeout:g} seconds; {MAY_HAVE_HAPPENED}")
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
