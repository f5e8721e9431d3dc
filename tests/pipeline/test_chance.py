"""Chance: the same words forever, and bijections that are bijections."""

import numpy as np
import pytest

from pequod.pipeline.chance import below, permuted, shares, stream, units, words

GOLDEN = [17912853177497000771, 2060144654089071806, 5881773974990053573]


def test_words_are_what_they_always_were():
    assert words(stream(1, 2), [0, 1, 2]).tolist() == GOLDEN


def test_units_and_integers_stay_within_their_bounds():
    random = words(stream(7), np.arange(100_000))
    assert 0 <= units(random).min() < 0.001 < 0.999 < units(random).max() < 1
    assert np.bincount(below(random, 10)).min() > 9_500


@pytest.mark.parametrize("size", [1, 2, 3, 10, 97, 1000, 65_537])
def test_a_bijection_meets_everyone_once(size):
    found = permuted(np.arange(size), size, stream(3, size))
    assert sorted(found.tolist()) == list(range(size))


def test_a_bijection_has_no_pattern():
    found = permuted(np.arange(10_000), 10_000, stream(5))
    steps = np.abs(np.diff(found))
    assert 3_000 < steps.mean() < 3_700  # a third of the size, if all is chance
    assert len(set(steps.tolist())) > 5_000


def test_each_number_may_have_its_own_bijection():
    keys = words(stream(1), np.repeat(np.arange(50), 20))
    found = permuted(np.tile(np.arange(20), 50), 20, keys).reshape(50, 20)
    assert all(sorted(row) == list(range(20)) for row in found.tolist())
    assert len({tuple(row) for row in found.tolist()}) == 50


def test_shares_add_up_beyond_32_bits():
    weights = np.full(1000, 5_000_000)
    cumulated = np.concatenate([[0], np.cumsum(weights)])
    assert shares(12_345_678_901, cumulated, int(cumulated[-1]), 17).sum() == 12_345_678_901
