"""A Newp world and the sessions of its readers, for replaying.

`pequod.pipeline` says what articles, comments and votes there are; sessions are worked out here,
each a pure function of the seed and its number: a random article is read, with some chance voted
on, and with a chance of 1% commented on.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pequod.pipeline.chance import below, stream, units, words
from pequod.pipeline.files import read_pairs
from pequod.pipeline.jobs import PlainEngine
from pequod.pipeline.newp import NewpSpec, write_newp

READ, VOTE, COMMENT = range(3)
COMMENT_CHANCE = 0.01
FIRST_NEW_COMMENT = 1_000_000_000  # the numbers of comments made in sessions

_ARTICLE, _READER, _VOTE, _COMMENT = range(51, 55)  # names of streams


class Article(NamedTuple):
    author: str
    id: str


Session = tuple[int, Article, str, str]  # kind, article, who, number of the comment


class NewpWorld:
    """Articles, comments and votes as rows, and sessions over them."""

    def __init__(self, spec: NewpSpec, folder: Path) -> None:
        self.spec = spec
        self._folder = folder
        write_newp(spec, folder, PlainEngine(), parts=1)
        self.articles = [
            Article(*key.split("|")[1:]) for key, _ in self.pairs() if key.startswith("article|")
        ]

    def pairs(self) -> Iterator[tuple[str, Any]]:
        for some in read_pairs(self._folder / "kv"):
            yield from some

    def operations(self, sessions: int, vote_percent: int, turn: int) -> list[Session]:
        """What the readers of so many sessions do; another `turn` is another set of sessions."""
        seed, numbers = self.spec.seed, np.arange(sessions) + turn * sessions
        articles = below(words(stream(seed, _ARTICLE), numbers), len(self.articles)).tolist()
        readers = below(words(stream(seed, _READER), numbers), self.spec.users).tolist()
        votes = units(words(stream(seed, _VOTE), numbers)) * 100 < vote_percent
        comments = units(words(stream(seed, _COMMENT), numbers)) < COMMENT_CHANCE
        found: list[Session] = []
        for number, at, reader, votes_too, comments_too in zip(
            numbers.tolist(), articles, readers, votes.tolist(), comments.tolist()
        ):
            article, who = self.articles[at], f"u{reader:07}"
            found.append((READ, article, who, ""))
            if votes_too:
                found.append((VOTE, article, who, ""))
            if comments_too:
                found.append((COMMENT, article, who, str(FIRST_NEW_COMMENT + number)))
        return found
