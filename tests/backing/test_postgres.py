"""PostgreSQL: altered tables, identities, lost connections, restarts, slots."""

import asyncio
import re
import signal
from pathlib import Path

import pytest

from loadgen.postgres import LivePostgres
from pequod import AsyncClient, SourceDown, prefix
from pequod.backing import postgres
from tests.backing.worlds import (
    PostgresSide,
    serving,
    timeline_of,
    twip,
)
from tests.server.helpers import Web, until


def fill(pg):
    pg.execute("INSERT INTO subs SELECT 'ann', 'u' || i FROM generate_series(0, 9) i")
    pg.execute("INSERT INTO posts SELECT 'u' || i % 10, i, 'p' || i FROM generate_series(0, 99) i")


def test_a_transaction_is_seen_whole(pg, run):
    mapping = twip(pg)
    fill(pg)

    async def scenario():
        async with serving(pg, mapping) as server, AsyncClient(server.url) as pq:
            await pq.scan(*prefix("t|ann|"))
            seen = set()
            events = []
            server.cache.watch(*prefix("p|u1|"), lambda watch: events.append(watch))
            for number in range(20):
                with pg.connection.transaction():
                    for poster in range(10):
                        pg.execute(
                            "INSERT INTO posts VALUES (%s, %s, 'x')", f"u{poster}", 1000 + number
                        )
                seen.add(len(await pq.scan(*prefix("t|ann|"))) % 10)
            assert seen == {0}
            rows = await pq.scan(*prefix("t|ann|"), after=pg.token())
            assert rows == timeline_of(pg, "ann")

    run(scenario())


def test_what_is_rolled_back_is_never_seen(pg, run):
    mapping = twip(pg)
    fill(pg)

    async def scenario():
        async with serving(pg, mapping) as server, AsyncClient(server.url) as pq:
            before = await pq.scan(*prefix("t|ann|"))
            with pg.connection.transaction(force_rollback=True):
                pg.execute("DELETE FROM posts")
            assert await pq.scan(*prefix("t|ann|"), after=pg.token()) == before

    run(scenario())


def test_truncate(pg, run):
    mapping = twip(pg)
    fill(pg)

    async def scenario():
        async with serving(pg, mapping) as server, AsyncClient(server.url) as pq:
            assert len(await pq.scan(*prefix("t|ann|"))) == 100
            pg.execute("TRUNCATE posts")
            assert await pq.scan(*prefix("t|ann|"), after=pg.token()) == []
            pg.execute("INSERT INTO posts VALUES ('u1', 1, 'again')")
            assert len(await pq.scan(*prefix("t|ann|"), after=pg.token())) == 1
            pg.execute("TRUNCATE posts, subs")
            assert await pq.scan(*prefix("s|"), after=pg.token()) == []

    run(scenario())


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_large_values_that_an_update_leaves_alone(pg, run, identity):
    """They are not sent: what the cache has of them stays, or is loaded."""
    mapping = twip(pg)
    pg.execute("ALTER TABLE posts ADD COLUMN likes INTEGER DEFAULT 0")
    pg.execute("ALTER TABLE posts ALTER COLUMN tweet SET STORAGE EXTERNAL")
    pg.execute(f"ALTER TABLE posts REPLICA IDENTITY {identity}")
    large = "x" * 100_000
    pg.execute("INSERT INTO posts VALUES ('bob', 1, %s)", large)

    async def scenario():
        async with serving(pg, mapping) as server, AsyncClient(server.url) as pq:
            assert await pq.get("p|bob|0000000001") == large
            pg.execute("UPDATE posts SET likes = 1")
            assert await pq.get("p|bob|0000000001", after=pg.token()) == large
            pg.execute("UPDATE posts SET time = 2")
            assert await pq.get("p|bob|0000000001", after=pg.token()) is None
            assert await pq.get("p|bob|0000000002") == large

    run(scenario())


def cut(pg):
    """End all connections of servers."""
    pg.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'pequod' AND datname = %s",
        pg.name,
    )


def test_connections_that_are_cut_lose_nothing(pg, run):
    mapping = twip(pg)
    fill(pg)

    async def scenario():
        async with serving(pg, mapping) as server, AsyncClient(server.url) as pq:
            progress = server._database.progress
            for number in range(5):
                await pq.scan(*prefix("t|ann|"))
                cut(pg)
                pg.execute("INSERT INTO posts VALUES ('u1', %s, 'while away')", 1000 + number)
                pg.execute("DELETE FROM posts WHERE time = %s", number)
                await until(lambda: progress.down_since is not None)
                await until(lambda: progress.down_since is None)
                rows = await pq.scan(*prefix("t|ann|"), after=pg.token())
                assert rows == timeline_of(pg, "ann")
            assert server._database.drops == 0  # it went on where it was

    run(scenario())


def test_a_slot_that_was_lost_is_made_anew(pg, run):
    mapping = twip(pg)
    fill(pg)

    async def scenario():
        async with serving(pg, mapping) as server, AsyncClient(server.url) as pq:
            await pq.scan(*prefix("t|ann|"))
            database = server._database
            connect = database._connect
            gate = asyncio.Event()

            async def later():
                await gate.wait()
                await connect()

            database._connect = later
            cut(pg)
            await until(lambda: database.progress.down_since is not None)
            while pg.execute(
                "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND active", pg.slot
            ):
                await asyncio.sleep(0.01)
            pg.execute("SELECT pg_drop_replication_slot(%s)", pg.slot)
            pg.execute("INSERT INTO posts VALUES ('u1', 1000, 'missed')")
            # What is here is served meanwhile, and what is not is an error at once.
            assert len(await pq.scan(*prefix("t|ann|"))) == 100
            with pytest.raises(SourceDown, match="does not answer"):
                await pq.scan(*prefix("t|liz|"))
            with pytest.raises(SourceDown, match="does not answer"):
                await pq.scan(*prefix("t|ann|"), after=pg.token())
            gate.set()
            await until(lambda: database.progress.down_since is None)
            assert await pq.scan(*prefix("t|ann|")) == timeline_of(pg, "ann")
            assert database.drops == 1

    run(scenario())


def test_too_much_log_is_released(pg, run):
    mapping = twip(pg)
    fill(pg)

    async def scenario():
        async with (
            serving(pg, mapping, db_wal_budget=100_000) as server,
            AsyncClient(server.url) as pq,
        ):
            await pq.scan(*prefix("t|ann|"))
            database = server._database
            stream = database._stream
            stream._loop.remove_reader(stream._socket)  # it stands still
            pg.execute(
                "INSERT INTO posts SELECT 'u1', i, repeat('x', 100) "
                "FROM generate_series(1000, 5000) i"
            )
            await database._look()
            await until(lambda: database.drops == 1 and database.progress.down_since is None)
            assert await pq.scan(*prefix("t|ann|")) == timeline_of(pg, "ann")

            def behind():
                found = pg.execute(
                    "SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), confirmed_flush_lsn) "
                    "FROM pg_replication_slots WHERE slot_name = %s",
                    pg.slot,
                )
                return found[0][0] < 100_000

            await until(behind)

    run(scenario())


def test_postgres_goes_and_comes_back(run):
    """Resident data is served with its age, missing data is an error at once, and it heals."""
    with LivePostgres() as live:
        pg = PostgresSide(live.url, "twip")
        mapping = twip(pg)
        fill(pg)

        async def scenario():
            async with (
                serving(pg, mapping) as server,
                AsyncClient(server.url) as pq,
                await Web.open(server) as web,
            ):
                progress = server._database.progress
                for number in (signal.SIGINT, signal.SIGQUIT):  # told to stop, and crashed
                    before = await pq.scan(*prefix("t|ann|"), after=pg.token())
                    assert before == timeline_of(pg, "ann")
                    await asyncio.to_thread(live.stop, number)
                    await until(lambda: progress.down_since is not None)
                    assert await pq.scan(*prefix("t|ann|")) == before
                    assert "x-pequod-age" in (await web.get("/v1/scan?prefix=t|ann|")).headers
                    assert (await web.get("/readyz")).status == 503
                    assert (await pq.stats())["server"]["database"]["age_seconds"] >= 0
                    with pytest.raises(SourceDown):
                        await pq.scan(*prefix("p|nobody|"))
                    await asyncio.to_thread(live.start)
                    await asyncio.to_thread(pg.reconnect)
                    pg.execute("DELETE FROM posts WHERE time = %s", int(number))
                    await until(lambda: progress.down_since is None)
                    rows = await pq.scan(*prefix("t|ann|"), after=pg.token())
                    assert rows == timeline_of(pg, "ann")
                    assert (await web.get("/readyz")).status == 200

        run(scenario())
        pg.connection.close()


def test_a_database_that_falls_silent_is_lost_until_it_speaks(pg, run, monkeypatch):
    """As when its machine stops, or a cable is pulled: no connection ends."""
    monkeypatch.setattr(postgres, "LOOK_SECONDS", 0.05)
    mapping = twip(pg)
    fill(pg)

    async def scenario():
        async with serving(pg, mapping, db_seconds=0.5) as server, AsyncClient(server.url) as pq:
            progress, stream = server._database.progress, server._database._stream
            before = await pq.scan(*prefix("t|ann|"))
            select, gate = server._database._select, asyncio.Event()

            async def stuck(keys):
                await gate.wait()
                return await select(keys)

            server._database._select = stuck
            missing = asyncio.create_task(pq.scan(*prefix("p|liz|")))
            stream._loop.remove_reader(stream._socket)
            await until(lambda: progress.down_since is not None)
            with pytest.raises(SourceDown, match="silent"):
                await missing
            assert await pq.scan(*prefix("t|ann|")) == before
            assert (await pq.read(*prefix("t|ann|"))).age > 0.3
            with pytest.raises(SourceDown, match="silent"):
                await pq.scan(*prefix("t|ann|"), after="FFFF/0")
            stream._loop.add_reader(stream._socket, stream._read)
            gate.set()
            await until(lambda: progress.down_since is None)
            assert await pq.scan(*prefix("p|liz|")) == []
            assert (await pq.read(*prefix("t|ann|"))).age == 0
            assert server._database.drops == 0

    run(scenario())


def test_a_stream_that_stays_silent_is_opened_again(pg, run, monkeypatch):
    monkeypatch.setattr(postgres, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(postgres, "DEAD_SECONDS", 1.0)
    mapping = twip(pg)
    fill(pg)

    async def scenario():
        async with serving(pg, mapping, db_seconds=0.3) as server, AsyncClient(server.url) as pq:
            await pq.scan(*prefix("t|ann|"))
            stream = server._database._stream
            stream._loop.remove_reader(stream._socket)
            pg.execute("DELETE FROM posts WHERE time < 50")
            await until(lambda: server._database._stream is not stream)
            await until(lambda: server._database.progress.down_since is None)
            assert await pq.scan(*prefix("t|ann|"), after=pg.token()) == timeline_of(pg, "ann")

    run(scenario())


def test_a_database_that_is_not_there(run, pg):
    mapping = twip(pg)
    pg.url = "postgresql://postgres@127.0.0.1:1/nothing"

    async def scenario():
        async with serving(pg, mapping):
            pass

    with pytest.raises(SourceDown, match="cannot be used"):
        run(scenario())


def test_the_example_of_the_docs(pg, run):
    """docs/databases.md: its tables, its mapping, and what it says that comes out."""
    page = (Path(__file__).parents[2] / "docs" / "databases.md").read_text("utf-8")
    [schema] = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    [mapping] = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    for statement in schema.strip().split("\n"):
        pg.execute(statement)
    pg.init(mapping)

    async def scenario():
        async with serving(pg, mapping) as server, AsyncClient(server.url) as pq:
            for statement in re.findall(r'sql\.execute\("(INSERT.*?)"\)', page):
                pg.execute(statement)
            rows = await pq.scan(*prefix("t|ann|"), after=pg.token())
            assert repr(rows) in page

    run(scenario())
