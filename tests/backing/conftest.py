"""One PostgreSQL for all tests of a worker, and a database of its own for each test."""

import asyncio
import itertools
from collections.abc import Callable, Iterator

import pytest
import uvloop

from loadgen.postgres import LivePostgres
from tests.backing.worlds import SECONDS, PostgresSide, Side, SqliteSide

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def live_postgres() -> Iterator[LivePostgres]:
    with LivePostgres(max_replication_slots="40", max_wal_senders="20") as live:
        yield live


@pytest.fixture
def pg(live_postgres) -> Iterator[PostgresSide]:
    side = PostgresSide(live_postgres.url, f"db{next(_NUMBERS)}")
    yield side
    side.close()


@pytest.fixture
def lite(tmp_path) -> Iterator[SqliteSide]:
    side = SqliteSide(tmp_path)
    yield side
    side.close()


@pytest.fixture(params=["sqlite", "postgres"])
def side(request) -> Side:
    return request.getfixturevalue("pg" if request.param == "postgres" else "lite")


@pytest.fixture
def run() -> Callable:
    """Runs a coroutine on an event loop of its own, within a bounded time."""

    def run(work):
        async def bounded():
            return await asyncio.wait_for(work, SECONDS)

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(bounded())

    return run
