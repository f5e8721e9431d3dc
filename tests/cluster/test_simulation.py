"""Clusters in virtual time, over a network that gets worse with the seed."""

import logging
import os
import subprocess
import sys
from hashlib import blake2b

import pytest

from tests.cluster.simulation import check, simulate

SEEDS, CHUNK = 2000, 100


@pytest.fixture(autouse=True)
def _quiet(caplog):
    caplog.set_level(logging.CRITICAL)  # gaps are what the simulation is about


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_answer_is_what_it_claims(first):
    reads = 0
    for seed in range(first, first + CHUNK):
        reads += check(seed).reads
    assert reads > CHUNK


def test_what_should_happen_does():
    reached: dict[str, int] = {}
    for seed in range(60):
        for name, number in simulate(seed).reached.items():
            reached[name] = reached.get(name, 0) + number
    for name in ("resumed", "restarted", "gaps", "crash", "lost", "moved", "thawed"):
        assert reached[name] > 0, reached


def story_of(seed: int) -> str:
    story = blake2b(digest_size=8)
    simulate(seed, lambda line: story.update(line.encode()))
    return story.hexdigest()


@pytest.mark.parametrize("seed", [3, 17, 47])
def test_a_seed_always_tells_the_same_story(seed):
    code = (
        "import logging; logging.disable(logging.CRITICAL)\n"
        f"from tests.cluster.test_simulation import story_of; print(story_of({seed}))"
    )
    for hashes in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": hashes}
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == story_of(seed)
