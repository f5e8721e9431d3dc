"""Hostile bytes for a few seconds; `make fuzz` goes on for longer."""

import asyncio
import gc
import os

import pytest
import uvloop

from tests.server.fuzz import LIMITS, Failure, Lines, checked_visit, main, visit, visits
from tests.server.helpers import SECONDS, Wire, plant, serving, until


@pytest.mark.parametrize("first", [0, 10_000])
def test_hostile_visits(run, first):
    assert run(visits(range(first, first + 300), seconds=SECONDS - 5)) > 0


def test_hostile_connections_leave_nothing(caplog):
    caplog.set_level("CRITICAL")

    def left():
        gc.collect()
        return len(gc.get_objects()) + gc.get_freeze_count()

    async def work():
        async with serving(**LIMITS, request_seconds=0.05) as server:
            await round_of(server, 400)
            files, objects = len(os.listdir("/proc/self/fd")), left()
            await round_of(server, 1200)
            assert len(os.listdir("/proc/self/fd")) == files
            await until(lambda: left() < objects + 600)

    async def round_of(server, number):
        for start in range(0, number, 100):
            await asyncio.gather(*(visit(server, start + seed) for seed in range(100)))
        await until(lambda: not server._port.open)
        server.cache.remove_range("", "\U0010ffff")

    # uvloop's, since asyncio's own transports are cycles.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(work(), SECONDS))


def test_a_fault_would_be_found(run):
    async def work():
        async with serving(request_seconds=0.05) as server:
            plant(server, "get", lambda key: 1 / 0)
            async with await Wire.open(server) as probe:
                with pytest.raises(Failure, match="the probe was answered with 'server_fault'"):
                    await checked_visit(server, probe, Lines(), 0)

    run(work())


def test_the_command_line(capsys):
    assert main(["--seconds", "0.2", "--first", "77"]) == 0
    assert "no failure" in capsys.readouterr().out
