"""Tables of PostgreSQL that are altered, renamed, swapped or written anew under a server."""

import asyncio
import logging

import pytest

from pequod import AsyncClient, SourceDown, prefix
from tests.backing.test_postgres import fill
from tests.backing.worlds import serving, timeline_of, twip
from tests.server.helpers import until

MAPPING = '[[table]]\nname = "one"\nkey = "x|<who>"\nvalue = "n"'


def one(pg):
    """A table whose key is not its primary key."""
    pg.execute("CREATE TABLE one (id INT PRIMARY KEY, who TEXT NOT NULL UNIQUE, n TEXT)")
    pg.execute("ALTER TABLE one REPLICA IDENTITY FULL")
    pg.execute("INSERT INTO one VALUES (1, 'ann', 'a'), (2, 'bob', 'b')")
    pg.init(MAPPING)


async def reads(pq, *expected):
    """Once the server has noticed, it has these rows."""
    async with asyncio.timeout(10):
        while await rows_of(pq) != list(expected):
            await asyncio.sleep(0.01)


async def rows_of(pq, **after):
    """The rows, or None if the table cannot be read."""
    try:
        return await pq.scan(*prefix("x|"), **after)
    except SourceDown:
        return [None]


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
            await until(lambda: "posts was altered" in caplog.text)
            loads = server._loader.ranges
            await pq.scan(*prefix("s|ann|"))  # the other table was left alone
            assert server._loader.ranges == loads

            pg.execute("ALTER TABLE posts RENAME COLUMN tweet TO text")
            pg.execute("INSERT INTO posts VALUES ('u1', 2002, 'renamed')")
            with pytest.raises(SourceDown, match="tweet"):
                await pq.scan(*prefix("t|ann|"), after=pg.token())
            assert len(await pq.scan(*prefix("s|ann|"))) == 10
            await until(lambda: "no column tweet" in caplog.text)
            pg.execute("ALTER TABLE posts RENAME COLUMN text TO tweet")
            pg.execute("INSERT INTO posts VALUES ('u1', 2003, 'back')")
            await until(lambda: not server._database._mapped.troubles)
            rows = await pq.scan(*prefix("t|ann|"), after=pg.token())
            assert rows == timeline_of(pg, "ann")

    with caplog.at_level(logging.WARNING):
        run(scenario())


def test_an_identity_that_lost_the_key(pg, run):
    """Deletes do not tell any more which key went: the table cannot be read until it is mended."""
    one(pg)

    async def scenario():
        async with serving(pg, MAPPING, ()) as server, AsyncClient(server.url) as pq:
            assert len(await pq.scan(*prefix("x|"))) == 2
            pg.execute("UPDATE one SET n = 'c' WHERE id = 2")
            pg.execute("ALTER TABLE one REPLICA IDENTITY DEFAULT")
            for statement in ("DELETE FROM one WHERE id = 1", "UPDATE one SET who = 'liz'"):
                pg.execute(statement)
                right = [(f"x|{who}", n) for who, n in pg.execute("SELECT who, n FROM one")]
                assert await rows_of(pq, after=pg.token()) in (right, [None])
            await reads(pq, None)
            with pytest.raises(SourceDown, match="REPLICA IDENTITY FULL"):
                await pq.scan(*prefix("x|"))
            pg.execute("ALTER TABLE one REPLICA IDENTITY FULL")
            await reads(pq, ("x|liz", "c"))

    run(scenario())


def test_a_table_that_is_swapped_for_another(pg, run):
    one(pg)

    async def scenario():
        async with serving(pg, MAPPING, ()) as server, AsyncClient(server.url) as pq:
            await reads(pq, ("x|ann", "a"), ("x|bob", "b"))
            with pg.connection.transaction():
                pg.execute("ALTER TABLE one RENAME TO old")
                pg.execute("CREATE TABLE one (who TEXT PRIMARY KEY, n TEXT)")
                pg.execute("INSERT INTO one VALUES ('eve', 'e')")
            await reads(pq, None)
            with pytest.raises(SourceDown, match="one is not in the publication"):
                await pq.get("x|eve")
            pg.execute(f"ALTER PUBLICATION {pg.slot} SET TABLE one")
            await reads(pq, ("x|eve", "e"))
            pg.execute("INSERT INTO one VALUES ('joe', 'j')")
            assert await pq.get("x|joe", after=pg.token()) == "j"
            pg.execute("DROP TABLE one")
            await reads(pq, None)

    run(scenario())


def test_rows_that_are_written_anew(pg, run):
    """ALTER TABLE changes rows without telling of changes."""
    one(pg)

    async def scenario():
        async with serving(pg, MAPPING, ()) as server, AsyncClient(server.url) as pq:
            await reads(pq, ("x|ann", "a"), ("x|bob", "b"))
            pg.execute("ALTER TABLE one ALTER n TYPE TEXT USING n || '!'")
            await reads(pq, ("x|ann", "a!"), ("x|bob", "b!"))
            pg.execute("ALTER TABLE one ALTER n TYPE BYTEA USING n::bytea")
            await reads(pq, ("x|ann", b"a!"), ("x|bob", b"b!"))
            pg.execute("UPDATE one SET n = '\\x00' WHERE who = 'ann'")
            assert await pq.get("x|ann", after=pg.token()) == b"\0"

    run(scenario())
