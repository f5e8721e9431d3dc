"""PostgreSQL: altered tables, identities, lost connections, restarts, slots."""

import asyncio
import logging
import re
import signal
from pathlib import Path

import psycopg
import pytest

from loadgen.postgres import LivePostgres
from pequod import AsyncClient, BadRequest, SourceDown, prefix
from pequod.cli.main import main
from tests.backing.worlds import PostgresSide, posts_of, serving, timeline_of, twip
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


def test_altered_tables(pg, run, caplog):
    mapping = twip(pg)
    fill(pg)

    async def scenario():
        async with serving(pg, mapping) as server, AsyncClient(server.url) as pq:
            await pq.scan(*prefix("t|ann|"))
            pg.execute("INSERT INTO posts VALUES ('u1', 2000, 'before')")
            pg.execute("INSERT INTO subs VALUES ('liz', 'u1')")
            await pq.scan(*prefix("t|ann|"), after=pg.token())
            loads = server._loader.ranges
            pg.execute("ALTER TABLE posts ADD COLUMN mood TEXT DEFAULT 'fine'")
            pg.execute("ALTER TABLE posts ADD COLUMN tweet2 TEXT")
            pg.execute("INSERT INTO posts VALUES ('u1', 2001, 'after')")
            rows = await pq.scan(*prefix("t|ann|"), after=pg.token())
            assert rows == timeline_of(pg, "ann")
            assert server._loader.ranges > loads
            assert any("posts was altered" in one.getMessage() for one in caplog.records)
            loads = server._loader.ranges
            await pq.scan(*prefix("s|ann|"))  # the other table was left alone
            assert server._loader.ranges == loads

            pg.execute("ALTER TABLE posts RENAME COLUMN tweet TO text")
            pg.execute("INSERT INTO posts VALUES ('u1', 2002, 'renamed')")
            with pytest.raises(SourceDown, match=r"tables have changed.*tweet"):
                await pq.scan(*prefix("t|ann|"), after=pg.token())
            assert len(await pq.scan(*prefix("s|ann|"))) == 10
            assert any("no column tweet" in one.getMessage() for one in caplog.records)
            pg.execute("ALTER TABLE posts RENAME COLUMN text TO tweet")
            pg.execute("INSERT INTO posts VALUES ('u1', 2003, 'back')")
            rows = await pq.scan(*prefix("t|ann|"), after=pg.token())
            assert rows == timeline_of(pg, "ann")

    with caplog.at_level(logging.WARNING):
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


def test_an_identity_without_the_key_is_refused_with_the_cure(pg):
    pg.execute(
        "CREATE TABLE posts (id SERIAL PRIMARY KEY, poster TEXT, time INTEGER, tweet TEXT, "
        "UNIQUE (poster, time))"
    )
    pg.execute("CREATE TABLE subs (usr TEXT, poster TEXT, PRIMARY KEY (usr, poster))")
    mapping = '[[table]]\nname = "posts"\nkey = "p|<poster>|<time:10>"\nvalue = "tweet"'
    with pytest.raises(BadRequest, match="REPLICA IDENTITY FULL"):
        pg.init(mapping)
    pg.execute("ALTER TABLE posts REPLICA IDENTITY FULL")
    pg.init(mapping)


def test_without_a_slot_or_a_publication(pg, run):
    mapping = twip(pg)
    pg.execute(f"ALTER PUBLICATION {pg.slot} DROP TABLE subs")

    async def scenario():
        async with serving(pg, mapping):
            pass

    with pytest.raises(BadRequest, match=r"subs is not in the publication.*db init"):
        run(scenario())
    pg.init(mapping)
    pg.execute("SELECT pg_drop_replication_slot(%s)", pg.slot)
    with pytest.raises(BadRequest, match="no slot"):
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
            await database._look_at_slot()
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


def test_the_command_line_prepares_and_cleans_up(pg, tmp_path, capsys):
    twip_tables = tmp_path / "twip.toml"
    twip_tables.write_text(twip_mapping := twip(pg))
    assert twip_mapping
    slot = ["--db", pg.url, "--db-slot", "other"]
    assert main(["db", "init", *slot, "--tables", str(twip_tables)]) == 0
    assert "slot other: created" in capsys.readouterr().out
    assert main(["db", "init", *slot, "--tables", str(twip_tables)]) == 0
    assert "it was there" in capsys.readouterr().out
    assert main(["db", "status", *slot, "--json"]) == 0
    assert '"behind_bytes"' in capsys.readouterr().out
    assert main(["db", "drop", *slot]) == 0
    assert "slot other: dropped" in capsys.readouterr().out
    assert main(["db", "status", *slot]) == 2
    assert main(["db", "init", "--db", pg.url]) == 2
    assert main(["db", "status", "--db", "mysql://x"]) == 2
    assert "sqlite:///" in capsys.readouterr().err
    assert main(["db", "status", "--db", "postgresql://127.0.0.1:1/x"]) == 3


def test_wal_level_is_checked():
    with LivePostgres(wal_level="replica") as live:
        pg = PostgresSide(live.url, "twip")
        with pytest.raises(BadRequest, match=r"wal_level is replica; say ALTER SYSTEM"):
            twip(pg)
        pg.connection.close()


def test_a_database_that_is_not_there(run, pg):
    mapping = twip(pg)
    pg.url = "postgresql://postgres@127.0.0.1:1/nothing"

    async def scenario():
        async with serving(pg, mapping):
            pass

    with pytest.raises(SourceDown, match="cannot be used"):
        run(scenario())


def test_bounds_use_an_index(pg):
    """A load of many ranges never reads a whole table."""
    twip(pg)
    pg.execute("INSERT INTO posts SELECT 'u' || i % 100, i, 'x' FROM generate_series(0, 9999) i")
    with psycopg.connect(pg.url, options="-c enable_seqscan=off") as connection:
        plan = connection.execute(
            "EXPLAIN SELECT t.* FROM unnest(array['u1', 'u2']) AS r(e) CROSS JOIN LATERAL "
            "(SELECT * FROM posts s WHERE s.poster = r.e LIMIT 10) t"
        ).fetchall()
    assert any("Index" in row[0] for row in plan)
    assert posts_of(pg)


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
