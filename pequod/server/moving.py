"""Another map for a cluster that runs: rows move to their new homes, and nothing is lost.

Whoever changes the map takes all nodes through these steps, each everywhere before the next:

    freeze   homes do not write rows any more that they will give away; such writes wait
    pull     homes fetch the rows that they will get
    leave    homes break all links, so that no copy counts as fresh much longer
    switch   all have the new map; every home begins a new life, and copies are fetched again

Until somebody switches, `thaw` takes it all back. A home that did not lose anything says so to
those who hold tokens of its old life.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from pequod.cluster.links import Lost
from pequod.cluster.partition import ClusterMap
from pequod.cluster.ranges import RangeSet
from pequod.errors import BadRequest, Moving, Unavailable, UnknownMethod
from pequod.keys import point
from pequod.server.loading import Later

if TYPE_CHECKING:
    from pequod.server.node import Node

STEPS = ("freeze", "pull", "leave", "switch", "thaw")


class Move:
    """What one node does for another map."""

    def __init__(self, node: "Node", save: Callable[[str], object]) -> None:
        """`save` keeps the text of a new map for the next start."""
        self._node = node
        self._save = save
        self._turn = 0  # of fetching rows; those of an earlier one come too late
        self.writing: set[asyncio.Future[Any]] = set()  # rows that go into the database

    def step(self, name: str, text: str) -> None:
        """Take a step to the map that is written so."""
        if name not in STEPS:
            raise BadRequest(f"{name!r:.60} is no step; there are {', '.join(STEPS)}")
        following = ClusterMap.parse(text)
        node, home = self._node, self._node.home
        if name == "freeze":
            self._check(following)
            if home is not None:
                home.next = following
            if self.writing:
                raise Later(partial(_ended, set(self.writing)))
        elif name == "thaw" or (name == "switch" and node.map.version == following.version):
            self._thaw()
        elif name == "pull":
            if node.name in following.homes and node.map.version != following.version:
                raise Later(partial(self._pull, following), patient=True)
        elif name == "leave":
            if home is not None:
                home.is_left = True
                node.end_sessions()
        else:
            node.adopt(following)
            self._drop_strangers()
            self._save(text)

    def _thaw(self) -> None:
        """Be as before the first step."""
        self._turn += 1
        node, home = self._node, self._node.home
        if home is not None:
            home.next, home.is_left = None, False
            if node.name not in node.map.homes:
                node.home = None
            self._drop_strangers()

    def _check(self, following: ClusterMap) -> None:
        """All rows must have a home afterwards."""
        covered = RangeSet(one.keys for one in following.partitions)
        for one in self._node.map.partitions:
            if covered.overlapping(one.keys) != [one.keys]:
                raise BadRequest(
                    f"[{one.keys.first}, {one.keys.last}) has homes now, and not all of it in the "
                    "new map; its rows would be lost"
                )
        if self._node.name not in following.nodes:
            raise BadRequest(f"node {self._node.name} is not in the new map; keep it as a node")

    async def _pull(self, following: ClusterMap) -> None:
        """Fetch the rows that will live here; the database that homes share has them anyway."""
        self._turn += 1
        node = self._node
        node.become_home()
        self._drop_strangers()
        for home in node.map.homes:
            if home != node.name:
                await self._pull_from(home)

    async def _pull_from(self, home: str) -> None:
        """Over a link of its own: a home that has the new map already takes no other from us."""
        node, turn = self._node, self._turn
        try:
            link = await node.link(home, lambda _: None, lambda: None)
            try:
                first: str | None = ""
                while first is not None:
                    rows, first = await link.call("leaving", node.name, node.is_durable, first)
                    if turn != self._turn:
                        raise Moving("this move was taken back")
                    for key, value in rows:
                        node.base.put(key, value)
            finally:
                link.close()
        except UnknownMethod:
            return  # it has the new map, and nothing any more
        except (Lost, OSError) as error:
            raise Unavailable(f"home {home}, which has rows for {node.name}: {error}") from error

    def _drop_strangers(self) -> None:
        """Rows that do not live here: fetched for a move that did not happen, or moved away."""
        node = self._node
        if node.is_durable:
            for one in node.map.partitions:
                node.base.invalidate(one.keys)
            return
        for one in node.map.partitions:
            for key, _ in node.base.scan(*one.keys):
                if node.home is None or not node.map.is_home(key, node.name):
                    node.base.remove_range(*point(key))


async def _ended(writing: set[asyncio.Future[Any]]) -> None:
    """What homes were allowed to write before is in the database before it is read there."""
    await asyncio.wait(writing)
