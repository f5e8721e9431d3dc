"""The client of a cluster: writes go to the home of a key, all reads of a user to one server."""

import asyncio
import random
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, TypeVar

from pequod.client import AsyncClient
from pequod.client.calls import REPEATABLE, Backoff, Event, checked_timeout
from pequod.cluster.partition import ClusterMap
from pequod.errors import BadRequest, TimedOut, Unavailable

Result = TypeVar("Result")

PATIENCE_SECONDS = 0.5  # that a read waits for a connection before it goes to the next node
AVOID_SECONDS = 5.0  # that reads go elsewhere first, once a node could not be reached

_READS = frozenset({"get", "scan", "count", "digest", "read", "explain"})
_WRITES = frozenset({"put", "remove", "put_many", "write"})


class ClusterClient(AsyncClient):
    """What `AsyncClient("cluster.toml")` gives.

    A range is read where its first slot says, so that a user's base data is copied to one server;
    if that one cannot be reached, at the next, and there for a while. Prefixes that the map spreads
    are read at several.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        timeout: float = 10.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """The `url` is the path of the cluster's map."""
        assert url is not None, "a cluster has a map"
        self.map = ClusterMap.read(url)
        self._clients = {
            name: AsyncClient(at, token=token, timeout=timeout, tls=tls)
            for name, at in self.map.nodes.items()
        }
        self._timeout = checked_timeout(timeout)
        self._closed = False
        self._avoided: dict[str, float] = {}  # nodes that did not answer, until when

    def at(self, node: str) -> AsyncClient:
        """The client of one node."""
        return self._clients[node]

    async def watch(self, first: str, last: str) -> AsyncGenerator[Event, None]:
        """The rows of a range, then each change to them, for as long as one listens.

        If its server is lost, it goes on at the next, with a new `init`.
        """
        backoff, has_begun = Backoff(), False
        while True:
            readers = self._readers(first)
            node = min(readers, key=self._avoided_until)
            try:
                async with aclosing(
                    self._clients[node]._watch(first, last, PATIENCE_SECONDS)
                ) as events:
                    async for event in events:
                        backoff, has_begun = Backoff(), True
                        yield event
            except Unavailable:
                self._avoid(node)
                if self._closed or (not has_begun and all(map(self._avoided_until, readers))):
                    raise
                await asyncio.sleep(backoff.next_seconds())

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        for client in self._clients.values():
            await client.close()

    async def _call(
        self,
        method: str,
        args: tuple[Any, ...],
        read: Callable[[Any], Result],
        patience: float | None = None,
    ) -> Result:
        nodes = self._nodes(method, args)
        if method not in REPEATABLE:
            return await self._clients[nodes[0]]._call(method, args, read)
        nodes.sort(key=self._avoided_until)  # and else in their order
        for node in nodes:
            try:
                return await self._clients[node]._call(method, args, read, PATIENCE_SECONDS)
            except TimedOut:
                self._avoid(node)
                raise
            except Unavailable:
                self._avoid(node)
        return await self._clients[nodes[0]]._call(method, args, read)

    def _avoid(self, node: str) -> None:
        self._avoided[node] = asyncio.get_running_loop().time() + AVOID_SECONDS

    def _avoided_until(self, node: str) -> float:
        """A moment to come, or 0; where many were lost, the one that was lost first is best."""
        until = self._avoided.get(node)
        if until is None:
            return 0.0
        return until if until > asyncio.get_running_loop().time() else 0.0

    def _nodes(self, method: str, args: tuple[Any, ...]) -> list[str]:
        """Where to send a call, the best place first."""
        if method == "timed":
            method, args = args[0], args[1:]
        first = args[0] if args else None
        if method in ("put_many", "write") and isinstance(first, list | tuple):
            first = first[0][0] if first else None
        if method in _READS and isinstance(first, str):
            return self._readers(first)
        if method in _WRITES and isinstance(first, str):
            try:
                return [self.map.home_of(first)]
            except BadRequest:
                pass  # a server knows better what is wrong, a computed key for one
        return list(self.map.homes)

    def _readers(self, first: str) -> list[str]:
        readers = self.map.readers(first)
        replicas = self.map.replicas(first)
        if replicas > 1:
            chosen = random.randrange(replicas)
            readers.insert(0, readers.pop(chosen))
        return readers


AsyncClient.of_cluster = ClusterClient
