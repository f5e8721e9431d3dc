"""Tokens: what a write has come to, and what an answer has seen, as short texts.

A position is a home, its epoch and a number: all that this life of the home had done up to that
number. A cut is one position for each of some homes. `a.k3v9q1zm.57` is a position, and a cut
is positions parted by `~`; both go wherever a token is asked for, and into a cookie.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pequod.errors import BadRequest

MAX_TOKEN = 4096  # characters

_POSITION = re.compile(r"([\w-]{1,64})\.([0-9a-z]{1,32})\.([0-9]{1,18})", re.ASCII)


class Position(NamedTuple):
    """All that one life of a home had done up to a number."""

    home: str
    epoch: str
    number: int

    def __str__(self) -> str:
        return f"{self.home}.{self.epoch}.{self.number}"


Cut = Mapping[str, Position]  # by home


def text_of(positions: Iterable[Position]) -> str:
    """A token with these positions.

    >>> text_of([Position("a", "k3v9", 57), Position("b", "0c1d", 3)])
    'a.k3v9.57~b.0c1d.3'
    """
    return "~".join(map(str, positions))


def cut_of(token: str) -> dict[str, Position]:
    """The positions of a token; of several of one home, the last.

    >>> cut_of("a.k3v9.57~b.0c1d.3")["a"]
    Position(home='a', epoch='k3v9', number=57)
    """
    if not isinstance(token, str) or len(token) > MAX_TOKEN:
        raise BadRequest(f"after: {token!r:.60} is no token")
    cut = {}
    for part in filter(None, token.split("~")):
        found = _POSITION.fullmatch(part)
        if found is None:
            raise BadRequest(
                f"after: {part!r:.60} is no token of a cluster: write home.epoch.number"
            )
        cut[found[1]] = Position(found[1], found[2], int(found[3]))
    return cut


def merged(old: Cut, new: Cut) -> dict[str, Position]:
    """What includes both; a new epoch replaces an old one."""
    cut = dict(old)
    for home, position in new.items():
        known = cut.get(home)
        if known is None or known.epoch != position.epoch or known.number < position.number:
            cut[home] = position
    return cut
