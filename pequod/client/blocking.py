"""The blocking client: safe for threads, with pipelines.

Each call borrows a connection, so threads never wait for each other's answers; connections are
kept for the next call.
"""

import select
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from pequod.client.address import Address, address_of
from pequod.client.calls import (
    MAX_REPLY,
    PAGE_ROWS,
    REPEATABLE,
    Backoff,
    Pages,
    check_reply,
    check_sizes,
    checked_timeout,
    closes,
    failure_of,
    lost,
    pairs_of,
    plain,
    rows,
    structure,
    timed,
    unreachable,
)
from pequod.errors import BadRequest, PequodError, ProtocolError, TimedOut, TooLarge, Unavailable
from pequod.keys import Pair, Value
from pequod.wire import BROKEN, packed, packer, reply_unpacker

Result = TypeVar("Result")

_READ_BYTES = 1 << 16
_BURST_BYTES = 1 << 16  # of a pipeline; more, and both sides might wait for each other


class Client:
    """A blocking client with the methods of `Cache`; threads may share it.

    with Client("pequod://localhost:7709") as pq:
        rows = pq.scan(*prefix("t|ann|"), limit=20, reverse=True)

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
        self._idle: list[_Connection] = []  # append and pop are atomic
        self._was_connected = False
        self._closed = False

    # The methods of `Cache`.

    def get(self, key: str) -> Value | None:
        """The value of a key, or None."""
        return self._call("get", (key,), plain)

    def put(self, key: str, value: Value) -> None:
        """Set a base row; a key that a join computes is refused."""
        return self._call("put", (key, value), plain)

    def remove(self, key: str) -> bool:
        """Remove a base row; False if there was none."""
        return self._call("remove", (key,), plain)

    def scan(
        self, first: str, last: str, limit: int | None = None, reverse: bool = False
    ) -> list[Pair]:
        """The rows with `first <= key < last`, in key order or reversed, at most `limit`."""
        if limit is None and not reverse:
            return self._call("scan", (first, last), rows)
        return self._call("scan", (first, last, limit, reverse), rows)

    def count(self, first: str, last: str) -> int:
        """The number of rows with `first <= key < last`."""
        return self._call("count", (first, last), plain)

    def digest(self, first: str, last: str) -> tuple[int, str]:
        """The number of rows of a range, and a digest of them."""
        return self._call("digest", (first, last), plain)

    def put_many(self, pairs: Iterable[Pair] | Mapping[str, Value]) -> None:
        """Set many base rows in one step, or, if one of them is refused, none."""
        return self._call("put_many", (pairs_of(pairs),), plain)

    def remove_range(self, first: str, last: str) -> int:
        """Remove the base rows of a range and say how many there were; computed rows stay."""
        return self._call("remove_range", (first, last), plain)

    def add_join(self, text: str) -> list[dict[str, Any]]:
        """Install the joins of `text`, all or none; gives the name and warnings of each."""
        return self._call("add_join", (text,), structure)

    def drop_join(self, name: str) -> None:
        """Take a join and all it computed away."""
        return self._call("drop_join", (name,), plain)

    def joins(self) -> list[dict[str, Any]]:
        """The installed joins in the order of their installation."""
        return self._call("joins", (), structure)

    def explain(self, first: str, last: str) -> dict[str, Any]:
        """Which joins make up a range, from which sources, fresh or not, and at what cost."""
        return self._call("explain", (first, last), structure)

    def stats(self) -> dict[str, Any]:
        """Counts and bytes, in all, per table and per join, and of the server."""
        return self._call("stats", (), structure)

    def timed(self, method: str, *args: Any) -> tuple[Any, float]:
        """The result of a method, and the microseconds that it took in the server."""
        return self._call("timed", (method, *args), timed)

    def iterate(
        self, first: str, last: str, *, reverse: bool = False, page: int = PAGE_ROWS
    ) -> Iterator[Pair]:
        """The rows of a range of any length, asked for page after page."""
        pages = Pages(first, last, reverse, page)
        while not pages.done:
            try:
                found = self.scan(*pages.arguments)
            except TooLarge as error:
                pages.shrink(error)
                continue
            pages.turn(found)
            yield from found

    def pipeline(self) -> "Pipeline":
        """Collects calls, to send them together."""
        return Pipeline(self)

    # The connections.

    def close(self) -> None:
        """Close all connections."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _call(self, method: str, args: tuple[Any, ...], read: Callable[[Any], Result]) -> Result:
        reply = self._with_connection(
            lambda connection: connection.call(method, args), method in REPEATABLE
        )
        if reply[1] is not None:
            raise failure_of(reply)
        return read(reply[2])

    def _with_connection(self, use: "Callable[[_Connection], Result]", again: bool) -> Result:
        """The result of using a connection; a new one if that of the pool turns out dead."""
        end = time.monotonic() + self._timeout
        backoff = Backoff()
        while True:
            connection = self._borrow(end, backoff)
            was_used = connection.has_answered
            try:
                result = use(connection)
            except Unavailable as error:
                connection.close()
                if not again or isinstance(error, TimedOut) or time.monotonic() > end:
                    raise
                if not was_used:
                    time.sleep(backoff.next_seconds())
                continue
            except BadRequest:
                if connection.is_spent:
                    connection.close()
                else:
                    self._give_back(connection)  # nothing was sent
                raise
            except BaseException:  # interrupted: an answer may be on its way
                connection.close()
                raise
            self._give_back(connection)
            return result

    def _give_back(self, connection: "_Connection") -> None:
        if connection.is_spent:
            connection.close()
            return
        self._idle.append(connection)
        if self._closed:  # meanwhile
            self.close()

    def _borrow(self, end: float, backoff: Backoff) -> "_Connection":
        """A connection of the pool, or a new one; the very first must stand at once."""
        if self._closed:
            raise Unavailable("this client is closed")
        while self._idle:
            with suppress(IndexError):  # another thread was faster
                connection = self._idle.pop()
                if connection.is_alive():
                    return connection
                connection.close()
        while True:
            try:
                connection = _Connection(self._address, self._timeout)
            except OSError as error:
                if not self._was_connected or time.monotonic() > end:
                    raise unreachable(self._address, error) from error
            else:
                self._was_connected = True
                return connection
            time.sleep(backoff.next_seconds())


class Pipeline:
    """Calls that are sent together, in order; `execute` gives their results.

    with client.pipeline() as pipe:
        pipe.put("s|ann|bob", "1")
        pipe.scan("t|ann|", "t|ann}")
        _, rows = pipe.execute()
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._calls: list[tuple[str, tuple[Any, ...], Callable[[Any], Any]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._calls = []

    def __len__(self) -> int:
        return len(self._calls)

    def get(self, key: str) -> None:
        self._calls.append(("get", (key,), plain))

    def put(self, key: str, value: Value) -> None:
        self._calls.append(("put", (key, value), plain))

    def remove(self, key: str) -> None:
        self._calls.append(("remove", (key,), plain))

    def scan(self, first: str, last: str, limit: int | None = None, reverse: bool = False) -> None:
        self._calls.append(("scan", (first, last, limit, reverse), rows))

    def count(self, first: str, last: str) -> None:
        self._calls.append(("count", (first, last), plain))

    def digest(self, first: str, last: str) -> None:
        self._calls.append(("digest", (first, last), plain))

    def put_many(self, pairs: Iterable[Pair] | Mapping[str, Value]) -> None:
        self._calls.append(("put_many", (pairs_of(pairs),), plain))

    def remove_range(self, first: str, last: str) -> None:
        self._calls.append(("remove_range", (first, last), plain))

    def execute(self, *, raise_errors: bool = True) -> list[Any]:
        """Send all calls and give their results in order.

        All are made, whatever becomes of some. The first error is then raised, or, without
        `raise_errors`, errors stand among the results.
        """
        calls, self._calls = self._calls, []
        again = all(method in REPEATABLE for method, _, _ in calls)
        replies = self._client._with_connection(
            lambda connection: connection.call_all([(name, args) for name, args, _ in calls]), again
        )
        results = [
            read(reply[2]) if reply[1] is None else failure_of(reply)
            for reply, (_, _, read) in zip(replies, calls, strict=True)
        ]
        if raise_errors:
            for result in results:
                if isinstance(result, PequodError):
                    raise result
        return results


class _Connection:
    """One socket; one call, or one pipeline, at a time."""

    def __init__(self, address: Address, timeout: float) -> None:
        self.has_answered = False
        self.is_spent = False  # the server closes it
        self._timeout = timeout
        self._pack = packer()
        self._unpacker = reply_unpacker(MAX_REPLY)
        self._number = 0
        self._socket = socket.create_connection((address.host, address.port), timeout)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if address.tls is not None:
                self._socket = address.tls.wrap_socket(self._socket, server_hostname=address.host)
            # TLS sends of itself, so that being readable says nothing there.
            self._poll = None if address.tls else _poll_of(self._socket)
            if address.token is not None:
                reply = self.call("auth", (address.token,))
                if reply[1] is not None:
                    raise failure_of(reply)
        except BaseException:
            self._socket.close()
            raise

    def call(self, method: str, args: tuple[Any, ...]) -> Any:
        """The reply to one call."""
        check_sizes(method, args)
        self._number = number = self._number + 1
        message = packed(self._pack, (number, method, *args))
        end = time.monotonic() + self._timeout
        try:
            self._socket.settimeout(self._timeout)
            self._socket.sendall(message)
            while True:
                for reply in self._unpacker:
                    check_reply(reply)
                    if reply[0] == number:
                        self.is_spent = closes(reply)
                        return reply
                self._receive(end)
        except (OSError, *BROKEN) as error:
            raise self._failure(error, len(message)) from error

    def call_all(self, calls: list[tuple[str, tuple[Any, ...]]]) -> list[Any]:
        """The replies to many calls, in the order of the calls."""
        for method, args in calls:
            check_sizes(method, args)
        base = self._number + 1
        messages = [
            packed(self._pack, (number, method, *args))
            for number, (method, args) in enumerate(calls, base)
        ]
        self._number += len(calls)
        replies: dict[int, Any] = {}
        try:
            for burst in _bursts(messages):
                end = time.monotonic() + self._timeout
                self._socket.settimeout(self._timeout)
                self._socket.sendall(b"".join(burst))
                goal = len(replies) + len(burst)
                while True:
                    for reply in self._unpacker:
                        check_reply(reply)
                        if reply[0] >= base:
                            replies[reply[0]] = reply
                    if len(replies) == goal:
                        break
                    self._receive(end)
        except (OSError, *BROKEN) as error:
            for reply in replies.values():
                if closes(reply):  # that is why
                    self.is_spent = True
                    raise failure_of(reply) from error
            raise self._failure(error, max(map(len, messages))) from error
        return [replies[number] for number in range(base, base + len(calls))]

    def close(self) -> None:
        self._socket.close()

    def is_alive(self) -> bool:
        """False if the server has closed it meanwhile: nothing else comes while nobody asks."""
        return self._poll is None or not self._poll.poll(0)

    def _receive(self, end: float) -> None:
        self._socket.settimeout(max(0.001, end - time.monotonic()))
        data = self._socket.recv(_READ_BYTES)
        if not data:
            raise ConnectionResetError("the server closed it")
        self.has_answered = True
        self._unpacker.feed(data)

    def _failure(self, error: Exception, size: int) -> PequodError:
        if isinstance(error, TimeoutError):
            return TimedOut(f"no answer in {self._timeout:g} seconds; a write may have happened")
        if isinstance(error, OSError):
            return lost(error, size)
        return ProtocolError(f"the answer is not Pequod's protocol: {error}")


def _poll_of(one: socket.socket) -> Any:
    """What tells whether there is something to read, where the system has it."""
    if not hasattr(select, "poll"):
        return None
    poll = select.poll()
    poll.register(one, select.POLLIN | select.POLLHUP)
    return poll


def _bursts(messages: list[bytes]) -> Iterator[list[bytes]]:
    """The messages in parts that fit into the buffers between client and server."""
    burst: list[bytes] = []
    size = 0
    for message in messages:
        if burst and size + len(message) > _BURST_BYTES:
            yield burst
            burst, size = [], 0
        burst.append(message)
        size += len(message)
    if burst:
        yield burst
