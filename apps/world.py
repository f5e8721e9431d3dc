"""The sample world of the demo: users who follow, post, write articles, comment and vote.

Everything follows from a seed, so that two runs show the same world. The follower graph grows by
preference, as real ones do: who has followers gets more.
"""

import random
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import chain

SEED = 2014
USERS = 300
CELEBRITIES = 5
DAYS = 3
DAY_SECONDS = 86_400

_WORDS = tomllib.loads(files("apps").joinpath("words.toml").read_text("utf-8"))


@dataclass
class World:
    """Rows for Twip and Newp; times are seconds with ten digits."""

    users: list[str] = field(default_factory=list)
    follows: set[tuple[str, str]] = field(default_factory=set)  # user, poster
    posts: list[tuple[str, int, str]] = field(default_factory=list)  # poster, time, text
    articles: list[tuple[str, int, str]] = field(default_factory=list)  # author, id, title
    comments: list[tuple[str, int, int, str, str]] = field(default_factory=list)
    votes: set[tuple[str, int, str]] = field(default_factory=set)  # author, id, voter

    @property
    def celebrities(self) -> list[str]:
        """Those with most followers, most first."""
        followers = Counter(poster for _, poster in self.follows)
        return sorted(followers, key=lambda user: (-followers[user], user))[:CELEBRITIES]


def sample_world(now: int, users: int = USERS, seed: int = SEED) -> World:
    """A world whose last three days end `now`.

    >>> world = sample_world(1_800_000_000, users=20)
    >>> len(world.users), world == sample_world(1_800_000_000, users=20)
    (20, True)
    """
    chance = random.Random(seed)
    world = World(users=_names(users))
    _grow_follows(world, chance)
    weights = _activity(world)
    _write_posts(world, chance, weights, now)
    _write_articles(world, chance, weights, now)
    return world


def _names(count: int) -> list[str]:
    first = _WORDS["names"].split()
    rounds = [[f"{name}{number}" for name in first] for number in range(2, 2 + count // len(first))]
    return list(chain(first, *rounds))[:count]


def _grow_follows(world: World, chance: random.Random) -> None:
    """One after the other follows some earlier users: half by chance, half by fame."""
    fame = list(world.users[:5])
    for number, user in enumerate(world.users):
        others = world.users[: max(number, 10)]
        for _ in range(min(len(others), 4 + int(chance.expovariate(1 / 12)))):
            poster = chance.choice(fame if chance.random() < 0.5 else others)
            if poster != user and (user, poster) not in world.follows:
                world.follows.add((user, poster))
                fame.append(poster)
                if chance.random() < 0.3:
                    world.follows.add((poster, user))


def _activity(world: World) -> list[float]:
    """How much a user writes: more followers, more posts."""
    followers = Counter(poster for _, poster in world.follows)
    return [1 + followers[user] ** 0.5 for user in world.users]


def _write_posts(world: World, chance: random.Random, weights: list[float], now: int) -> None:
    taken = set()
    for poster in chance.choices(world.users, weights, k=5 * len(world.users)):
        time = now - 30 - int(chance.expovariate(3) * DAYS * DAY_SECONDS)
        if (poster, time) not in taken:
            taken.add((poster, time))
            world.posts.append((poster, time, _sentence(chance, "thoughts")))


def _sentence(chance: random.Random, kind: str) -> str:
    text: str = chance.choice(_WORDS[kind]).format(chance.choice(_WORDS["subjects"]))
    return text[0].upper() + text[1:]


def _write_articles(world: World, chance: random.Random, weights: list[float], now: int) -> None:
    times = range(now - DAYS * DAY_SECONDS, now - 60)
    ids = sorted(chance.sample(times, max(8, len(world.users) // 8)))
    authors = chance.choices(world.users, weights, k=len(ids))
    for number, author in zip(ids, authors):
        world.articles.append((author, number, _sentence(chance, "titles")))
        interest = chance.paretovariate(1.2)
        for voter in chance.sample(world.users, min(len(world.users), int(4 * interest))):
            world.votes.add((author, number, voter))
        for _ in range(min(25, int(2 * interest))):
            # Those who write articles have karma, and comment more than others.
            writes = chance.random() < 0.5
            commenter = chance.choice(authors if writes else world.users)
            time = chance.randrange(number, now)
            world.comments.append(
                (author, number, time, commenter, chance.choice(_WORDS["remarks"]))
            )
