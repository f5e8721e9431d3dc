"""What a server of a cluster makes sure of before it answers: that its copies are fresh."""

from collections.abc import Callable, Mapping
from typing import Any

from pequod.engine.requests import check_key, check_value, checked_range
from pequod.errors import BadRequest
from pequod.keys import Pair, Value, point
from pequod.server.node import Node

MAX_STALE_SECONDS = 86_400.0

Method = Callable[..., Any]


def guarded(node: Node, methods: Mapping[str, Method]) -> dict[str, Method]:
    """The reads among these methods, made to wait while a home behind them is not heard of.

    One look at the clock is all that it costs otherwise.
    """
    scan_cache, get_cached, count_cached = methods["scan"], methods["get"], methods["count"]
    clock = node.clock

    def scan(
        first: str,
        last: str,
        limit: int | None = None,
        reverse: bool = False,
        after: str | None = None,
    ) -> list[Pair]:
        if clock() > node.fresh_until:
            node.check_fresh(checked_range(first, last))
        rows: list[Pair] = scan_cache(first, last, limit, reverse, after)
        return rows

    def get(key: str, after: str | None = None) -> Value | None:
        if clock() > node.fresh_until:
            check_key(key)
            node.check_fresh(point(key))
        value: Value | None = get_cached(key, after)
        return value

    def count(first: str, last: str, after: str | None = None) -> int:
        if clock() > node.fresh_until:
            node.check_fresh(checked_range(first, last))
        number: int = count_cached(first, last, after)
        return number

    return {"scan": scan, "get": get, "count": count}


def checked_stale(stale: object) -> float | None:
    """A number of seconds that an answer may be old, or None."""
    if stale is None:
        return None
    if isinstance(stale, bool) or not isinstance(stale, int | float):
        raise BadRequest(f"stale is a number of seconds, not {stale!r:.40}")
    if not 0 <= stale <= MAX_STALE_SECONDS:
        raise BadRequest(f"stale is from 0 up to {MAX_STALE_SECONDS:g} seconds, not {stale!r:.40}")
    return float(stale)


def checked_changes(changes: object) -> list[tuple[str, Value | None]]:
    """Rows to put, and with None, to remove."""
    if not isinstance(changes, list | tuple):
        raise BadRequest("write takes a list of [key, value], with no value to remove a row")
    found: list[tuple[str, Value | None]] = []
    for change in changes:
        if not isinstance(change, list | tuple) or len(change) != 2:
            raise BadRequest(f"a change is [key, value], not {change!r:.60}")
        key, value = change
        check_key(key)
        if value is not None:
            check_value(value)
        found.append((key, value))
    return found
