"""The races between loads and changes that caches are known to lose, each step by step.

A *held* load has read its rows and is not handed over yet. Whatever the order of commit, change
and load, the cache must end with what the database has.
"""

import asyncio
import os
import signal
from contextlib import asynccontextmanager

import psycopg
import pytest

from loadgen.postgres import LivePostgres
from pequod import AsyncClient, prefix
from tests.backing.worlds import PostgresSide, posts_of, serving, timeline_of, twip
from tests.server.helpers import until

STATEMENTS = (
    "UPDATE posts SET tweet = 'new'",
    "DELETE FROM posts",
    "UPDATE posts SET time = 2",
    "INSERT INTO posts VALUES ('bob', 5, 'more')",
)


class Held:
    """Stops loads after they have read their rows, until they are let go."""

    def __init__(self, database):
        self._database, self._select = database, database._select
        database._select = self.select
        self.waiting = []

    async def select(self, keys):
        found = await self._select(keys)
        gate = asyncio.Event()
        self.waiting.append(gate)
        await gate.wait()
        return found

    async def load(self, number=1):
        await until(lambda: len(self.waiting) >= number)

    def release(self):
        """Hold loads no more."""
        self._database._select = self._select

    def let_go(self, place=0):
        self.waiting[place].set()


@asynccontextmanager
async def world(side):
    """Bob has a post, and loads are held."""
    mapping = twip(side)
    side.execute("INSERT INTO subs VALUES ('ann', 'bob')")
    side.execute("INSERT INTO posts VALUES ('bob', 1, 'old')")
    async with serving(side, mapping) as server, AsyncClient(server.url) as pq:
        yield server, pq, Held(server._database)


async def followed(server, side):
    """The cache has followed all that the database has."""
    await server._database.reach(side.token())


@pytest.mark.parametrize("statement", STATEMENTS)
def test_the_change_arrives_before_the_load_is_installed(side, run, statement):
    async def scenario():
        async with world(side) as (server, pq, held):
            reading = asyncio.create_task(pq.scan(*prefix("p|bob|")))
            await held.load()  # it has read the old row
            side.execute(statement)
            await followed(server, side)
            held.let_go()
            assert await reading == posts_of(side)

    run(scenario())


@pytest.mark.parametrize("statement", STATEMENTS)
def test_the_load_is_installed_before_the_change_arrives(side, run, statement):
    """The load has the commit already, and the change comes once more."""

    async def scenario():
        async with world(side) as (server, pq, held):
            server._database.progress.advance(server._database.progress.position)
            side.execute(statement)
            reading = asyncio.create_task(pq.scan(*prefix("p|bob|")))
            await held.load()
            held.let_go()
            assert await reading == posts_of(side)
            await followed(server, side)
            assert await pq.scan(*prefix("p|bob|")) == posts_of(side)

    run(scenario())


def test_a_commit_after_the_invalidation(side, run):
    """Evicted, loaded with the old row, committed, evicted again while that load is held."""

    async def scenario():
        async with world(side) as (server, pq, held):
            first = asyncio.create_task(pq.scan(*prefix("p|bob|")))
            await held.load()
            server.cache.invalidate(prefix("p|bob|"))
            side.execute("UPDATE posts SET tweet = 'new'")
            held.let_go()
            await held.load(2)  # what was invalidated is read again
            side.execute("UPDATE posts SET tweet = 'newer'")
            await followed(server, side)
            held.let_go(1)
            assert await first == posts_of(side) == [("p|bob|0000000001", "newer")]

    run(scenario())


def test_two_loads_that_cross(side, run):
    """An older load is installed after a younger one was, and evicted, and loaded again."""

    async def scenario():
        async with world(side) as (server, pq, held):
            part = asyncio.create_task(pq.scan("p|bob|", "p|bob|0000000009"))
            await held.load()  # has the old row
            side.execute("UPDATE posts SET tweet = 'new'")
            side.execute("INSERT INTO posts VALUES ('bob', 12, 'late')")
            whole = asyncio.create_task(pq.scan(*prefix("p|bob|")))
            await held.load(2)  # the rest of the range: the other part is on its way
            await followed(server, side)
            held.let_go(1)
            await asyncio.sleep(0)
            held.let_go(0)
            assert await whole == posts_of(side)
            assert await part == posts_of(side)[:1]

    run(scenario())


def test_a_load_is_held_over_many_commits(side, run):
    async def scenario():
        async with world(side) as (server, pq, held):
            reading = asyncio.create_task(pq.scan(*prefix("t|ann|")))
            await held.load()
            held.let_go()
            await held.load(2)
            for number in range(50):
                side.execute("UPDATE posts SET tweet = %s", f"text {number}")
                side.execute("UPDATE posts SET time = time + 1")
            await followed(server, side)
            held.let_go(1)
            await until(lambda: reading.done() or len(held.waiting) > 2)
            for place in range(2, len(held.waiting)):
                held.let_go(place)
            assert await reading == timeline_of(side, "ann")

    run(scenario())


def test_a_change_between_the_rows_and_their_position(pg, run):
    """What is committed after the rows were read, but before their position was, is not lost."""

    async def scenario():
        async with world(pg) as (server, pq, held):
            database = server._database
            query = database._query

            def late(table, asked):
                statement, params = query(table, asked)
                slow = f"WITH slow AS MATERIALIZED (SELECT pg_sleep(0.3)) {statement}, slow"
                return slow.replace("SELECT t.*, r.n", "SELECT t.*, pg_sleep(0), r.n"), params

            database._query = late
            reading = asyncio.create_task(pq.scan(*prefix("p|bob|")))
            await asyncio.sleep(0.1)  # in the middle of the query, whose snapshot is taken
            pg.execute("UPDATE posts SET tweet = 'new'")
            await held.load()
            held.let_go()
            assert await reading == posts_of(pg)

    run(scenario())


def test_a_load_that_is_ahead_of_the_log_waits_for_it(pg, run):
    """Else its rows would be seen, then older ones once more, and then they again."""

    async def scenario():
        async with world(pg) as (server, pq, held):
            stream = server._database._stream
            stream._loop.remove_reader(stream._socket)  # the log stands still
            pg.execute("UPDATE posts SET tweet = 'new'")
            pg.execute("UPDATE posts SET tweet = 'newest'")
            reading = asyncio.create_task(pq.get("p|bob|0000000001"))
            await held.load()
            held.let_go()
            await until(lambda: server._database.progress.is_awaited)
            assert not reading.done()
            stream._loop.add_reader(stream._socket, stream._read)
            assert await reading == "newest"
            assert await pq.get("p|bob|0000000001") == "newest"
            await followed(server, pg)
            assert await pq.get("p|bob|0000000001") == "newest"

    run(scenario())


def test_a_commit_that_is_told_of_before_it_can_be_seen(pg, run):
    """PostgreSQL waits for a standby when its log has the commit: a load reads the old row."""
    writer = psycopg.connect(pg.url, autocommit=True)
    pg.execute("SET synchronous_commit = local")

    async def standby(name):
        pg.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
        pg.execute("SELECT pg_reload_conf()")
        await until(lambda: writer.execute("SHOW synchronous_standby_names").fetchone() == (name,))

    async def scenario():
        async with world(pg) as (server, pq, held):
            await followed(server, pg)  # what was there before it began
            await standby("nobody")
            try:
                writing = asyncio.create_task(
                    asyncio.to_thread(writer.execute, "UPDATE posts SET tweet = 'new'")
                )
                changes = server._database.changes
                await until(lambda: server._database.changes > changes)
                reading = asyncio.create_task(pq.scan(*prefix("p|bob|")))
                await asyncio.sleep(0.05)
                assert not held.waiting, "the load has no rows yet"
            finally:
                pg.execute("ALTER SYSTEM RESET synchronous_standby_names")
                pg.execute("SELECT pg_reload_conf()")
            await writing
            await held.load()
            held.let_go()
            assert await reading == posts_of(pg) == [("p|bob|0000000001", "new")]

    try:
        run(scenario())
    finally:
        writer.close()


def test_a_load_has_a_commit_that_a_crash_loses(run):
    """With synchronous_commit = off rows are seen before they are safe on disk."""
    with LivePostgres() as live:
        pg = PostgresSide(live.url, "twip")

        async def scenario():
            async with world(pg) as (server, pq, held):
                held.release()
                query = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'"
                [[walwriter]] = pg.execute(query)
                os.kill(walwriter, signal.SIGSTOP)
                pg.execute("SET synchronous_commit = off")
                pg.execute("UPDATE posts SET tweet = 'lost'")
                assert await pq.scan(*prefix("p|bob|")) == [("p|bob|0000000001", "lost")]
                os.kill(walwriter, signal.SIGKILL)  # which is a crash of all
                progress = server._database.progress
                await until(lambda: progress.down_since is not None)
                await until(lambda: progress.down_since is None)
                await asyncio.to_thread(pg.reconnect)
                assert posts_of(pg) == [("p|bob|0000000001", "old")]
                assert await pq.scan(*prefix("p|bob|")) == posts_of(pg)

        run(scenario())
        pg.connection.close()
