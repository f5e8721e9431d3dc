"""The client of a cluster: writes go to the home of a key, all reads of a user to one server."""

import random
import ssl
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeVar

from pequod.client import AsyncClient
from pequod.client.calls import REPEATABLE, Event, checked_timeout
from pequod.cluster.partition import ClusterMap
from pequod.errors import BadRequest, TimedOut, Unavailable

Result = TypeVar("Result")

_READS = frozenset({"get", "scan", "count", "digest", "read", "explain"})
_WRITES = frozenset({"put", "remove", "put_many", "write"})


class ClusterClient(AsyncClient):
    """What `AsyncClient("cluster.toml")` gives.

    A range is read where its first slot says, so that a user's base data is copied to one server;
    if that one cannot be reached, at the next. Prefixes that the map spreads are read at several.
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

    def at(self, node: str) -> AsyncClient:
        """The client of one node."""
        return self._clients[node]

    async def watch(self, first: str, last: str) -> AsyncGenerator[Event, None]:
        """The rows of a range, then each change to them, for as long as one listens."""
        async for event in self._clients[self._readers(first)[0]].watch(first, last):
            yield event

    async def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            await client.close()

    async def _call(
        self, method: str, args: tuple[Any, ...], read: Callable[[Any], Result]
    ) -> Result:
        nodes = self._nodes(method, args)
        for node in nodes[:-1] if method in REPEATABLE else ():
            try:
                return await self._clients[node]._call(method, args, read)
            except TimedOut:
                raise
            except Unavailable:
                continue
        last = nodes[-1] if method in REPEATABLE else nodes[0]
        return await self._clients[last]._call(method, args, read)

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
