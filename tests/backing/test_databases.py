"""What holds for every database: loads, changes, writes, tokens."""

import asyncio
import json

import pytest

from pequod import AsyncClient, BadRequest, SourceBehind, TooLarge, prefix
from pequod.config import ServerConfig
from tests.backing.worlds import posts_of, serving, timeline_of, twip
from tests.server.helpers import Web, until


def fill(side, posters=3, posts=2):
    for poster in range(posters):
        side.execute("INSERT INTO subs VALUES ('ann', %s)", f"u{poster}")
        for number in range(posts):
            side.execute(
                "INSERT INTO posts VALUES (%s, %s, %s)",
                f"u{poster}",
                poster + 10 * number,
                f"post {number}",
            )


def test_a_timeline_is_loaded_and_follows(side, run):
    mapping = twip(side)
    fill(side)

    async def scenario():
        async with serving(side, mapping) as server, AsyncClient(server.url) as pq:
            assert await pq.scan(*prefix("t|ann|")) == timeline_of(side, "ann")
            for statement in (
                "INSERT INTO posts VALUES ('u0', 77, 'new')",
                "UPDATE posts SET tweet = 'changed' WHERE poster = 'u1'",
                "DELETE FROM posts WHERE poster = 'u2' AND time = 2",
                "DELETE FROM subs WHERE poster = 'u1'",
                "UPDATE posts SET time = time + 1000 WHERE poster = 'u0'",
                "UPDATE posts SET poster = 'u9' WHERE poster = 'u0'",
                "UPDATE subs SET poster = 'u9' WHERE poster = 'u0'",
                "INSERT INTO posts VALUES ('u9', 5, NULL)",
                "DELETE FROM posts",
            ):
                side.execute(statement)
                rows = await pq.scan(*prefix("t|ann|"), after=side.token())
                assert rows == timeline_of(side, "ann"), statement
                assert await pq.scan(*prefix("p|")) == posts_of(side), statement
            server.cache._check()

    run(scenario())


def test_two_hundred_followees_take_two_rounds(side, run):
    mapping = twip(side)
    fill(side, 200, 1)

    async def scenario():
        async with serving(side, mapping) as server, AsyncClient(server.url) as pq:
            assert len(await pq.scan(*prefix("t|ann|"))) == 200
            stats = (await pq.stats())["server"]
            assert stats["loading"]["loads"] == 2
            assert stats["loading"]["loaded_ranges"] == 201
            assert stats["loading"]["hit_rate"] == 0
            await pq.scan(*prefix("t|ann|"))
            assert (await pq.stats())["server"]["loading"]["hit_rate"] == 0.5
            assert stats["database"]["connected"] is True
            assert stats["database"]["lag_seconds"] < 5

    run(scenario())


def test_only_what_is_read_is_loaded(side, run):
    mapping = twip(side)
    fill(side, 20, 20)

    async def scenario():
        async with serving(side, mapping) as server, AsyncClient(server.url) as pq:
            assert await pq.get("p|u1|0000000011") == "post 1"
            assert await pq.get("p|u1|0000000012") is None
            assert await pq.get("p|u1|12") is None
            assert await pq.get("p|nobody|x") is None
            found = await pq.scan("p|u3|0000000013", "p|u3|0000000034")
            assert [key[-2:] for key, _ in found] == ["13", "23", "33"]
            assert len(await pq.scan(*prefix("p|u4|"), limit=3, reverse=True)) == 3
            assert (await pq.stats())["keys"] < 60
            assert await pq.count(*prefix("p|")) == 400

    run(scenario())


def test_writes_through(side, run):
    mapping = twip(side, "through")

    async def scenario():
        async with serving(side, mapping) as server, AsyncClient(server.url) as pq:
            assert await pq.scan(*prefix("t|ann|")) == []
            token = await pq.put("s|ann|bob", "")
            assert isinstance(token, str)
            await pq.put_many({"p|bob|0000000001": "one", "p|bob|0000000002": "two"})
            assert await pq.scan(*prefix("t|ann|"), after=token) == timeline_of(side, "ann")
            assert len(posts_of(side)) == 2
            await pq.put("p|bob|0000000002", "again")
            assert await pq.remove("p|bob|0000000001") is True
            assert await pq.remove("p|bob|0000000001") is False
            assert posts_of(side) == [("p|bob|0000000002", "again")]
            assert await pq.scan(*prefix("t|ann|")) == timeline_of(side, "ann")
            assert await pq.remove_range(*prefix("p|bob|")) == 1
            assert await pq.scan(*prefix("t|ann|")) == posts_of(side) == []
            for key in ("p|bob|1", "p|bob", "p|bob|000000000x", "p||0000000001", "s|a|b|c"):
                with pytest.raises(BadRequest, match="no key of table"):
                    await pq.put(key, "x")
            assert posts_of(side) == []

    run(scenario())


def test_a_write_that_the_database_refuses_changes_nothing(side, run):
    mapping = twip(side, "through")
    if side.is_postgres:
        side.execute("ALTER TABLE posts ADD CHECK (tweet <> 'bad')")
    else:
        side.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON posts WHEN NEW.tweet = 'bad' "
            "BEGIN SELECT RAISE(ABORT, 'bad'); END"
        )

    async def scenario():
        async with serving(side, mapping) as server, AsyncClient(server.url) as pq:
            await pq.put("p|bob|0000000001", "good")
            with pytest.raises(BadRequest, match="refuses"):
                await pq.put_many({"p|bob|0000000002": "good", "p|bob|0000000003": "bad"})
            assert await pq.scan(*prefix("p|")) == posts_of(side) == [("p|bob|0000000001", "good")]

    run(scenario())


def test_what_is_written_around_is_not_written_here(side, run):
    mapping = twip(side)

    async def scenario():
        async with serving(side, mapping) as server, AsyncClient(server.url) as pq:
            for call in (
                pq.put("p|bob|0000000001", "x"),
                pq.remove("p|bob|0000000001"),
                pq.remove_range(*prefix("p|")),
                pq.put_many({"s|ann|bob": ""}),
            ):
                with pytest.raises(BadRequest, match="written around the cache"):
                    await call
            await pq.put("k|1", "here")
            assert await pq.get("k|1") == "here"

    run(scenario())


def test_a_token_that_is_not_reached_says_how_far_behind(side, run):
    mapping = twip(side)

    async def scenario():
        async with (
            serving(side, mapping, db_seconds=0.1) as server,
            AsyncClient(server.url) as pq,
        ):
            token = "FFFFFFFF/0" if side.is_postgres else "1000000"
            with pytest.raises(SourceBehind, match=r"is \d+ (bytes|changes) behind"):
                await pq.scan(*prefix("t|ann|"), after=token)
            with pytest.raises(BadRequest, match="no position"):
                await pq.scan(*prefix("t|ann|"), after="yesterday")

    run(scenario())


def test_rows_that_are_no_keys_are_left_out(side, run):
    mapping = twip(side)
    side.execute("INSERT INTO posts VALUES ('a|b', 1, 'a bar')")
    side.execute("INSERT INTO posts VALUES ('', 1, 'empty')")
    side.execute("INSERT INTO posts VALUES ('bob', -1, 'before time')")
    side.execute("INSERT INTO posts VALUES ('bob', 1, 'fits')")

    async def scenario():
        async with serving(side, mapping) as server, AsyncClient(server.url) as pq:
            assert await pq.scan(*prefix("p|")) == [("p|bob|0000000001", "fits")]
            side.execute("INSERT INTO posts VALUES ('c|d', 1, 'a bar')")
            side.execute("UPDATE posts SET poster = 'x|y' WHERE tweet = 'fits'")
            assert await pq.scan(*prefix("p|"), after=side.token()) == []
            side.execute("UPDATE posts SET poster = 'xy' WHERE tweet = 'fits'")
            rows = await pq.scan(*prefix("p|"), after=side.token())
            assert rows == [("p|xy|0000000001", "fits")]
            assert (await pq.stats())["server"]["database"]["unfit_rows"] > 0

    run(scenario())


def test_values_of_many_columns_are_json(side, run):
    blob = "BYTEA" if side.is_postgres else "BLOB"
    side.execute(
        f"CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price INTEGER, body {blob})"
    )
    mapping = """
    [[table]]
    name = "item"
    key = "item|<id>"
    value = ["name", "price"]
    mode = "through"
    """
    side.init(mapping)
    side.execute("INSERT INTO item VALUES (1, 'pen', 3, NULL)")

    async def scenario():
        async with serving(side, mapping, ()) as server, AsyncClient(server.url) as pq:
            assert json.loads(await pq.get("item|1")) == {"name": "pen", "price": 3}
            side.execute("UPDATE item SET name = NULL WHERE id = 1")
            found = await pq.get("item|1", after=side.token())
            assert json.loads(found) == {"name": None, "price": 3}
            await pq.put("item|-2", json.dumps({"name": "ü|\n", "price": 4}))
            assert json.loads(await pq.get("item|-2"))["name"] == "ü|\n"
            assert side.execute("SELECT name, price FROM item WHERE id = -2") == [("ü|\n", 4)]
            for bad in ("no json", "[]", '{"colour": "red"}'):
                with pytest.raises(BadRequest, match="JSON object"):
                    await pq.put("item|3", bad)

    run(scenario())


def test_bytes(side, run):
    blob = "BYTEA" if side.is_postgres else "BLOB"
    side.execute(f"CREATE TABLE file (name TEXT PRIMARY KEY, body {blob})")
    mapping = '[[table]]\nname = "file"\nkey = "f|<name>"\nvalue = "body"\nmode = "through"'
    side.init(mapping)
    side.execute("INSERT INTO file VALUES ('a', %s)", b"\x00\xff")

    async def scenario():
        async with serving(side, mapping, ()) as server, AsyncClient(server.url) as pq:
            assert await pq.get("f|a") == b"\x00\xff"
            side.execute("UPDATE file SET body = %s", b"\x01|")
            assert await pq.get("f|a", after=side.token()) == b"\x01|"
            await pq.put("f|b", b"\x02")
            assert await pq.get("f|b") == b"\x02"

    run(scenario())


def test_a_load_that_is_too_large_is_refused(side, run):
    mapping = twip(side)
    fill(side, 4, 4)

    async def scenario():
        async with (
            serving(side, mapping, db_max_rows=10) as server,
            AsyncClient(server.url) as pq,
        ):
            with pytest.raises(TooLarge, match="smaller part"):
                await pq.scan(*prefix("p|"))
            assert len(await pq.scan(*prefix("p|u1|"))) == 4

    run(scenario())


def test_a_watched_range_is_pushed(side, run):
    mapping = twip(side)
    fill(side)

    async def scenario():
        async with serving(side, mapping) as server, AsyncClient(server.url) as pq:
            events = pq.watch(*prefix("t|ann|"))
            assert len((await anext(events)).rows) == 6
            side.execute("INSERT INTO posts VALUES ('u0', 77, 'live')")
            event = await anext(events)
            assert (event.key, event.value) == ("t|ann|0000000077|u0", "live")
            await events.aclose()

    run(scenario())


def test_memory_is_kept_under_a_working_set_five_times_larger(side, run):
    mapping = twip(side)
    users, posts = 40, 50
    for user in range(users):
        side.execute("INSERT INTO subs VALUES (%s, %s)", f"r{user}", f"u{user}")
        rows = ", ".join(f"('u{user}', {number}, '{'x' * 100}')" for number in range(posts))
        side.execute(f"INSERT INTO posts VALUES {rows}")

    async def scenario():
        async with serving(side, mapping) as server, AsyncClient(server.url) as pq:
            for user in range(users):
                await pq.scan(*prefix(f"t|r{user}|"))
            whole = server.cache.stats()["bytes"]
        limit = whole // 5
        async with (
            serving(side, mapping, memory_limit=limit) as server,
            AsyncClient(server.url) as pq,
        ):
            most = 0
            for turn in range(3 * users):
                user = f"r{(turn * 7) % users}"
                assert await pq.scan(*prefix(f"t|{user}|")) == timeline_of(side, user)
                most = max(most, server.cache.stats()["bytes"])
            assert most <= 1.1 * limit
            # Larger than all memory there is: served, and not kept.
            assert await pq.scan(*prefix("p|")) == posts_of(side)
            assert server.cache.stats()["bytes"] <= 1.1 * limit
            assert await pq.scan(*prefix("t|r1|")) == timeline_of(side, "r1")
            server.cache._check()

    run(scenario())


def test_ready_and_metrics(side, run):
    mapping = twip(side)

    async def scenario():
        async with serving(side, mapping) as server, await Web.open(server) as web:
            await until(lambda: server._database.is_ready)
            assert (await web.get("/readyz")).status == 200
            await web.get("/v1/scan?prefix=t|ann|")
            metrics = (await web.get("/metrics")).body.decode()
            assert "pequod_database_connected 1.0" in metrics
            assert "pequod_loading_hit_rate" in metrics
            server._database.progress.lost("a test")
            answer = await web.get("/readyz")
            assert (answer.status, answer.json["status"]) == (503, "catching up")
            stale = await web.get("/v1/scan?prefix=t|ann|")
            assert (stale.status, stale.headers["age"]) == (200, "0")

    run(scenario())


@pytest.mark.parametrize(
    ("schema", "key", "said"),
    [
        ((), "p|<poster>|<time:10>", "no table posts"),
        (("CREATE TABLE posts (poster TEXT PRIMARY KEY, tweet TEXT)",), "p|<who>", "no column who"),
        (
            ("CREATE TABLE posts (poster TEXT, time INTEGER, tweet TEXT)",),
            "p|<poster>|<time>",
            r"no index of posts.*CREATE INDEX",
        ),
        (
            (
                "CREATE TABLE posts (poster TEXT, time INTEGER, tweet TEXT)",
                "CREATE INDEX i ON posts (poster)",
            ),
            "p|<poster>|<time>",
            r"two rows of posts may have one key; create an index: CREATE UNIQUE INDEX",
        ),
        (
            (
                "CREATE TABLE posts (poster TEXT, time REAL, tweet TEXT, "
                "PRIMARY KEY (poster, time))",
            ),
            "p|<poster>|<time>",
            "column time of posts is",
        ),
    ],
)
def test_a_table_that_cannot_be_served_is_refused(side, run, schema, key, said):
    for statement in schema:
        side.execute(statement)
    mapping = f'[[table]]\nname = "posts"\nkey = "{key}"\nvalue = "tweet"'
    if side.is_postgres:
        with pytest.raises(BadRequest, match=said):
            side.init(mapping)
        return

    async def scenario():
        async with serving(side, mapping, ()):
            pass

    with pytest.raises(BadRequest, match=said):
        run(scenario())


def test_a_server_is_restarted(side, run):
    mapping = twip(side)
    fill(side)

    async def scenario():
        for number in range(3):
            async with serving(side, mapping) as server, AsyncClient(server.url) as pq:
                assert await pq.scan(*prefix("t|ann|")) == timeline_of(side, "ann")
                side.execute("INSERT INTO posts VALUES ('u0', %s, 'up')", 100 + number)
                rows = await pq.scan(*prefix("t|ann|"), after=side.token())
                assert rows == timeline_of(side, "ann")
            side.execute("INSERT INTO posts VALUES ('u0', %s, 'down')", 200 + number)

    run(scenario())


def test_a_database_needs_both_settings():
    with pytest.raises(BadRequest, match="needs both"):
        ServerConfig(db="sqlite:///x.db")


def test_many_readers_and_writers(side, run):
    mapping = twip(side)
    fill(side)

    async def scenario():
        async with serving(side, mapping) as server, AsyncClient(server.url) as pq:

            async def read(number):
                for _ in range(20):
                    await pq.scan(*prefix("t|ann|"))
                    server.cache.evict(prefix("p|u1|" if number % 2 else "s|"))

            reading = [asyncio.create_task(read(number)) for number in range(8)]
            for number in range(100):
                side.execute(
                    "INSERT INTO posts VALUES (%s, %s, 'x')", f"u{number % 3}", 1000 + number
                )
                await asyncio.sleep(0)
            await asyncio.gather(*reading)
            rows = await pq.scan(*prefix("t|ann|"), after=side.token())
            assert rows == timeline_of(side, "ann")
            await until(lambda: server._database.progress.position >= 0)

    run(scenario())
