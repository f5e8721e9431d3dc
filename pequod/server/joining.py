"""The joins of a cluster at one of its nodes: installed where the others have them, too."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from pequod.cluster.agreement import JOINS, Agreement
from pequod.cluster.links import Message
from pequod.cluster.session import HomeSession
from pequod.cluster.subscriptions import Subscription
from pequod.engine.cache import Cache
from pequod.errors import JoinError, PequodError, SourceDown, Unavailable
from pequod.joins.join import CacheJoin
from pequod.joins.parser import parse
from pequod.server.loading import Later

log = logging.getLogger("pequod.cluster")

SPREAD_SECONDS = 2.0  # that a new join waits for homes which are down, or were only just started


class ClusterJoins:
    """What a node does about joins.

    They are installed in the cache that computes, and in that with the rows of the home, which
    computes nothing but refuses to have rows that a join computes.
    """

    def __init__(
        self,
        node: str,
        cache: Cache,
        base: Cache,
        subscriptions: Mapping[str, Subscription],
        sessions: Mapping[HomeSession, None],
        changed: Callable[[], object],
        started: int,
    ) -> None:
        """Joins that the cache has already are told to the others, with when it `started`."""
        self._node = node
        self._cache = cache
        self._base = base
        self._subscriptions = subscriptions
        self._sessions = sessions
        self._changed = changed
        self._parsed: list[CacheJoin] | None = None
        self.agreement = Agreement(node, self._apply)
        brought = [(join["name"], join["text"]) for join in cache.joins()]
        for name, text in brought:
            base.adopt_join(name, text)
        self.agreement.bring(brought, started)

    def parsed(self) -> list[CacheJoin]:
        """The joins that are installed."""
        if self._parsed is None:
            self._parsed = [one for join in self._cache.joins() for one in parse(join["text"])]
        return self._parsed

    # At the first home, for all.

    def change(self, kind: str, argument: Any) -> Any:
        """Add or drop joins; adding takes time, for the other homes have a say in it."""
        if kind == "add":
            return self._add(argument)
        if kind == "drop":
            self._cache.drop_join(argument)
            self._note(argument, None)
        self._tell()
        return None

    def _add(self, text: str) -> list[dict[str, Any]]:
        before = {join["name"] for join in self._cache.joins()}
        answer = self._cache.add_join(text)
        texts = {join["name"]: join["text"] for join in self._cache.joins()}
        new = [one["name"] for one in answer if one["name"] not in before]
        try:
            for name in new:
                self._base.adopt_join(name, texts[name])
        except PequodError:
            self._withdraw(new)
            raise
        for name in new:
            self._note(name, texts[name])
        raise Later(partial(self._spread, new, answer))

    async def _spread(self, new: list[str], answer: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Tell the other homes, which may have rows that a join would compute."""
        rows = [tuple(one) for one in self.agreement.rows()]
        end = asyncio.get_running_loop().time() + SPREAD_SECONDS
        for name, one in self._subscriptions.items():
            if name == self._node:
                continue
            try:
                async with asyncio.timeout_at(end):
                    await one.ask("joins", rows)
            except JoinError:
                self._withdraw(new)
                self._tell()
                raise
            except (TimeoutError, SourceDown, Unavailable) as error:
                log.warning("home %s learns of new joins later: %r", name, error)
        self._tell()
        return answer

    def _withdraw(self, names: Iterable[str]) -> None:
        for name in names:
            self._cache.drop_join(name)
            self._note(name, None)

    def _note(self, name: str, text: str | None) -> None:
        """This was done here."""
        if text is None and any(join["name"] == name for join in self._base.joins()):
            self._base.drop_join(name)
        self._forget()
        self.agreement.note(name, text)

    def _tell(self) -> None:
        for session in list(self._sessions):
            session.tell_joins()

    # At all others.

    def told(self, home: str, message: Message) -> None:
        """A home tells of its joins; what it does not know, it is told in turn."""
        if message[0] != JOINS:
            return
        try:
            self.agreement.merge(message[1])
        except PequodError as error:
            log.error("a join of home %s cannot be installed here: %s", home, error)
            return
        rows = [tuple(one) for one in self.agreement.rows()]
        if not {*rows} <= {tuple(one) for one in message[1]}:
            task = asyncio.ensure_future(self._subscriptions[home].ask(JOINS, rows))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _apply(self, name: str, text: str | None) -> None:
        """Make a join so here, too; if the home's rows forbid it, nothing is changed."""
        for cache in (self._base, self._cache):
            installed = {join["name"]: join["text"] for join in cache.joins()}
            if name in installed and installed[name] != text:
                if text is not None and cache is self._cache:
                    log.error(
                        "join %s is another one in the cluster, and so it is here: %s; it was %s",
                        *(name, text, installed[name]),
                    )
                cache.drop_join(name)
            if text is not None and installed.get(name) != text:
                cache.adopt_join(name, text)
        self._forget()

    def _forget(self) -> None:
        self._parsed = None
        self._changed()
