"""What both clients say of calls: how results are read, which may be repeated, how pages go on."""

import random
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pequod.client.address import Address
from pequod.errors import (
    BadRequest,
    OversizedKey,
    PequodError,
    ProtocolError,
    TooLarge,
    Unavailable,
)
from pequod.keys import MAX_KEY, Pair, Value
from pequod.wire import error_of, with_lists

MAX_REPLY = 1 << 30  # bytes; the server has limits of its own
PAGE_ROWS = 1000

_KEYED = frozenset({"get", "put", "remove", "put_many"})
_LARGE_REQUEST = 1 << 20
_YEAR_SECONDS = 366 * 86_400
_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS = 0.05, 2.0

# Calls that change nothing: if the connection is lost, they may be made again.
REPEATABLE = frozenset({"get", "scan", "count", "digest", "explain", "joins", "stats", "auth"})


def plain(result: Any) -> Any:
    """A result that needs no reading."""
    return result


def timed(result: Any) -> tuple[Any, float]:
    """A result with the microseconds that it took in the server."""
    microseconds, found = result
    return with_lists(found), microseconds


def rows(result: Any) -> list[Pair]:
    """The rows of a scan; the unpacker has made tuples of them."""
    return list(result)


structure = with_lists


def pairs_of(pairs: Any) -> Any:
    """Rows to send; what is no collection of rows is for the server to refuse."""
    if isinstance(pairs, Mapping):
        return list(pairs.items())
    if isinstance(pairs, str | bytes) or not isinstance(pairs, Iterable):
        return pairs
    return list(pairs)


def failure_of(reply: Any) -> PequodError:
    """The error of a reply that has one."""
    return error_of(reply[1])


def check_sizes(method: str, args: tuple[Any, ...]) -> None:
    """Raise for a key over the limit: a server closes the connection, and other calls with it."""
    if method not in _KEYED:
        return
    keys = [pair[0] for pair in args[0] if pair] if method == "put_many" else args[:1]
    for key in keys:
        if isinstance(key, str) and len(key) > MAX_KEY:
            raise OversizedKey(f"a key has at most {MAX_KEY} characters, not {len(key)}")


def closes(reply: Any) -> bool:
    """True if the server closes the connection after this reply."""
    return isinstance(reply[1], Mapping) and reply[1].get("code") == OversizedKey.code


def lost(error: Exception, size: int) -> Unavailable:
    """What to say of a connection that went while a request of this size was on its way."""
    hint = ""
    if size > _LARGE_REQUEST:
        hint = f"; the request had {size} bytes, which may be over the server's max_frame"
    return Unavailable(f"the connection was lost: {error}{hint}")


def checked_timeout(timeout: object) -> float:
    if not isinstance(timeout, int | float) or not 0 < timeout < _YEAR_SECONDS:
        raise BadRequest(f"timeout is a number of seconds above 0, not {timeout!r:.40}")
    return timeout


def unreachable(address: Address, error: OSError) -> Unavailable:
    return Unavailable(
        f"cannot reach {address}: {error.strerror or error}; "
        "is the server running? start one with `pequod serve`"
    )


def check_reply(message: Any) -> None:
    """Raise if a message from the server is no reply."""
    if message.__class__ is not tuple or len(message) != 3 or message[0].__class__ is not int:
        raise ProtocolError(f"the server sent no reply: {message!r:.100}; is it a Pequod server?")


class Event(NamedTuple):
    """What happens in a watched range.

    `init` brings all `rows`, at the start and whenever events were missed; then `update` brings a
    `key` with its new `value`, and `remove` the `key` that has gone.
    """

    kind: str
    id: str
    rows: list[Pair]
    key: str = ""
    value: Value | None = None


def event_of(payload: Any) -> Event:
    """The event that the server pushed so."""
    number, kind, data = payload
    if kind == "init":
        return Event(kind, number, list(data))
    if kind == "update":
        return Event(kind, number, [], *data)
    return Event(kind, number, [], data)


class Backoff:
    """Pauses between attempts to connect again: they grow, and differ between clients."""

    def __init__(self) -> None:
        self._seconds = _FIRST_PAUSE_SECONDS

    def next_seconds(self) -> float:
        seconds = self._seconds * random.uniform(0.5, 1.0)
        self._seconds = min(2 * self._seconds, _LAST_PAUSE_SECONDS)
        return seconds


class Pages:
    """Where a reader of a long range is: the rest of the range, and the size of a page."""

    def __init__(self, first: str, last: str, reverse: bool, page: int) -> None:
        self.first = first
        self.last = last
        self.reverse = reverse
        self.page = page
        self.done = False
        if type(page) is not int or page < 1:
            raise BadRequest(f"a page has one row or more, not {page!r:.40}")

    @property
    def arguments(self) -> tuple[str, str, int, bool]:
        """What to ask `scan` for."""
        return self.first, self.last, self.page, self.reverse

    def turn(self, found: list[Pair]) -> None:
        """Go on after the rows that were found."""
        if len(found) < self.page:
            self.done = True
        elif self.reverse:
            self.last = found[-1][0]
        else:
            self.first = found[-1][0] + "\0"

    def shrink(self, error: TooLarge) -> None:
        """Ask for less at a time; a single row that is too large is an error."""
        if self.page == 1:
            raise error
        self.page = max(1, self.page // 4)
