"""One connection of a client: operations become requests, and replies find what waits for them.

All systems share this loop of reading and writing, so that what differs is the protocol and the
number of requests, not the cleverness of a library. Requests are gathered and sent together, and
replies are parsed by C code (msgpack, hiredis, libpq) or by few lines.
"""

import select
import socket
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from loadgen.twip_world import Operation
from pequod.pipeline.trace import POST, SUBSCRIBE

TIMEOUT_SECONDS = 60.0
READ_BYTES = 1 << 18


class Row(NamedTuple):
    """A row of a timeline, in the same form whatever the system."""

    time: int
    poster: int
    text: str


Then = int | Callable[[Any], object] | None


class Conversation(ABC):
    """Begins operations, and notes which ones are answered.

    What waits for a reply is a number, of an operation that ends with it, or a function that
    goes on from there, or nothing.
    """

    def __init__(self) -> None:
        self.ended: list[int] = []  # operations answered since somebody last looked
        self.rows = 0  # of timelines, read so far
        self.answers: dict[int, Any] | None = None  # of readings, if they are kept

    @abstractmethod
    def begin(self, number: int, operation: Any) -> None:
        """Ask for what an operation needs; `number` is among those that end with it."""

    @abstractmethod
    def flush(self) -> None:
        """Send what was gathered, as far as it goes."""

    @abstractmethod
    def wait(self, seconds: float) -> None:
        """Take in replies; give up waiting for them after so many seconds."""

    @abstractmethod
    def close(self) -> None: ...

    def settle(self, operations: int) -> None:
        """Wait until so many operations have ended."""
        while len(self.ended) < operations:
            self.flush()
            self.wait(TIMEOUT_SECONDS)


class Twip(ABC):
    """What a client of Twip does."""

    def begin(self, number: int, operation: Operation) -> None:
        kind, user, time, argument = operation
        if kind == POST:
            self.post(number, user, time, argument)
        elif kind == SUBSCRIBE:
            self.subscribe(number, user, argument)
        else:
            self.read(number, user, argument)

    @abstractmethod
    def read(self, number: int, user: int, since: int) -> None:
        """The timeline of a user from a time on: a login or a check."""

    @abstractmethod
    def subscribe(self, number: int, user: int, poster: int) -> None: ...

    @abstractmethod
    def post(self, number: int, poster: int, time: int, text: str) -> None: ...


class SocketConversation(Conversation):
    """A conversation over a plain socket in which replies come in the order of the requests."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self.socket, select.POLLIN)
        self._unsent = b""
        self.out: list[bytes] = []
        self.waiting: deque[Then] = deque()

    @abstractmethod
    def parsed(self, data: bytes) -> Iterable[Any]:
        """The replies that are complete with this data."""

    @abstractmethod
    def finish(self, number: int, reply: Any) -> None:
        """Take the last reply of an operation."""

    def flush(self) -> None:
        if self.out:
            self._unsent += b"".join(self.out)
            self.out.clear()
        if self._unsent:
            try:
                sent = self.socket.send(self._unsent)
            except BlockingIOError:
                sent = 0
            except ConnectionError as error:
                raise SystemExit("a server closed the connection") from error
            self._unsent = self._unsent[sent:]
            events = select.POLLIN | (select.POLLOUT if self._unsent else 0)
            self._poll.modify(self.socket, events)

    def wait(self, seconds: float) -> None:
        events = self._poll.poll(seconds * 1000)
        if not events:
            if seconds >= TIMEOUT_SECONDS:
                raise SystemExit(f"no answer in {seconds:g} seconds")
            return
        if events[0][1] & select.POLLOUT:
            self.flush()
        if not events[0][1] & ~select.POLLOUT:
            return
        try:
            data = self.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            raise SystemExit("a server closed the connection")
        take = self.waiting.popleft
        for reply in self.parsed(data):
            then = take()
            if then.__class__ is int:
                self.finish(then, reply)
            elif then is not None:
                then(reply)
        if self.out:  # an operation that goes on with another request
            self.flush()

    def close(self) -> None:
        self.socket.close()
