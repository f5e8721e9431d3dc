"""The blocking client: safe for threads, with pipelines.

Each call borrows a connection, so threads never wait for each other's answers; connections are
kept for the next call.
"""

import os
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from pequod.client.address import address_of
from pequod.client.calls import (
    PAGE_ROWS,
    REPEATABLE,
    Backoff,
    Pages,
    checked_timeout,
    failure_of,
    pairs_of,
    plain,
    rows,
    structure,
    timed,
    unreachable,
)
from pequod.client.sockets import Connection
from pequod.errors import BadRequest, PequodError, TimedOut, TooLarge, Unavailable
from pequod.keys import Pair, Value

Result = TypeVar("Result")


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
        self._idle: list[Connection] = []  # append and pop are atomic
        self._process = os.getpid()
        self._was_connected = False
        self._closed = False

    # The methods of `Cache`.

    def get(self, key: str, *, after: str | None = None) -> Value | None:
        """The value of a key, or None; `after` is as for `scan`."""
        return self._call("get", (key,) if after is None else (key, after), plain)

    def put(self, key: str, value: Value) -> str | None:
        """Set a base row; a key that a join computes is refused.

        Gives a token for `after` if the row was written to a database behind the cache.
        """
        return self._call("put", (key, value), plain)

    def remove(self, key: str) -> bool:
        """Remove a base row; False if there was none."""
        return self._call("remove", (key,), plain)

    def scan(
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
            return self._call("scan", (first, last, limit, reverse, after), rows)
        if limit is None and reverse is False:
            return self._call("scan", (first, last), rows)
        return self._call("scan", (first, last, limit, reverse), rows)

    def count(self, first: str, last: str, *, after: str | None = None) -> int:
        """The number of rows with `first <= key < last`; `after` is as for `scan`."""
        args = (first, last) if after is None else (first, last, after)
        return self._call("count", args, plain)

    def digest(self, first: str, last: str) -> tuple[int, str]:
        """The number of rows of a range, and a digest of them."""
        return self._call("digest", (first, last), plain)

    def put_many(self, pairs: Iterable[Pair] | Mapping[str, Value]) -> str | None:
        """Set many base rows in one step, or, if one of them is refused, none; see `put`."""
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

    def _with_connection(self, use: "Callable[[Connection], Result]", again: bool) -> Result:
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

    def _give_back(self, connection: Connection) -> None:
        if connection.is_spent:
            connection.close()
            return
        self._idle.append(connection)
        if self._closed:  # meanwhile
            self.close()

    def _borrow(self, end: float, backoff: Backoff) -> Connection:
        """A connection of the pool, or a new one; the very first must stand at once."""
        if self._closed:
            raise Unavailable("this client is closed")
        if self._process != os.getpid():  # a fork: the connections are our parent's
            self._process, inherited, self._idle = os.getpid(), self._idle, []
            for connection in inherited:
                connection.close()
        while self._idle:
            with suppress(IndexError):  # another thread was faster
                connection = self._idle.pop()
                if connection.is_alive():
                    return connection
                connection.close()
        while True:
            try:
                connection = Connection(self._address, self._timeout)
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
