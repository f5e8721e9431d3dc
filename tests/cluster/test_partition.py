"""The map of a cluster: who is home, what is refused, and where clients go."""

import random
import tomllib
from collections import Counter

import pytest

from pequod.cluster.partition import ClusterMap
from pequod.errors import BadRequest
from pequod.keys import KeyRange, point, prefix

MAP = """
[nodes]
a = "pequod://cache-a:7709"
b = "pequod://cache-b:7709"
c = "pequod://cache-c:7709"

[[partition]]
key = "p|<poster>|<time:10>"
hash = "poster"
homes = ["a", "b", "c"]

[[partition]]
range = ["s|", "s}"]
split = [["s|h", "a"], ["s|q", "b"], ["s}", "c"]]

[[partition]]
table = "vote"
home = "b"
"""


def of(text: str) -> ClusterMap:
    return ClusterMap.of(tomllib.loads(text))


def test_keys_have_homes():
    found = of(MAP)
    assert [found.home_of(f"s|{name}|x") for name in ("ann", "h", "kim", "q", "zoe")] == list(
        "abbcc"
    )
    assert found.home_of("vote|ann|1") == "b"
    assert found.home_of("p|bob|0000000001") == found.home_of("p|bob|9999999999")
    for key in ("q|1", "t|ann|1", "r", "vote"):
        with pytest.raises(BadRequest, match="no partition"):
            found.home_of(key)


def test_spans_have_one_home():
    found = of(MAP)
    assert found.span("p|bob|0000000001") == prefix("p|bob|")
    assert found.span("p|odd") == point("p|odd")
    assert found.span("s|ann|x") == KeyRange("s|", "s|h")
    assert found.span("s|h") == KeyRange("s|h", "s|q")
    assert found.span("vote|ann|1") == prefix("vote|")
    for key in ("p|bob|0000000001", "p|odd", "s|ann|x", "s|h", "s|zoe|", "vote|ann|1"):
        assert key in found.span(key)
        assert found.is_whole(found.span(key), found.home_of(key))
    with pytest.raises(BadRequest, match="no partition"):
        found.span("q|1")


def test_ranges_are_asked_where_they_may_be():
    found = of(MAP)
    home = found.home_of("p|bob|0000000001")
    assert found.pieces(prefix("p|bob|")) == [(prefix("p|bob|"), (home,))]
    assert found.pieces(KeyRange("p|bob|1", "p|bob|5"))[0][1] == (home,)
    assert found.pieces(prefix("p|bob"))[0][1] == ("a", "b", "c")  # bobby lives elsewhere
    assert found.pieces(point("p|odd"))[0][1] == (found.home_of("p|odd"),)
    pieces = found.pieces(KeyRange("s|a", "s|m"))
    assert pieces == [(KeyRange("s|a", "s|h"), ("a",)), (KeyRange("s|h", "s|m"), ("b",))]
    assert found.pieces(KeyRange("t|", "t}")) == []
    assert set(found.by_home([KeyRange("", "z")])) == {"a", "b", "c"}


def test_a_range_is_asked_at_the_home_of_each_of_its_keys():
    found, chance = of(MAP), random.Random(1)
    letters = "ab|0\x7f"
    for _ in range(3000):
        key, first, last = (
            "p|" + "".join(chance.choices(letters, k=chance.randrange(5))) for _ in range(3)
        )
        for keys in (KeyRange(first, last), prefix(first), point(first)):
            if key in keys:
                assert found.home_of(key) in found.pieces(keys)[0][1], (key, keys)


def test_a_slot_at_the_end_is_no_prefix():
    found = of(MAP.replace('"p|<poster>|<time:10>"', '"p|<poster>"'))
    assert found.pieces(prefix("p|bob"))[0][1] == ("a", "b", "c")
    assert found.pieces(point("p|bob"))[0][1] == (found.home_of("p|bob"),)


def test_hashing_is_even_and_a_new_home_takes_only_its_share():
    before = of(MAP)
    after = of(
        MAP.replace("[[partition]]", 'd = "pequod://d"\n[[partition]]', 1).replace(
            '["a", "b", "c"]', '["a", "b", "c", "d"]'
        )
    )
    keys = [f"p|user{number}|0000000001" for number in range(6000)]
    homes = Counter(map(before.home_of, keys))
    assert all(1800 < homes[home] < 2200 for home in "abc"), homes
    moved = [key for key in keys if before.home_of(key) != after.home_of(key)]
    assert all(after.home_of(key) == "d" for key in moved)
    assert 1300 < len(moved) < 1700
    assert before.version != after.version


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('["s}", "c"]', '["s|z", "c"]', r"a gap between 's\|z' and 's\}'"),
        ('["s|q", "b"]', '["s|c", "b"]', "out of order"),
        ('["s}", "c"]', '["t", "c"]', "keys beyond it"),
        ('table = "vote"', 'table = "p"', "partitions overlap"),
        ('home = "b"', 'home = "z"', "'z' is a home or computes, but no node"),
        ('hash = "poster"', 'hash = "user"', "has no slot <user>"),
        ('table = "vote"\n', "", "a \\[\\[partition\\]\\] has key, hash and homes"),
        ("[nodes]", "[servers]", "is no part"),
        ("[nodes]", 'compute = ["k"]\n[nodes]', "'k' is a home or computes"),
        ('key = "p|', 'key = "', "starts with a slot"),
    ],
)
def test_what_is_wrong_with_a_map_is_said(old, new, problem):
    assert old in MAP
    with pytest.raises(BadRequest, match=problem):
        of(MAP.replace(old, new))


def test_who_only_computes_does_not_change_the_map():
    more = MAP.replace("[[partition]]", 'x = "pequod://x:1"\n[[partition]]', 1)
    assert of(MAP).version == of(more).version
    assert "x" not in of(more).homes
    assert set(of('compute = ["x"]\n' + more).compute) == {"x"}


def test_a_user_is_read_at_one_node_and_hot_prefixes_at_several():
    found = of('spread = [{prefix = "ct|", nodes = 2}]\n' + MAP)
    assert found.readers("t|ann|1") == found.readers("t|ann|")
    assert found.readers("s|ann|")[0] == found.readers("t|ann|")[0]
    assert len({found.readers(f"t|user{number}|")[0] for number in range(50)}) == 3
    assert (found.replicas("ct|0001"), found.replicas("t|ann|")) == (2, 1)
