"""Sessions: reads that have all that a user has written and seen, at whatever server."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from pequod.client.calls import Answer, answer_of, pairs_of, plain, structure
from pequod.client.tokens import Position, cut_of, merged, text_of
from pequod.errors import BadRequest, DataLost
from pequod.keys import Pair, Value, point


class Reader(Protocol):
    """A client, as a session uses it."""

    async def read(
        self,
        first: str,
        last: str,
        limit: int | None = None,
        reverse: bool = False,
        *,
        after: str | None = None,
        stale: float | None = None,
    ) -> Answer: ...

    async def write(
        self, changes: Iterable[tuple[str, Value | None]]
    ) -> tuple[str | None, int]: ...


class Session:
    """One user's view of a cluster; it does not go backwards.

    session = pq.session(request.cookies.get("pequod", ""))
    await session.put("p|bob|0000000120", "again")
    rows = await session.scan(*prefix("t|bob|"))
    response.set_cookie("pequod", session.token)
    """

    def __init__(self, client: Reader, token: str = "") -> None:
        """With the `token` of another session, it goes on where that one was."""
        self._client = client
        self._cut: dict[str, Position] = {}
        self._other: str | None = None  # a token of a database, which only its server can read
        if token:
            self._learn(token)

    @property
    def token(self) -> str:
        """All that was written and seen, as a short text."""
        return self._other or text_of(self._cut.values())

    async def get(self, key: str) -> Value | None:
        """The value of a key, or None."""
        rows = await self.scan(*point(key))
        return rows[0][1] if rows else None

    async def scan(
        self, first: str, last: str, limit: int | None = None, reverse: bool = False
    ) -> list[Pair]:
        """The rows with `first <= key < last`, in key order or reversed, at most `limit`."""
        return (await self.read(first, last, limit, reverse)).rows

    async def read(
        self,
        first: str,
        last: str,
        limit: int | None = None,
        reverse: bool = False,
        *,
        stale: float | None = None,
    ) -> Answer:
        """A scan that says what it reflects.

        If a home has lost what this session has seen, that is said once, as `DataLost`.
        """
        after = self.token or None
        try:
            answer = await self._client.read(first, last, limit, reverse, after=after, stale=stale)
        except DataLost:
            self._cut = {}
            raise
        if answer.cut:
            self._learn(answer.cut)
        return answer

    async def put(self, key: str, value: Value) -> None:
        """Set a base row."""
        await self._write([(key, value)])

    async def put_many(self, pairs: Iterable[Pair] | Mapping[str, Value]) -> None:
        """Set many base rows; those with the same home in one step."""
        await self._write(pairs_of(pairs))

    async def remove(self, key: str) -> bool:
        """Remove a base row; False if there was none."""
        return await self._write([(key, None)]) > 0

    async def _write(self, changes: Iterable[tuple[str, Value | None]]) -> int:
        token, removed = await self._client.write(changes)
        if token:
            self._learn(token)
        return removed

    def _learn(self, token: str) -> None:
        try:
            self._cut = merged(self._cut, cut_of(token))
        except BadRequest:
            self._other = token


class Claiming:
    """The methods of a client that are about what answers reflect."""

    async def _call(self, method: str, args: tuple[Any, ...], read: Callable[[Any], Any]) -> Any:
        raise NotImplementedError

    async def read(
        self,
        first: str,
        last: str,
        limit: int | None = None,
        reverse: bool = False,
        *,
        after: str | None = None,
        stale: float | None = None,
    ) -> Answer:
        """A scan that says what it reflects; see `Answer`.

        It has all that the tokens in `after` stand for. If a home cannot be reached, rows that are
        up to `stale` seconds old will do.
        """
        return await self._call("read", (first, last, limit, reverse, after, stale), answer_of)

    async def write(self, changes: Iterable[tuple[str, Value | None]]) -> tuple[str | None, int]:
        """Put rows, and remove those with None; gives a token, and how many rows were removed."""
        return await self._call("write", (pairs_of(changes),), tuple)

    def session(self, token: str = "") -> Session:
        """Reads and writes that see each other at whatever server; see `Session`."""
        return Session(self, token)

    async def move(self, step: str, text: str) -> None:
        """Have one node take a step to another map; see `pequod cluster apply`."""
        return await self._call("move", (step, text), plain)

    async def cluster(self) -> dict[str, Any]:
        """How a node of a cluster and the others see each other."""
        return await self._call("cluster", (), structure)
