"""The simulator bites: each of these bugs, planted on purpose, is caught by it."""

from collections.abc import Callable
from typing import Any

import pytest

from pequod.cluster.home import Home, Log
from pequod.cluster.subscriptions import Subscription
from pequod.engine.residency import Residency
from pequod.errors import Moving, PequodError
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


def nothing(*_: Any, **__: Any) -> None:
    """Something that must happen does not."""


async def at_once(*_: Any, **__: Any) -> None:
    """Nobody waits for anything."""


def yes(*_: Any) -> bool:
    return True


PLANTED: dict[str, list[tuple[object, str, Callable[..., Any]]]] = {
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
