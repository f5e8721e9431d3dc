"""Chance without state: every random number is a hash of a seed and of what it is for.

So a number does not depend on how many were drawn before it, and a world is the same however it
is cut into tasks. `numpy.random` promises its streams for one version only, and numpy's powers
and logarithms differ between processors in the last bit; what is here, and what is made of it,
uses integers, + - * / and square roots, which are the same everywhere.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

_GOLDEN = 0x9E3779B97F4A7C15  # the increment of splitmix64
_ONE = 0xFFFFFFFFFFFFFFFF
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_ROUNDS = 4


def mix(words: Words) -> Words:
    """Each word stirred by the last steps of splitmix64, a bijection."""
    words = words ^ (words >> np.uint64(30))
    words *= _FIRST
    words ^= words >> np.uint64(27)
    words *= _SECOND
    words ^= words >> np.uint64(31)
    return words


def stream(seed: int, *names: int) -> np.uint64:
    """The start of a stream of random words, another one for each seed and list of numbers."""
    word = np.array([seed & _ONE], np.uint64)
    for name in names:
        word = mix(word + np.uint64((name + 1) * _GOLDEN & _ONE))
    return np.uint64(mix(word)[0])


def words(start: np.uint64 | Words, counters: Any) -> Words:
    """The words of a stream, or of one stream for each counter, at these counters."""
    steps = np.asarray(counters).astype(np.uint64)
    steps = (steps + np.uint64(1)) * np.uint64(_GOLDEN)
    return mix(steps + start)


def units(random: Words) -> Floats:
    """Each word as a number from 0 up to, not including, 1."""
    return (random >> np.uint64(11)).astype(np.float64) * (1.0 / (1 << 53))


def below(random: Words, bound: int) -> Integers:
    """Each word as an integer from 0 up to, not including, `bound`, which is at most 2**53."""
    return (units(random) * bound).astype(np.int64)


def permuted(numbers: Any, size: int, key: np.uint64 | Words) -> Integers:
    """Where a random bijection of 0..size-1 sends each number; each may have a key of its own.

    A Feistel network over pairs that number a little more than `size`; who falls beyond it goes
    through once more, until it falls inside.

    >>> sorted(permuted(np.arange(10), 10, stream(1)).tolist()) == list(range(10))
    True
    """
    result = np.array(numbers, np.int64)
    keys = np.broadcast_to(np.asarray(key, np.uint64), result.shape)
    high = int(np.ceil(np.sqrt(size)))
    low = -(-size // high)
    place = np.arange(len(result))
    while len(place):
        left, right = np.divmod(result[place], low)
        for number in range(_ROUNDS):
            round_keys = keys[place] + np.uint64(number << 32)
            left = (left + (words(round_keys, right) >> np.uint64(33)).astype(np.int64)) % high
            right = (right + (words(~round_keys, left) >> np.uint64(33)).astype(np.int64)) % low
        result[place] = left * low + right
        place = place[result[place] >= size]
    return result


def shares(total: int, cumulated: Any, whole: int, offset: int) -> Integers:
    """How much of `total` falls to each, between its two cumulated weights; the sum is exact.

    >>> shares(10, np.array([0, 1, 2, 4]), 4, 0).tolist()
    [2, 3, 5]
    """
    at = np.asarray(cumulated, np.int64)
    if (total + 1) * whole >= 1 << 63:
        at = at.astype(object)  # slow, but exact
    return np.diff((at * total + offset) // whole).astype(np.int64)
