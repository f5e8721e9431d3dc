"""A short run of the torture, with every fault that its time allows."""

from tests.backing.torture import torture


def test_faults_lose_nothing():
    found = torture(seconds=8, seed=3)
    assert found.mismatches == []
    assert found.counts["quiet points"] >= 1
    assert found.counts["reads with a token"] > 0
