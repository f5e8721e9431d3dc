"""Agreement: every server of a cluster has the same joins, however it came to be there.

A join is known by its name, with its text, or none if it was dropped, and a stamp: the later stamp
wins everywhere, so it does not matter who tells whom, how often and in which order. One home, the
first of the map, gives out the stamps, so that of two conflicting definitions one is refused;
but all servers keep all stamps, and bring a home that was started again up to date. What a server
brings along from its files counts less than all that, and the less the later it was started: a
late joiner does not change the joins of a cluster.
"""

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

JOINS = "joins"  # the message that tells of them


class Known(NamedTuple):
    """What is known of a join."""

    name: str
    text: str | None
    number: int
    node: str

    @property
    def stamp(self) -> tuple[int, str]:
        return self.number, self.node


class Agreement:
    """The joins of a cluster, as far as a node knows."""

    def __init__(self, node: str, applied: Callable[[str, str | None], None]) -> None:
        """`applied` makes a join so; None takes it away. What it raises is not known then."""
        self._node = node
        self._applied = applied
        self._known: dict[str, Known] = {}
        self.digest = ""

    def rows(self) -> list[Known]:
        """All that is known, to tell others."""
        return sorted(self._known.values(), key=lambda one: one.stamp)

    def bring(self, joins: Iterable[tuple[str, str]], moment: int) -> None:
        """These were here at the start, which was at that moment: a number that grows."""
        for place, (name, text) in enumerate(joins):
            self._learn(Known(name, text, place - moment, self._node))

    def note(self, name: str, text: str | None) -> None:
        """This has been done here, and is the latest."""
        known = self._known.get(name)
        if known is None or known.text != text:
            number = 1 + max([0, *(one.number for one in self._known.values())])
            self._learn(Known(name, text, number, self._node))

    def merge(self, rows: Iterable[Sequence[object]]) -> bool:
        """Learn what others know; gives whether anything was new."""
        news = False
        for one in sorted((Known(*row) for row in rows), key=lambda one: one.stamp):  # type: ignore[arg-type]
            known = self._known.get(one.name)
            if known is not None and known.stamp >= one.stamp:
                continue
            if (known.text if known else None) != one.text:
                self._applied(one.name, one.text)
            self._learn(one)
            news = True
        return news

    def _learn(self, one: Known) -> None:
        self._known[one.name] = one
        self.digest = blake2b(repr(self.rows()).encode(), digest_size=8).hexdigest()
