"""The methods of a cache as callers from outside may use them: with limits, roles and prefixes.

A caller has a table of just the functions it may call, so that a request costs
one lookup and no checks of who is asking.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from inspect import signature
from typing import Any, NamedTuple

from pequod.backing.base import Database
from pequod.config import ServerConfig
from pequod.engine.cache import Cache
from pequod.engine.requests import check_key, check_value, checked_pairs, checked_range
from pequod.errors import BadRequest, BadValue, Forbidden, OversizedKey, TooLarge, UnknownMethod
from pequod.joins.parser import parse
from pequod.keys import KeyRange, Pair, Value, point
from pequod.server.access import ADMIN, READ, WRITE, Principal
from pequod.server.claims import checked_changes, checked_stale, guarded
from pequod.server.loading import Later, Source
from pequod.server.node import Node
from pequod.server.reaches import Reaches

SLICE_SECONDS = 0.002  # that one client is served before others have their turn

Method = Callable[..., Any]
Methods = Mapping[str, Method]


class Caller(NamedTuple):
    """Who asks, and the functions that this one may call, by name."""

    principal: Principal
    methods: Methods


ROLE_FOR = {
    "get": READ,
    "scan": READ,
    "count": READ,
    "digest": READ,
    "explain": READ,
    "joins": READ,
    "stats": READ,
    "put": WRITE,
    "put_many": WRITE,
    "remove": WRITE,
    "remove_range": WRITE,
    "add_join": ADMIN,
    "drop_join": ADMIN,
}
# The methods that a cache does not have, for it knows nothing of tokens and other servers.
CLAIM_ROLE_FOR = {"read": READ, "write": WRITE, "cluster": READ, "move": ADMIN}
_ROLE_FOR = ROLE_FOR | CLAIM_ROLE_FOR

_FEW_ROWS = 64  # so few rows are not weighed before they are packed: each has its own limit


class Service:
    """One cache, and what may be asked of it."""

    def __init__(
        self,
        cache: Cache,
        config: ServerConfig,
        more_stats: Callable[[], dict[str, Any]] = dict,
        source: Source | None = None,
    ) -> None:
        """Base data that lives elsewhere is written, and waited for, there."""
        self._cache = cache
        self._source = source
        self._node = source if isinstance(source, Node) else None
        self._database = source if isinstance(source, Database) else None
        self._more_stats = more_stats
        self._config = config
        self._max_rows = config.max_rows
        self._started = time.monotonic()
        self._reaches = Reaches(cache)
        self._callers: dict[Principal, Caller] = {}
        self.calls = dict.fromkeys((*_ROLE_FOR, "timed"), 0)  # a Counter would cost twice as much
        self.errors: Counter[str] = Counter()
        self.connections = 0
        self._plain_scan = self._bounded_scan()
        self._methods: dict[str, Method] = {
            "get": self._bounded_get(),
            "scan": self._plain_scan,
            "count": self.count,
            "digest": self.digest,
            "explain": cache.explain,
            "joins": cache.joins,
            "stats": self.stats,
            "put": self.put,
            "put_many": self.put_many,
            "remove": self.remove,
            "remove_range": self.remove_range,
            "add_join": self.add_join,
            "drop_join": cache.drop_join if self._node is None else self._node.drop_join,
            "read": self.read,
            "write": self.write,
            "cluster": self.cluster,
            "move": self.move,
        }
        if self._node is not None:
            self._methods.update(guarded(self._node, self._methods))
        assert self._methods.keys() == _ROLE_FOR.keys(), "a method without a role"

    # Who may call what.

    def caller(self, principal: Principal) -> Caller:
        """The caller with this name and these rights."""
        if principal not in self._callers:
            methods = dict(self._table(principal))
            methods["timed"] = partial(_timed, dict(methods))  # and not itself
            self._callers[principal] = Caller(principal, methods)
        return self._callers[principal]

    def _table(self, principal: Principal) -> Iterator[tuple[str, Method]]:
        for name, method in self._methods.items():
            if not principal.has_role(_ROLE_FOR[name]):
                yield name, _refusal(name, principal)
            elif principal.is_confined:
                yield name, self._confined(name, method, principal)
            else:
                yield name, method

    def _confined(self, name: str, method: Method, principal: Principal) -> Method:
        reach = self._reaches.of(name)

        def confined(*args: Any) -> Any:
            check_arguments(name, method, args)
            principal.check_reach(name, reach(*args))
            return method(*args)

        return confined

    # Methods with limits of their own.

    def _bounded_scan(self) -> Method:
        """`scan` with the limits of an answer; a closure, for it is called most of all."""
        scan_cache, check_size, check_reached = self._cache.scan, self._check_size, self._reach
        max_rows, few_rows = self._max_rows, min(_FEW_ROWS, self._max_rows)
        most = max_rows + 1

        def scan(
            first: str,
            last: str,
            limit: int | None = None,
            reverse: bool = False,
            after: str | None = None,
        ) -> list[Pair]:
            if after is not None:
                check_reached(after)
            if limit is None or (limit.__class__ is int and limit > max_rows):
                limit = most
            rows = scan_cache(first, last, limit, reverse)
            if len(rows) > few_rows:
                check_size(rows)
            return rows

        return scan

    def _bounded_get(self) -> Method:
        get_cached, check_reached = self._cache.get, self._reach

        def get(key: str, after: str | None = None) -> Value | None:
            if after is not None:
                check_reached(after)
            return get_cached(key)

        return get

    def count(self, first: str, last: str, after: str | None = None) -> int:
        if after is not None:
            self._reach(after)
        return self._cache.count(first, last)

    def read(
        self,
        first: str,
        last: str,
        limit: int | None = None,
        reverse: bool = False,
        after: str | None = None,
        stale: float | None = None,
    ) -> dict[str, Any]:
        """A scan that says what it reflects; it may be so many seconds old, if that is said."""
        if after:
            self._reach(after)
        if self._node is None:
            age = 0.0 if self._database is None else self._database.age
            return {"rows": self._plain_scan(first, last, limit, reverse), "cut": "", "age": age}
        keys = checked_range(first, last)
        self._node.check_fresh(keys, checked_stale(stale))
        rows = self._plain_scan(first, last, limit, reverse)
        return {"rows": rows, "cut": self._node.cut(keys), "age": self._node.age(keys)}

    def cluster(self) -> dict[str, Any]:
        """How this node and the others see each other."""
        if self._node is None:
            raise BadRequest("this server is not part of a cluster; see `pequod serve --cluster`")
        return self._node.status()

    def move(self, step: str, text: str) -> None:
        """Take a step to another map of the cluster; see `pequod cluster apply`."""
        if self._node is None:
            raise BadRequest("this server is not part of a cluster")
        self._node.move.step(step, text)

    def _reach(self, after: str) -> None:
        """Wait, if the cache does not have the write that gave this token."""
        if self._source is None:
            raise BadRequest(f"after: {after!r:.60} is no token of this server: it has no database")
        if not isinstance(after, str):
            raise BadRequest(f"after: a token is a text, not {type(after).__name__}")
        if not self._source.has(after):
            raise Later(partial(self._source.reach, after), again=True)

    def _check_size(self, rows: list[Pair]) -> None:
        if len(rows) > self._max_rows:
            raise TooLarge(
                f"more than {self._max_rows} rows (max_rows); "
                "ask for page after page, with iterate(first, last) or a limit"
            )
        most = self._config.max_reply
        if sum([len(key) + len(value) for key, value in rows]) > most:
            raise too_large(most)

    def put(self, key: str, value: Value) -> str | None:
        """Gives a token if the row was written elsewhere first."""
        self._check_pair(key, value)
        if self._source is not None:
            check_key(key)
            check_value(value)
            if self._is_elsewhere(key):
                raise Later(partial(self._write, self._source, [(key, value)]))
        self._cache.put(key, value)
        return None

    def put_many(self, pairs: Iterable[Pair] | Mapping[str, Value]) -> str | None:
        rows = checked_pairs(pairs)
        self._check_batch(len(rows))
        config = self._config
        if any(len(key) > config.max_key or len(value) > config.max_value for key, value in rows):
            for key, value in rows:
                self._check_pair(key, value)
        if self._source is not None:
            elsewhere = [row for row in rows if self._is_elsewhere(row[0])]
            if elsewhere:
                here = [row for row in rows if not self._is_elsewhere(row[0])]
                raise Later(partial(self._write, self._source, elsewhere, here))
        self._cache.put_many(rows)
        return None

    def remove(self, key: str) -> bool:
        if self._source is not None:
            check_key(key)
            if self._is_elsewhere(key):
                raise Later(partial(self._remove, self._source, [key]))
        return self._cache.remove(key)

    def write(self, changes: Any) -> tuple[str | None, int]:
        """Put and remove rows, in one step where they have one home.

        Gives a token, and the number of rows removed.
        """
        checked = checked_changes(changes)
        self._check_batch(len(checked))
        for key, value in checked:
            self._check_pair(key, value if value is not None else "")
            self._cache.check_not_computed(key)
        if self._source is not None and any(self._is_elsewhere(key) for key, _ in checked):
            raise Later(partial(self._source.write, checked))
        removed = 0
        for key, value in checked:
            if value is None:
                removed += self._cache.remove(key)
            else:
                self._cache.put(key, value)
        return None, removed

    def _is_elsewhere(self, key: str) -> bool:
        """True if writes of a base key go to the source first."""
        self._cache.check_not_computed(key)
        assert self._source is not None, "there is nothing but here"
        return self._source.takes(point(key))

    async def _write(
        self, source: Source, rows: Sequence[Pair], here: Sequence[Pair] = ()
    ) -> str | None:
        token, _ = await source.write(rows)
        self._cache.put_many(here)
        return token

    async def _remove(self, source: Source, keys: list[str]) -> bool:
        _, removed = await source.write([(key, None) for key in keys])
        return removed > 0

    async def _remove_many(self, source: Source, keys: list[str], within: KeyRange) -> int:
        _, removed = await source.write([(key, None) for key in keys])
        return removed + self._cache.remove_range(*within)

    def _check_batch(self, rows: int) -> None:
        """A batch is one step, and nobody else is served meanwhile: so it has to be short."""
        if rows > self._config.max_batch:
            most = f"{self._config.max_batch} (max_batch)"
            raise TooLarge(f"{rows} rows in one step, over {most}; write them part by part")

    def _check_pair(self, key: str, value: Value) -> None:
        if isinstance(key, str) and len(key) > self._config.max_key:
            raise OversizedKey(
                f"a key of {len(key)} characters; at most {self._config.max_key} fit (max_key)"
            )
        if isinstance(value, (str, bytes)) and len(value) > self._config.max_value:
            raise BadValue(
                f"a value of {len(value)} characters; at most {self._config.max_value} fit "
                "(max_value)"
            )

    def digest(self, first: str, last: str) -> tuple[int, str]:
        if self._cache.count(first, last) > self._max_rows:
            raise TooLarge(f"more than {self._max_rows} rows (max_rows); ask part by part")
        return self._cache.digest(first, last)

    def remove_range(self, first: str, last: str) -> int:
        self._check_batch(self._cache.count(first, last))
        if self._source is not None and self._source.takes(checked_range(first, last)):
            keys = [key for key, _ in self._cache.scan(first, last)]
            elsewhere = [key for key in keys if self._source.takes(point(key))]
            within = KeyRange(first, last)
            raise Later(partial(self._remove_many, self._source, elsewhere, within))
        return self._cache.remove_range(first, last)

    def add_join(self, text: str) -> list[dict[str, Any]]:
        if isinstance(text, str) and len(text) > self._config.max_join:
            raise TooLarge(f"join text over {self._config.max_join} bytes (max_join)")
        if self._node is not None:
            parse(text)  # a mistake is told at once
            return self._node.add_join(text)
        return self._cache.add_join(text)

    def stats(self) -> dict[str, Any]:
        """The cache's own, and those of the server around it."""
        server = {
            "connections": self.connections,
            "calls": {name: number for name, number in self.calls.items() if number},
            "errors": dict(self.errors),
            "uptime_seconds": time.monotonic() - self._started,
            **self._more_stats(),
        }
        return self._cache.stats() | {"server": server}


def _timed(methods: Methods, name: str, *args: Any) -> tuple[float, Any]:
    """The microseconds that a method takes, and its result."""
    method = methods.get(name) if isinstance(name, str) else None
    if method is None:
        raise unknown_method(name)
    check_arguments(name, method, args)
    begun = time.perf_counter()
    try:
        result = method(*args)
    except Later as later:
        if later.again:
            raise
        raise Later(partial(_timed_wait, later, begun)) from None
    return (time.perf_counter() - begun) * 1e6, result


async def _timed_wait(later: Later, begun: float) -> tuple[float, Any]:
    result = await later.wait()
    return (time.perf_counter() - begun) * 1e6, result


def check_arguments(name: str, method: Method, args: tuple[Any, ...]) -> None:
    """Raise `BadRequest` if the method does not take so many arguments."""
    try:
        signature(method).bind(*args)
    except TypeError as error:
        takes = ", ".join(map(str, signature(method).parameters.values()))
        raise BadRequest(f"{name}: {error}; it is {name}({takes})") from error


def unknown_method(name: object) -> UnknownMethod:
    known = ", ".join((*ROLE_FOR, "timed"))
    return UnknownMethod(f"there is no method {name!r:.40}; there are {known}")


def too_large(limit: int) -> TooLarge:
    return TooLarge(
        f"an answer over {limit} bytes (max_reply); "
        "ask for page after page, with iterate(first, last) or a limit"
    )


def _refusal(name: str, principal: Principal) -> Method:
    def refuse(*_: Any) -> None:
        raise Forbidden(
            f"{name} needs the role {_ROLE_FOR[name]}; token {principal.name} has {principal.role}"
        )

    return refuse
