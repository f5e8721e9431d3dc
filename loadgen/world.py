"""Twip worlds for the engine benchmark: who follows whom, and who has posted what.

A world of 10,000 rows and one of 1,000,000 differ in the number of users alone. Users come in
communities of 41 in which each follows the 40 others and has posted once, so that every
user has 40 followees, 40 followers and a timeline of 40 rows. Beside them a club of a few readers
follows 40 prolific authors with 50 posts each: their timelines are the ones computed anew.
The names of a community lie anywhere in the key space and its rows anywhere in memory.
"""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import permutations

from loadgen.bare import BareTwip, Pair
from pequod import Cache, prefix

TIMELINE = "t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>;"

FOLLOWEES = FOLLOWERS = 40
COMMUNITY = FOLLOWEES + 1
COMMUNITY_ROWS = COMMUNITY * (FOLLOWEES + 1 + FOLLOWEES)  # follows, posts, timeline rows
READERS = 34  # with two communities that makes 10,002 rows
AUTHOR_POSTS = 50
CLUB_ROWS = FOLLOWEES * (READERS + AUTHOR_POSTS)

FOLLOWS = "1"  # the value of a follow: one object for all, as its content never matters


def follow_key(user: str, poster: str) -> str:
    return f"s|{user}|{poster}"


def post_key(poster: str, time: int) -> str:
    return f"p|{poster}|{time:010}"


def timeline_range(user: str) -> Pair:
    """The two ends of a user's whole timeline."""
    first, last = prefix(f"t|{user}|")
    return first, last


def user_name(number: int) -> str:
    """A name whose length does not tell the size of the world."""
    return f"u{number:06}"


@dataclass(frozen=True)
class World:
    communities: list[list[str]]
    authors: list[str]
    readers: list[str]

    @classmethod
    def of_rows(cls, rows: int, seed: int) -> "World":
        """A world that comes as near to `rows` as whole communities can."""
        communities = max(1, round((rows - CLUB_ROWS) / COMMUNITY_ROWS))
        numbers = list(range(communities * COMMUNITY + FOLLOWEES + READERS))
        random.Random(seed).shuffle(numbers)
        names = [user_name(number) for number in numbers]
        club = names[communities * COMMUNITY :]
        return cls(
            [names[i * COMMUNITY : (i + 1) * COMMUNITY] for i in range(communities)],
            authors=club[:FOLLOWEES],
            readers=club[FOLLOWEES:],
        )

    @property
    def rows(self) -> int:
        """Follows, posts and rows of live timelines; the club's timelines come and go."""
        return len(self.communities) * COMMUNITY_ROWS + CLUB_ROWS

    def users(self) -> list[str]:
        """The users whose timelines are live, in an order that mixes the communities."""
        return [user for members in zip(*self.communities) for user in members]

    def base_pairs(self) -> Iterator[Pair]:
        """All follows and posts."""
        for members in self.communities:
            for user, poster in permutations(members, 2):
                yield follow_key(user, poster), FOLLOWS
            for time, poster in enumerate(members):
                yield post_key(poster, time), f"{poster} says hello"
        for author in self.authors:
            for reader in self.readers:
                yield follow_key(reader, author), FOLLOWS
            for time in range(AUTHOR_POSTS):
                yield post_key(author, time), f"{author} writes for the {time}th time"

    def newest_two(self, communities: int) -> Iterator[Pair]:
        """For each user of the first `communities`: the range of the two newest timeline rows.

        Members post in their order, so these are the two last other members.
        """
        for members in self.communities[:communities]:
            for position, user in enumerate(members):
                time = COMMUNITY - 2 if position < COMMUNITY - 2 else COMMUNITY - 3
                yield f"t|{user}|{time:010}", timeline_range(user)[1]


def new_cache() -> Cache:
    """An empty cache that knows Twip's timeline."""
    cache = Cache()
    cache.add_join(TIMELINE)
    return cache


def account_bytes(cache: Cache) -> int | None:
    """The cache's own account of its memory, if it keeps one."""
    account: int | None = cache.stats().get("bytes")
    return account


def fill_cache(cache: Cache, base: Iterable[Pair], users: Iterable[str]) -> None:
    """Put the `base` pairs and bring the timelines of `users` to life."""
    for key, value in base:
        cache.put(key, value)
    for user in users:
        cache.scan(*timeline_range(user))


def fill_bare(bare: BareTwip, base: Iterable[Pair], users: Iterable[str]) -> None:
    """The same by hand."""
    for key, value in base:
        bare.load(key, value)
    for user in users:
        bare.first_scan(*timeline_range(user))
