"""The social graph: who follows whom, each follow a pure function of seed, user and counter.

A user draws candidates from a stream of its own; the first ones that differ from each other and
from the user are its followees, as many as its out-degree says. Nothing depends on another user,
so any cut into tasks gives the same graph, sorted by (user, poster) from the start, and the
candidates beyond the out-degree are follows of the future, which the traces use.

- Out-degrees are log-logistic (tail exponent 2.73), spread over the users by a random bijection and
  scaled so that their sum is exactly the number of edges asked for.
- A candidate is the poster of a rank drawn from Zipf and Mandelbrot's law, (rank + q) ** -(29/37),
  so that followers have the exponent 1 + 37/29 = 2.276 of the real Twitter graph; q is such that
  the most popular poster would get 7.2% of all users, as there, if nobody drew it twice. A second
  bijection gives ranks to users, so popularity has nothing to do with the order of keys.

All exponents are sums of halves of halves, so square roots are enough (see `chance`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pequod.errors import BadRequest
from pequod.pipeline.chance import Floats, Integers, mix, permuted, stream, units, words

BLOCK = 2048  # users whose follows are worked out together: small enough for the processor's cache
MAX_USERS = 1 << 26

_DEGREES, _RANKS, _FOLLOWS = 1, 2, 3  # names of streams
_CELEBRITY = 0.072  # of all users, follow the most popular one
_LARGEST_OUT = 0.0185  # of all users, are followed by the most eager one
_POSTER_BITS, _COUNTER_BITS = 26, 26  # of a draw; 11 more are left for the user in its block


class _Laws(NamedTuple):
    """The numbers that are solved for once; they travel with the spec to every task."""

    out_scale: float  # of the out-degrees
    out_extra: int  # so many of the lowest strata have one more, and the sum is exact
    out_largest: int
    shift: float  # q of Zipf and Mandelbrot
    low: float  # q ** (8/37)
    high: float  # (users + q) ** (8/37)


@dataclass(frozen=True)
class GraphSpec:
    """A graph of so many users and follows; equal specs are equal graphs.

    >>> GraphSpec(users=100, edges=400, seed=1).followees(0, 2)[1].tolist()
    [3, 77, 4, 9, 33]
    """

    users: int
    edges: int
    seed: int = 1

    def __post_init__(self) -> None:
        if not 2 <= self.users <= MAX_USERS:
            raise BadRequest(f"a graph has 2 to {MAX_USERS:,} users, not {self.users:,}")
        most = self.users * (self.users - 1) // 2
        if not 0 <= self.edges <= most:
            raise BadRequest(
                f"{self.users:,} users have 0 to {most:,} edges here, half of all pairs,"
                f" not {self.edges:,}"
            )

    @cached_property
    def laws(self) -> _Laws:
        """What the two distributions need, solved for; about a second for a million users."""
        largest = min(
            self.users - 1,
            max(int(self.users * _LARGEST_OUT), 4 * -(-self.edges // self.users)),
        )
        scale, extra = _out_scale(self.users, self.edges, largest)
        shift, low, high = _rank_law(self.users, self.edges)
        return _Laws(scale, extra, largest, shift, low, high)

    def out_degrees(self, users: Integers) -> Integers:
        """How many each of these users follows."""
        laws = self.laws
        strata = permuted(users, self.users, stream(self.seed, _DEGREES))
        degrees = _degrees(strata, self.users, laws.out_scale, laws.out_largest)
        return degrees + (strata < laws.out_extra)

    def followees(self, first: int, last: int) -> tuple[Integers, Integers]:
        """The follows of the users from `first` up to `last`: users and posters, in that order."""
        users = np.arange(first, min(last, self.users))
        owners, posters, _ = self._distinct(users, self.out_degrees(users), by_counter=False)
        return users[owners], posters

    def futures(self, users: Integers, counts: Integers) -> tuple[Integers, Integers]:
        """The next `counts` candidates of each user after its followees, as they were drawn.

        Answers with the place in `users` of each, and its poster.
        """
        degrees = self.out_degrees(users)
        if np.any(degrees + counts >= self.users):
            raise BadRequest("some user would follow everybody: ask for fewer edges or checks")
        owners, posters, ranks = self._distinct(users, degrees + counts, by_counter=True)
        new = ranks >= degrees[owners]
        return owners[new], posters[new]

    def _distinct(
        self, users: Integers, wanted: Integers, by_counter: bool
    ) -> tuple[Integers, Integers, Integers]:
        """The first `wanted` different candidates of each user: owner's place, poster, rank.

        They come by poster, or by counter; the rank is among the candidates that count.
        """
        pieces = [
            self._block(users[at : at + BLOCK], wanted[at : at + BLOCK], by_counter, at)
            for at in range(0, len(users), BLOCK)
        ]
        if not pieces:
            nothing = np.zeros(0, np.int64)
            return nothing, nothing, nothing
        owners, posters, ranks = zip(*pieces)
        return np.concatenate(owners), np.concatenate(posters), np.concatenate(ranks)

    def _block(
        self, users: Integers, wanted: Integers, by_counter: bool, start: int
    ) -> tuple[Integers, Integers, Integers]:
        draws = _draws_for(self)(wanted)
        streams = words(stream(self.seed, _FOLLOWS), users)
        while True:
            ends = np.cumsum(draws)
            starts = ends - draws
            owners = np.repeat(np.arange(len(users)), draws)
            counters = np.arange(int(ends[-1])) - starts[owners]
            posters = self._posters(units(words(streams[owners], counters)))
            # One sort brings equal posters of one user together, the first drawn in front.
            packed = owners << (_POSTER_BITS + _COUNTER_BITS)
            packed |= posters << _COUNTER_BITS
            packed |= counters
            packed.sort()
            pairs = packed >> _COUNTER_BITS
            new = np.empty(len(pairs), bool)
            new[:1] = True
            np.not_equal(pairs[1:], pairs[:-1], out=new[1:])
            places = starts[packed >> (_POSTER_BITS + _COUNTER_BITS)]
            places += packed & ((1 << _COUNTER_BITS) - 1)
            counts = np.zeros(len(pairs), bool)
            counts[places[new]] = True
            counts &= posters != users[owners]
            before = np.cumsum(counts)
            ranks = before - counts - (before[starts] - counts[starts])[owners]
            found = before[ends - 1] - before[starts] + counts[starts]
            short = found < wanted
            if not short.any():
                break
            draws = np.where(short, draws * 2, draws)
        counts &= ranks < wanted[owners]
        at = np.flatnonzero(counts) if by_counter else places[counts[places]]
        return owners[at] + start, posters[at], ranks[at]

    def _posters(self, chances: Floats) -> Integers:
        """The poster that each chance, 0 to 1, falls on."""
        laws = self.laws
        depths = _power_37_8(laws.low + chances * (laws.high - laws.low)) - laws.shift
        ranks = np.clip(depths.astype(np.int64), 0, self.users - 1)
        posters: Integers = _by_rank(self.users, self.seed)[ranks].astype(np.int64)
        return posters


def edge_digest(users: Integers, posters: Integers) -> int:
    """A sum over the edges, modulo 2**64, that does not depend on their order or partition."""
    packed = (users << 32 | posters).astype(np.uint64)
    return int(mix(packed + np.uint64(1)).sum(dtype=np.uint64))


@lru_cache(maxsize=4)
def _by_rank(users: int, seed: int) -> NDArray[np.int32]:
    """The users in the order of their popularity: a table, as looking up beats reckoning."""
    return permuted(np.arange(users), users, stream(seed, _RANKS)).astype(np.int32)


@lru_cache(maxsize=4)
def _draws_for(spec: GraphSpec) -> Callable[[Integers], Integers]:
    """How many draws should give so many different posters; a wrong guess costs time alone."""
    laws = spec.laws
    marks = np.unique(np.geomspace(1, spec.users + 1, 200).astype(np.int64)) - 1.0
    masses = np.diff((marks + laws.shift) ** (8 / 37)) / (laws.high - laws.low)
    sizes = np.diff(marks)
    draws = np.geomspace(1, 64.0 * spec.users + 64, 100)
    distinct = (sizes * -np.expm1(-draws[:, None] * masses / sizes)).sum(axis=1)

    def guess(wanted: Integers) -> Integers:
        safe = np.interp(wanted + 2.5 * np.sqrt(wanted) + 1, distinct, draws)
        return np.ceil(safe).astype(np.int64) + 1

    return guess


def _power_37_8(x: Any) -> Any:
    """x ** (37/8)."""
    eighth = np.sqrt(np.sqrt(np.sqrt(x)))
    square = eighth * eighth
    fourth_power = x * x * x * x
    return fourth_power * (square * square * eighth)


def _root_37_8(y: float) -> float:
    """The x with x ** (37/8) = y, by bisection: no power function is the same everywhere."""
    low, high = 0.0, max(1.0, y)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if _power_37_8(np.float64(middle)) <= y else (low, middle)
    return low


def _degrees(strata: Integers, users: int, scale: float, largest: int) -> Integers:
    """Log-logistic quantiles, odds ** (37/64), cut off at the largest."""
    share = (strata + 0.5) / users
    half = np.sqrt(share / (1 - share))
    sixteenth = np.sqrt(np.sqrt(np.sqrt(half)))
    shape = half * sixteenth * np.sqrt(np.sqrt(sixteenth))
    return np.minimum(shape * scale, largest).astype(np.int64)


def _out_scale(users: int, edges: int, largest: int) -> tuple[float, int]:
    """The scale with which the out-degrees add up to `edges`, but for a few that are left over."""
    strata = np.arange(users)

    def total(scale: float) -> int:
        return int(_degrees(strata, users, scale, largest).sum())

    low, high = 0.0, 1.0
    while total(high) < edges:
        high *= 2
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if total(middle) <= edges else (low, middle)
    return low, edges - total(low)


def _rank_law(users: int, edges: int) -> tuple[float, float, float]:
    """q, q ** (8/37) and (users + q) ** (8/37), for the wanted share of the most popular."""
    wanted = min(0.5, _CELEBRITY * users / max(edges, 1))

    def law(low: float) -> tuple[float, float, float]:
        shift = float(_power_37_8(np.float64(low)))
        return shift, low, _root_37_8(users + shift)

    def share(low: float) -> float:
        shift, _, high = law(low)
        return (_root_37_8(1 + shift) - low) / (high - low)

    lowest, highest = 0.0, _root_37_8(users)  # beyond that all are nearly equal anyhow
    for _ in range(60):
        middle = (lowest + highest) / 2
        lowest, highest = (middle, highest) if share(middle) > wanted else (lowest, middle)
    return law((lowest + highest) / 2)


def user_width(users: int) -> int:
    """The digits in a name: seven, or more if there are more than ten million users."""
    return max(7, len(str(users - 1)))


def user_name(number: int, width: int = 7) -> str:
    """The name of a user.

    >>> user_name(1)
    'u0000001'
    """
    return f"u{number:0{width}}"


def exponent(degrees: Integers, least: int) -> float:
    """The exponent of a power law that best fits the degrees from `least` on."""
    tail = degrees[degrees >= least]
    return 1 + len(tail) / float(np.log(tail / (least - 0.5)).sum()) if len(tail) else math.nan
