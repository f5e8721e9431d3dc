"""Every test that asks for `run` is run on both event loops."""

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from tests.server.helpers import SECONDS


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request) -> Callable:
    """Runs a coroutine on an event loop of its own, within a bounded time."""

    def run(work):
        async def bounded():
            return await asyncio.wait_for(work, SECONDS)

        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(bounded())

    return run


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch) -> None:
    """Deadlines are looked at often, so that tests with short ones are short."""
    monkeypatch.setattr("pequod.server.tcp._LOOK_SECONDS", 0.02)
