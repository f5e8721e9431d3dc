"""Traces: exact counts, the order of time, and operations that make sense."""

from collections import Counter, defaultdict

import numpy as np
import pytest

from pequod.errors import BadRequest
from pequod.pipeline.graph import GraphSpec
from pequod.pipeline.trace import CHECK, LOGIN, POST, SUBSCRIBE, Mix, TraceSpec, operations
from pequod.pipeline.twip import NOW

GRAPH = GraphSpec(users=3000, edges=30_000, seed=4)
SPEC = TraceSpec(GRAPH, checks_per_user=18, clients=4)


@pytest.fixture(scope="module")
def followers():
    return np.bincount(GRAPH.followees(0, 3000)[1], minlength=3000)


@pytest.fixture(scope="module")
def rows(followers):
    """All operations of all clients, as tuples in the order of time."""
    found = []
    for client in range(SPEC.clients):
        columns = operations(SPEC, followers, client)
        some = list(zip(*(column.tolist() for column in columns.values())))
        assert some == sorted(some)
        assert {uid % SPEC.clients for _, uid, _, _, _ in some} == {client}
        found += some
    return sorted(found)


def test_counts_are_exact(rows):
    counts = Counter(op for _, _, _, op, _ in rows)
    assert tuple(counts[op] for op in range(4)) == SPEC.counts == (2100, 3780, 35_700, 420)
    readers = {uid for _, uid, _, op, _ in rows if op in (LOGIN, CHECK)}
    assert len(readers) == SPEC.active == 2100


def test_readings_begin_where_the_last_one_was(rows):
    last = {}
    for ts, uid, _, op, arg in rows:
        assert NOW <= ts < 2 * NOW
        if op == LOGIN:
            assert arg == 0
        elif op == CHECK:
            assert arg == last[uid]
        if op in (LOGIN, CHECK):
            last[uid] = ts


def test_subscribes_are_new_and_posts_are_numbered(rows):
    follows = defaultdict(set)
    for user, poster in zip(*(column.tolist() for column in GRAPH.followees(0, 3000))):
        follows[user].add(poster)
    posts = Counter()
    for _, uid, _, op, arg in rows:
        if op == SUBSCRIBE:
            assert arg not in follows[uid]
            assert arg != uid
            follows[uid].add(arg)
        elif op == POST:
            assert arg == posts[uid]
            posts[uid] += 1
    assert len({(ts, uid) for ts, uid, _, op, _ in rows if op == POST}) == SPEC.counts[POST]


def test_the_popular_post_more(rows, followers):
    posters = [uid for _, uid, _, op, _ in rows if op == POST]
    assert followers[posters].mean() > 1.2 * followers.mean()


def test_the_number_of_clients_only_deals_the_rows_out(rows, followers):
    whole = operations(TraceSpec(GRAPH, checks_per_user=18, clients=1), followers, 0)
    assert list(zip(*(column.tolist() for column in whole.values()))) == rows


def test_another_mix(followers):
    spec = TraceSpec(GRAPH, 10, active_percent=1, clients=1, mix=Mix(0, 0, 1, 1))
    columns = operations(spec, followers, 0)
    assert Counter(columns["op"].tolist()) == {CHECK: 300, POST: 300}
    assert spec.counts == (0, 0, 300, 300)


@pytest.mark.parametrize(
    "options",
    [
        {"mix": Mix(0, 1, 0, 1)},
        {"mix": Mix(-1, 1, 5, 1)},
        {"active_percent": 0},
        {"active_percent": 101},
        {"clients": 0},
        {"clients": 3001},
        {"checks_per_user": 0},
    ],
    ids=str,
)
def test_impossible_traces_are_refused(options):
    with pytest.raises(BadRequest):
        TraceSpec(GRAPH, **options)


def test_a_user_cannot_follow_more_than_everybody(followers):
    spec = TraceSpec(GRAPH, checks_per_user=30_000)
    with pytest.raises(BadRequest, match="everybody"):
        operations(spec, followers, 0)
