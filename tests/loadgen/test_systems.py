"""Every system that is installed gives the right timelines, by its library and by sockets."""

import asyncio
import random
from dataclasses import replace

import pytest

from loadgen.replay.callers import Callers
from loadgen.replay.clients import LIBRARIES, SOCKETS
from loadgen.systems.application import Application
from loadgen.systems.base import Missing
from loadgen.systems.registry import SYSTEMS, systems_named
from loadgen.twip import Race, Runner, measure_twip
from loadgen.twip_world import Load, TwipWorld
from pequod import Client

SIZE = Load(users=120, followees=8, checks_per_user=6)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return TwipWorld.write(SIZE, tmp_path_factory.mktemp("world"))


def is_installed(name: str) -> bool:
    try:
        SYSTEMS[name].start().stop()
    except Missing:
        return False
    return True


@pytest.mark.parametrize("driver", [LIBRARIES, SOCKETS])
def test_answers_are_those_of_the_files(driver, world):
    names = [name for name in SYSTEMS if is_installed(name)]
    findings = measure_twip(Race(systems_named(",".join(SYSTEMS)), driver, parts=2), world)
    assert [result["system"] for result in findings.results] == names
    assert findings.facts["timelines_compared"] == SIZE.users
    done = {result["operations"] for result in findings.results}
    assert done == {sum(world.counts.values())}
    rivals = {name.replace("-", "_") for name in names[1:]}
    assert {ratio.name for ratio in findings.ratios} >= rivals


@pytest.mark.parametrize("driver", [LIBRARIES, SOCKETS])
def test_an_open_loop_takes_as_long_as_its_rate_says(driver, world):
    rate = 2000.0
    findings = measure_twip(Race(systems_named("pequod"), driver, parts=1, rate=rate), world)
    seconds = findings.results[0]["runtime_seconds"]
    assert seconds >= 0.9 * sum(world.counts.values()) / rate


def test_a_wrong_answer_ends_the_run(world, monkeypatch):
    monkeypatch.setattr(
        TwipWorld,
        "expected_timelines",
        lambda self, sample: {user: [(1, 2, "never said")] for user in sample},
    )
    with pytest.raises(SystemExit, match="pequod gives wrong answers: 120 of 120"):
        measure_twip(Race(systems_named("pequod"), SOCKETS, parts=1), world)


def test_a_system_that_is_not_installed_is_named_with_its_cure(world, monkeypatch, capsys):
    monkeypatch.setattr("loadgen.systems.memcached_system.start_memcached", lambda: None)
    findings = measure_twip(Race(systems_named("memcached"), SOCKETS, parts=1), world)
    assert [result["system"] for result in findings.results] == ["pequod"]
    assert "apt-get install memcached" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("driver", "rate"), [(LIBRARIES, None), (LIBRARIES, 500.0), (SOCKETS, None)]
)
def test_a_server_that_dies_ends_the_run(driver, rate, world, monkeypatch):
    """Operations that failed must not count as very fast ones, nor may anybody wait for long."""
    take_turn = Runner.take_turn

    def kill_and_take_turn(self, *arguments):
        self.server.kill()
        take_turn(self, *arguments)

    monkeypatch.setattr(Runner, "take_turn", kill_and_take_turn)
    with pytest.raises(SystemExit, match="pequod: the server ended with status -9"):
        measure_twip(Race(systems_named("pequod"), driver, parts=1, rate=rate), world)


class FailsSometimes(Application):
    """Every tenth reading fails."""

    readings = 0

    async def open(self): ...

    async def close(self): ...

    async def read(self, user, since):
        self.readings += 1
        if self.readings % 10 == 0:
            raise ConnectionResetError
        return []

    async def subscribe(self, user, poster): ...

    async def post(self, poster, time, text): ...

    def rows(self, reading):
        return reading


def test_a_call_that_fails_ends_an_open_loop(world):
    callers = Callers(FailsSometimes())
    with pytest.raises(ExceptionGroup) as failed:
        asyncio.run(callers.open_loop(world.operations(0), rate=5000.0))
    assert failed.group_contains(ConnectionResetError)


def test_a_trace_of_another_world_is_refused(world, tmp_path):
    other = TwipWorld.write(replace(SIZE, users=130), tmp_path)
    assert TwipWorld.written(world.world, world.trace) == world
    with pytest.raises(SystemExit, match="is of another world than"):
        TwipWorld.written(world.world, other.trace)


def test_an_unknown_system_is_refused():
    with pytest.raises(SystemExit, match="there is no system 'oracle'; there are pequod"):
        systems_named("redis,oracle")


def test_expected_timelines_by_brute_force(world):
    """What a run is compared with is right itself: follows, posts and operations, one by one."""
    follows = {(int(a), int(b)) for a, b in zip(*(column.tolist() for column in world.follows()))}
    posts = list(world.posts())
    for client in range(world.clients):
        for kind, user, time, argument in world.operations(client):
            if kind == 1:
                follows.add((user, argument))
            elif kind == 3:
                posts.append((user, time, argument))
    sample = random.Random(2).sample(range(SIZE.users), 20)
    for user, rows in world.expected_timelines(sample).items():
        assert rows == sorted((t, p, text) for p, t, text in posts if (user, p) in follows)
        assert all(len(text) == 100 for _, _, text in rows)


def test_a_connection_speaks_at_once():
    """A server closes connections that say nothing for long, and filling others takes long."""
    with SYSTEMS["pequod"].start() as server:
        talk = SYSTEMS["pequod"].converse(server.port)
        with Client(f"pequod://127.0.0.1:{server.port}") as client:
            assert client.stats()["server"]["calls"]["get"] == 1
        talk.close()
