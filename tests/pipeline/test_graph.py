"""The social graph: exact sizes, no self-follows, no duplicates, the same for every cut."""

import os
import subprocess
import sys

import numpy as np
import pytest

from pequod.errors import BadRequest
from pequod.pipeline.graph import BLOCK, GraphSpec, edge_digest, exponent

SMALL = GraphSpec(users=2000, edges=20_000, seed=1)
SMALL_DIGEST = 1704374638141349831  # a new one would break every world on disk


def all_edges(spec, step):
    pieces = [spec.followees(at, at + step) for at in range(0, spec.users, step)]
    return tuple(np.concatenate(columns) for columns in zip(*pieces))


def test_the_golden_graph():
    assert edge_digest(*all_edges(SMALL, 2000)) == SMALL_DIGEST


@pytest.mark.parametrize("features", ["AVX512F AVX512_SKX", "AVX2 FMA3 AVX512F AVX512_SKX"])
def test_the_processor_does_not_matter(features):
    code = "from tests.pipeline.test_graph import *; print(edge_digest(*all_edges(SMALL, 2000)))"
    environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": features}
    command = [sys.executable, "-W", "ignore", "-c", code]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert int(run.stdout) == SMALL_DIGEST


@pytest.mark.parametrize(
    "spec",
    [
        SMALL,
        GraphSpec(2, 1, 5),
        GraphSpec(2, 0, 5),
        GraphSpec(10, 45, 2),
        GraphSpec(30, 400, 3),
        GraphSpec(BLOCK + 1, 9 * BLOCK, 4),
    ],
    ids=str,
)
def test_sizes_are_exact(spec):
    users, posters = all_edges(spec, spec.users)
    assert len(users) == spec.edges
    assert np.all(users != posters)
    packed = users << 32 | posters
    assert np.all(np.diff(packed) > 0)  # sorted, and nothing twice
    degrees = np.bincount(users, minlength=spec.users)
    assert degrees.tolist() == spec.out_degrees(np.arange(spec.users)).tolist()


@pytest.mark.parametrize("step", [1, 7, 333, BLOCK, 1999])
def test_the_cut_does_not_matter(step):
    if step == 1:
        spec = GraphSpec(60, 300, 9)
    else:
        spec = SMALL
    whole, pieces = all_edges(spec, spec.users), all_edges(spec, step)
    assert all(np.array_equal(one, other) for one, other in zip(whole, pieces))


def test_the_seed_matters():
    others = [GraphSpec(2000, 20_000, seed) for seed in (2, 3, -1)]
    digests = {edge_digest(*all_edges(spec, 2000)) for spec in [SMALL, *others]}
    assert len(digests) == 4


def test_futures_are_new():
    users = np.arange(0, 2000, 3)
    counts = np.arange(len(users)) % 5
    owners, posters = SMALL.futures(users, counts)
    assert np.bincount(owners, minlength=len(users)).tolist() == counts.tolist()
    followed = set(zip(*(column.tolist() for column in all_edges(SMALL, 2000))))
    new = list(zip(users[owners].tolist(), posters.tolist()))
    assert len(set(new)) == len(new)
    assert not followed & set(new)
    assert all(user != poster for user, poster in new)


def test_fewer_futures_are_the_first_ones():
    users = np.arange(100)
    _, two = SMALL.futures(users, np.full(100, 2))
    _, five = SMALL.futures(users, np.full(100, 5))
    assert five.reshape(100, 5)[:, :2].tolist() == two.reshape(100, 2).tolist()


def test_followers_are_distributed_as_in_the_real_graph():
    spec = GraphSpec(users=50_000, edges=2_000_000, seed=1)
    users, posters = all_edges(spec, spec.users)
    followers = np.bincount(posters, minlength=spec.users)
    assert 0.05 < followers.max() / spec.users < 0.08
    assert exponent(followers, 50) == pytest.approx(2.276, abs=0.1)  # few users; see the docs
    assert np.bincount(users).max() == 925  # 1.85% of the users


@pytest.mark.parametrize(("users", "edges"), [(1, 0), (0, 0), (10, 46), (10, -1), (1 << 27, 5)])
def test_impossible_graphs_are_refused(users, edges):
    with pytest.raises(BadRequest):
        GraphSpec(users, edges)
