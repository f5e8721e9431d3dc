"""Sets of ranges against sets of keys."""

import random

from pequod.cluster.ranges import RangeSet
from pequod.keys import KeyRange

KEYS = "abcdefghij"


def test_against_a_set_of_keys():
    for seed in range(200):
        chance = random.Random(seed)
        ranges, expected = RangeSet(), set()
        for _ in range(30):
            keys = KeyRange(chance.choice(KEYS), chance.choice(KEYS))
            within = {key for key in KEYS if key in keys}
            if chance.random() < 0.6:
                ranges.add(keys)
                expected |= within
            else:
                ranges.remove(keys)
                expected -= within
            ranges._check()
            assert {key for key in KEYS if key in ranges} == expected
            part = KeyRange(chance.choice(KEYS), chance.choice(KEYS))
            found = ranges.overlapping(part)
            assert {key for key in KEYS for one in found if key in one} == {
                key for key in expected if key in part
            }
