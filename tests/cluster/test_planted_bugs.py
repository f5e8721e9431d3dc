"""The simulator bites: each of these bugs, planted on purpose, is caught by it."""

from typing import Any

import pytest

from pequod.client.tokens import Position
from pequod.cluster.home import Home, Log
from pequod.cluster.links import Lost
from pequod.cluster.session import HomeSession
from pequod.cluster.subscriptions import Subscription
from pequod.engine.residency import Residency
from pequod.errors import Moving, PequodError, Unavailable
from pequod.server.moving import Move
from pequod.server.node import Node
from tests.cluster.simulation import simulate

SEEDS = range(400)


def follow_blindly(self: Subscription, link: Any, epoch: Any, told: Any, number: Any, changes: Any):
    """Gaps go unnoticed."""
    if epoch == self.epoch and number > self.number:
        for key, value in changes:
            self._copies.remove(key) if value is None else self._copies.put(key, value)
        self.number = number
        self._move()


def follow_any_epoch(
    self: Subscription, link: Any, epoch: Any, told: Any, number: Any, changes: Any
):
    """Changes are taken twice, and counted on."""
    self.number = max(self.number, number)
    for key, value in changes:
        self._copies.remove(key) if value is None else self._copies.put(key, value)
    self._move()


def resume_too_late(self: Home, subscriber: Any, epoch: Any, number: Any, ranges: Any) -> None:
    """The first change after the one that was seen is left out."""
    welcome(self, subscriber, epoch, min(number + 1, self.log.number), ranges)


welcome = Home.welcome


def forget_the_epoch(self: Home, subscriber: Any, epoch: Any, number: Any, ranges: Any) -> None:
    """A number is taken for the same number of another life."""
    welcome(self, subscriber, epoch and self.epoch, number, ranges)


def subscribe_late(self: Home, subscriber: Any, ranges: Any) -> Any:
    """The rows are read now, and changes to them told from a little later on."""
    rows = [self._rows(keys) for keys in ranges]
    self.tell(subscriber, everything=True)
    from asyncio import get_running_loop

    for keys in ranges:
        get_running_loop().call_later(0.05, subscriber.ranges.add, keys)
    return self.log.number, rows


def keep_copies(self: Subscription) -> None:
    """The copies stay although they may be wrong."""
    self._life += 1
    self._drops.clear()


def drop_later(self: Subscription, link: Any) -> None:
    """What was forgotten is unsubscribed from after it was fetched again."""
    import asyncio

    drops, self._drops = self._drops, []
    if drops:
        ranges = [tuple(keys) for keys in drops]
        loop = asyncio.get_running_loop()
        loop.call_later(
            0.2, lambda: link.call("drop", ranges).add_done_callback(lambda f: f.exception())
        )


def has_all(self: Log, number: int) -> bool:
    """What the log has lost is not missed."""
    return number <= self.number


def after_what_is_left(self: Log, number: int) -> list[Any]:
    return [entry for entry in self._entries if entry.number > number]


def write_what_moves(self: Home, changes: Any) -> None:
    """A home goes on writing rows that another one has fetched already."""
    for key, _ in changes:
        if self.map.home_of(key) != self.name:
            raise Moving(key)


def claim_too_much(self: Subscription) -> Position:
    """The cut is one higher than what is here."""
    return Position(self.home, self.epoch, self.number + bool(len(self.ranges)))


def promise_too_little(self: Subscription, changes: Any) -> Any:
    """The token of a write is that of the state before it."""

    async def written() -> Any:
        position, removed = await write(self, changes)
        return position._replace(number=position.number - 1), removed

    return written()


write = Subscription.write


def hear_now(self: Subscription, sent: float) -> None:
    """Copies count as fresh from the answer of a probe on, and not from its question."""
    hear(self, self._clock())


hear = Subscription._hear


async def subscribe_afterwards(self: Subscription, ranges: Any) -> Any:
    """Ranges are noted once their rows have come, so that a new link does not ask for them."""
    link = await self._live()
    self._send_drops(link)
    try:
        number, rows = await link.call("fetch", [tuple(keys) for keys in ranges])
    except Lost as error:
        raise Unavailable(str(error)) from error
    await self._reach(self._life, number)
    for keys in ranges:
        self.ranges.add(keys)
    self._hear(self._clock())
    return rows


def forget_what_was_forgotten(self: Subscription, keys: Any) -> None:
    """What is evicted is not subscribed to any more here, but the home is not told."""
    self.ranges.remove(keys)


def forget_too_much(self: Subscription, keys: Any) -> None:
    """Eviction takes the neighbours of a range along: their changes do not come any more."""
    for one in list(self.ranges):
        if one.overlaps(keys):
            self.ranges.remove(one)
            self._drops.append(one)


def tell_the_first_part(self: Home, subscriber: Any, number: int, changes: Any) -> None:
    """If much has happened, some of it is left out."""
    push(self, subscriber, number, changes[:2])


push = Home._push


def leave_one_out(self: Home, home: str, is_durable: bool, first: str) -> Any:
    """A row is overlooked when rows move."""
    rows, following = leaving(self, home, is_durable, first)
    return rows[1:], following


leaving = Home.leaving


def renew_without_epoch(self: Home, epoch: str) -> None:
    """After a change of the map, the numbers go on as in the old life."""
    for subscriber in self.subscribers:
        subscriber.ranges.clear()
        self._start(subscriber, resumed=False)


async def load_from_one(self: Node, keys: Any) -> Any:
    """Of several homes that may have rows of a range, one is asked."""
    wanted = dict(list(self.map.by_home(keys).items())[:1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(self.map, "by_home", lambda _: wanted)
        return await load(self, keys)


load = Node.load


def tell_only_what_is_wanted(self: HomeSession) -> None:
    """Who has written waits for the next probe to know the number."""


def nothing(*_: Any, **__: Any) -> None:
    """Something that must happen does not."""


async def at_once(*_: Any, **__: Any) -> None:
    """Nobody waits for anything."""


def yes(*_: Any) -> bool:
    return True


PLANTED: dict[str, list[tuple[object, str, object]]] = {
    "a gap is not noticed": [(Subscription, "_follow", follow_blindly)],
    "changes are followed from anywhere": [(Subscription, "_follow", follow_any_epoch)],
    "a stream is resumed one too late": [(Home, "welcome", resume_too_late)],
    "the epoch is forgotten": [(Home, "welcome", forget_the_epoch)],
    "subscribed after the rows were read": [(Home, "fetch", subscribe_late)],
    "a late load overwrites what is newer": [(Residency, "note", nothing)],
    "rows ahead of the stream": [(Subscription, "_reach", at_once), (Residency, "note", nothing)],
    "copies stay after a restart": [(Subscription, "_restart", keep_copies)],
    "unsubscribed after subscribing again": [(Subscription, "_send_drops", drop_later)],
    "never unsubscribed": [(Subscription, "forgotten", nothing)],
    "a log that has lost changes goes on": [
        (Log, "has_after", has_all),
        (Log, "after", after_what_is_left),
    ],
    "rows are written while they move": [(Home, "check", write_what_moves)],
    "what moves is not fetched": [(Move, "_pull", at_once)],
    "copies outlive the map": [(Subscription, "begin_anew", nothing)],
    "old copies count as fresh": [(Node, "check_fresh", nothing)],
    "tokens are not waited for": [(Node, "has", yes)],
    "a cut is one too high": [(Subscription, "position", property(claim_too_much))],
    "a token is one too low": [(Subscription, "write", promise_too_little)],
    "a probe proves more than it can": [(Subscription, "_hear", hear_now)],
    "subscribed to when rows have come": [(Subscription, "_fetch", subscribe_afterwards)],
    "a home is not told of evictions": [(Subscription, "forgotten", forget_what_was_forgotten)],
    "eviction takes neighbours along": [(Subscription, "forgotten", forget_too_much)],
    "a batch loses its end": [(Home, "_push", tell_the_first_part)],
    "a row stays behind in a move": [(Home, "leaving", leave_one_out)],
    "a new map is no new life": [(Home, "renew", renew_without_epoch)],
    "a home is not asked": [(Node, "load", load_from_one)],
    "a write waits for the next probe": [(HomeSession, "_tell", tell_only_what_is_wanted)],
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, attribute, bug in PLANTED[name]:
        monkeypatch.setattr(owner, attribute, bug)
    for seed in SEEDS:
        try:
            simulate(seed)
        except (AssertionError, PequodError):
            print(f"{name}: seed {seed}")
            return
    pytest.fail(f"{len(SEEDS)} seeds did not notice: {name}")
