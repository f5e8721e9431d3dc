"""A network in memory, as bad as a seed makes it.

A link keeps the order of its messages, as TCP does, and may be lost at any moment, noticed by
either side sooner or later. Beyond that, messages of the stream of changes may be lost or doubled
one by one: no network does this, but a mistake in a server might, and must be noticed.
"""

import asyncio
import random
from collections.abc import Callable
from functools import partial
from math import inf, nextafter
from typing import Any, Protocol

import msgpack

from pequod.cluster.home import CHANGES
from pequod.cluster.links import Lost, Message
from pequod.cluster.session import HomeSession
from pequod.errors import MissingData, PequodError, SourceDown
from pequod.server.loading import Later
from pequod.server.node import Node
from pequod.wire import error_map, error_of


class Host(Protocol):
    """A process of the simulation."""

    name: str
    node: Node
    is_dead: bool


class Network:
    """All links, and what happens to them."""

    def __init__(self, chance: random.Random, loop: asyncio.AbstractEventLoop) -> None:
        self.chance = chance
        self.loop = loop
        self.delay = 0.005
        self.loss = 0.0
        self.doubling = 0.0
        self.hosts: dict[str, Any] = {}
        self.links: dict[SimulatedLink, None] = {}
        self.cut: dict[frozenset[str], None] = {}  # pairs that do not hear each other
        self.paused: dict[str, None] = {}
        self._held: list[tuple[frozenset[str], Callable[[], None]]] = []
        self.tell: Callable[[str], object] = id

    def transit(self) -> float:
        return self.chance.expovariate(1 / self.delay)

    def carry(self, a: str, b: str, deliver: Callable[[], None]) -> None:
        """Deliver now, or as soon as both can hear each other."""
        pair = frozenset((a, b))
        if pair in self.cut or a in self.paused or b in self.paused:
            self._held.append((pair, deliver))
        else:
            deliver()

    def release(self) -> None:
        """Something has healed: what is no longer held goes on, in its order."""
        held, self._held = self._held, []
        for pair, deliver in held:
            first, *second = pair
            self.carry(first, second[0] if second else first, deliver)

    async def connect(
        self, caller: Host, home: str, received: Callable[[Message], None], lost: Callable[[], None]
    ) -> "SimulatedLink":
        arrived = self.loop.create_future()
        self.loop.call_later(
            self.transit(),
            partial(self.carry, caller.name, home, partial(_arrive, arrived)),
        )
        await arrived
        host = self.hosts.get(home)
        if host is None or host.is_dead or caller.is_dead:
            raise ConnectionRefusedError(f"nobody listens at {home}")
        link = SimulatedLink(self, caller, host, received, lost)
        self.links[link] = None
        return link

    def drop_links(self, host: Host, *, noticed: bool) -> None:
        """A process has died: the other ends hear of it now, or find out by themselves."""
        for link in [one for one in self.links if host in (one.caller, one.host)]:
            if noticed:
                link.break_()


class SimulatedLink:
    """Both ends of a link."""

    bytes = 0

    def __init__(
        self,
        network: Network,
        caller: Host,
        host: Host,
        received: Callable[[Message], None],
        lost: Callable[[], None],
    ) -> None:
        self.network, self.caller, self.host = network, caller, host
        self._received, self._lost = received, lost
        self._last = {True: 0.0, False: 0.0}  # when the latest message arrives, in each direction
        self._number = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self.is_broken = False
        self._ahead = 0  # bytes that the home has sent, and that are not read
        self._session: HomeSession = host.node.session(self._push, lambda: self._ahead, self.break_)

    # The caller's end.

    def call(self, method: str, *args: Any) -> "asyncio.Future[Any]":
        future = self.network.loop.create_future()
        if self.is_broken:
            future.set_exception(Lost("the link is broken"))
            return future
        self._number += 1
        self._waiting[self._number] = future
        self._send(True, (self._number, method, args))
        return future

    def close(self) -> None:
        self.break_()

    def break_(self) -> None:
        """Both ends find that it is broken; what is on its way is lost."""
        if self.is_broken:
            return
        self.is_broken = True
        self.network.links.pop(self, None)
        # The home may hear of it later, and goes on telling nobody until then.
        self.network.loop.call_later(
            self.network.transit(), self.host.node.close_session, self._session
        )
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(Lost("the link broke"))
                future.exception()
        self._waiting.clear()
        self._lost()

    # The way between.

    def _send(self, forth: bool, message: Message) -> None:
        sender = self.caller if forth else self.host
        if self.is_broken or sender.is_dead:
            return
        network = self.network
        packed = msgpack.packb(message)
        if not forth:
            self._ahead += len(packed)
        # Later than the one before: what is due at one time comes in any order.
        when = max(network.loop.time() + network.transit(), nextafter(self._last[forth], inf))
        self._last[forth] = when
        network.loop.call_at(when, self._pass, forth, packed)

    def _pass(self, forth: bool, packed: bytes) -> None:
        a, b = self.caller.name, self.host.name
        self.network.carry(a, b, partial(self._deliver, forth, packed))

    def _deliver(self, forth: bool, packed: bytes) -> None:
        receiver = self.host if forth else self.caller
        if self.is_broken or receiver.is_dead:
            return
        message = msgpack.unpackb(packed, use_list=False)
        if not forth:
            self._ahead -= len(packed)
            if self._ahead == 0:
                self.host.node.tell_soon()
        if forth:
            self._answer(*message)
        elif message[0] == 0:
            self._received(message[1])
        else:
            future = self._waiting.pop(message[0], None)
            if future is None or future.done():
                return
            if message[1] is None:
                future.set_result(message[2])
            else:
                future.set_exception(error_of(message[1]))
                future.exception()

    # The home's end.

    def _answer(self, number: int, method: str, args: tuple[Any, ...]) -> None:
        call = partial(self._session.call, method, *args)
        try:
            result = call()
        except (MissingData, Later) as reason:
            task = asyncio.ensure_future(self._answer_later(number, call, reason))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            return
        except PequodError as error:
            self._send(False, (number, error_map(error), None))
            return
        self._send(False, (number, None, result))

    async def _answer_later(self, number: int, call: Callable[[], Any], reason: Any) -> None:
        try:
            result = await self.host.node.finish_base(call, reason)
        except PequodError as error:
            self._send(False, (number, error_map(error), None))
        except asyncio.CancelledError:
            self._send(False, (number, error_map(SourceDown("it stops")), None))
            raise
        else:
            self._send(False, (number, None, result))

    def _push(self, message: Message) -> None:
        chance = self.network.chance
        if message[0] == CHANGES:
            if self.network.loss and chance.random() < self.network.loss:
                self.network.tell(f"{self.host.name} -> {self.caller.name}: lost {message[2:4]}")
                return
            if self.network.doubling and chance.random() < self.network.doubling:
                self._send(False, (0, message))
        self._send(False, (0, message))


def _arrive(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
