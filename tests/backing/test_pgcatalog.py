"""What PostgreSQL must have: tables, rights, publication and slot; and values of all kinds."""

import json

import psycopg
import pytest

from loadgen.postgres import LivePostgres
from pequod import AsyncClient, BadRequest, SourceDown
from pequod.backing import postgres
from pequod.cli.main import main
from tests.backing.test_postgres import fill
from tests.backing.worlds import SCHEMA, TABLES, PostgresSide, posts_of, serving, twip


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


def test_values_look_the_same_in_loads_and_in_changes(pg, run):
    pg.execute("CREATE DOMAIN raw AS bytea")
    pg.execute(
        "CREATE TABLE one (id INTEGER PRIMARY KEY, a TEXT[], b BYTEA[], c raw, d CHAR(4), "
        "e TIMESTAMPTZ, f NUMERIC, g FLOAT8, h JSONB, i INTERVAL, j BOOLEAN, k INT4RANGE, l UUID)"
    )
    pg.execute(
        "INSERT INTO one VALUES (1, '{x,\"y z\"}', '{\"\\\\x00\"}', '\\x00ff', 'ab', "
        "'2026-11-18 20:00+02', 1.50, 0.1, '{\"a\": [1]}', '1 day 2 hours', TRUE, '[1,3)', "
        "'00000000-0000-0000-0000-000000000001')"
    )
    several = '[[table]]\nname = "one"\nkey = "x|<id>"\nvalue = [{}]'
    pg.init(mapping := several.format(", ".join(f'"{one}"' for one in "abcdefghijkl")))

    async def scenario():
        async with serving(pg, mapping, ()) as server, AsyncClient(server.url) as pq:
            loaded = await pq.get("x|1")
            assert json.loads(loaded)["a"] == '{x,"y z"}'
            assert json.loads(loaded)["j"] is True
            pg.execute("UPDATE one SET id = 2")
            assert await pq.get("x|2", after=pg.token()) == loaded

    run(scenario())


def test_an_array_is_a_text(pg, run):
    pg.execute("CREATE TABLE one (id INTEGER PRIMARY KEY, tags TEXT[])")
    pg.execute("INSERT INTO one VALUES (1, '{x,y}')")
    mapping = '[[table]]\nname = "one"\nkey = "x|<id>"\nvalue = "tags"'
    pg.init(mapping)

    async def scenario():
        async with serving(pg, mapping, ()) as server, AsyncClient(server.url) as pq:
            assert await pq.get("x|1") == "{x,y}"

    run(scenario())


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (["CREATE VIEW one AS SELECT 1 AS id, 'x' AS n"], "no ordinary table"),
        (["CREATE UNLOGGED TABLE one (id INT PRIMARY KEY, n TEXT)"], "no ordinary table"),
        (
            [
                "CREATE TABLE one (id INT PRIMARY KEY, n TEXT) PARTITION BY RANGE (id)",
                "CREATE TABLE part PARTITION OF one FOR VALUES FROM (0) TO (9)",
            ],
            "map the parts",
        ),
        (
            [
                "CREATE TABLE one (id INT PRIMARY KEY, n TEXT)",
                "CREATE TABLE part () INHERITS (one)",
            ],
            "map the parts",
        ),
        (
            ["CREATE TABLE one (id INT PRIMARY KEY, n TEXT GENERATED ALWAYS AS (id::text) STORED)"],
            "column n of one is generated",
        ),
    ],
)
def test_tables_whose_changes_are_not_told_are_refused(pg, statements, said):
    for statement in statements:
        pg.execute(statement)
    with pytest.raises(BadRequest, match=said):
        pg.init('[[table]]\nname = "one"\nkey = "x|<id>"\nvalue = "n"')


def test_tables_of_one_name_in_two_schemas(pg, run):
    pg.execute("CREATE SCHEMA other")
    for name in ("one", "other.one"):
        pg.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, n TEXT)")
    mapping = "".join(
        f'[[table]]\nname = "{name}"\nkey = "{head}|<id>"\nvalue = "n"\n'
        for name, head in (("one", "a"), ("other.one", "b"))
    )
    pg.init(mapping)

    async def scenario():
        async with serving(pg, mapping, ()) as server, AsyncClient(server.url) as pq:
            assert await pq.scan("a", "c") == []
            pg.execute("INSERT INTO one VALUES (1, 'one')")
            pg.execute("INSERT INTO other.one VALUES (1, 'other')")
            rows = await pq.scan("a", "c", after=pg.token())
            assert rows == [("a|1", "one"), ("b|1", "other")]

    run(scenario())


def test_a_role_without_rights_hears_which_it_needs(pg, tmp_path, capsys):
    path = tmp_path / "twip.toml"
    for statement in SCHEMA:
        pg.execute(statement)
    path.write_text(TABLES.format(mode="through"))
    role = f"app_{pg.name}"
    url = pg.url.replace("postgres@", f"{role}@")
    init = ["db", "init", "--db", url, "--db-slot", pg.slot, "--tables", str(path)]
    pg.execute(f"CREATE ROLE {role} LOGIN")
    for cure, statement in (
        (f'GRANT DELETE, INSERT, SELECT, UPDATE ON "posts" TO "{role}"', None),
        (
            f'GRANT CREATE ON DATABASE "{pg.name}" TO "{role}"',
            f"GRANT ALL ON posts, subs TO {role}",
        ),
        ("let the owner of the tables", f'GRANT CREATE ON DATABASE {pg.name} TO "{role}"'),
        (f'ALTER ROLE "{role}" REPLICATION', f"ALTER TABLE posts OWNER TO {role}"),
    ):
        if statement is not None:
            pg.execute(statement)
        if "REPLICATION" in cure:
            pg.execute(f"ALTER TABLE subs OWNER TO {role}")
        assert main(init) == 2
        assert cure in capsys.readouterr().err
    pg.execute(f"ALTER ROLE {role} REPLICATION")
    assert main(init) == 0
    capsys.readouterr()
    assert main([*init[:-1], str(path), "--db-slot", "A-b"]) == 2
    assert "a-z, 0-9 and _" in capsys.readouterr().err
    pg.execute(f"REASSIGN OWNED BY {role} TO postgres")
    pg.execute(f"DROP OWNED BY {role}")
    pg.execute(f"DROP ROLE {role}")


def test_two_servers_need_two_slots(pg, run, monkeypatch):
    monkeypatch.setattr(postgres, "_BUSY_SECONDS", 0.1)
    mapping = twip(pg)
    fill(pg)

    async def scenario():
        async with serving(pg, mapping):
            with pytest.raises(SourceDown, match="slot of its own with --db-slot"):
                async with serving(pg, mapping):
                    pass
            with pytest.raises(BadRequest, match=r"follow public\.subs, which this mapping lacks"):
                pg.init(mapping[: mapping.rindex("[[table]]")])

    run(scenario())


def test_no_free_slot_and_the_slot_of_another_database():
    with LivePostgres(max_replication_slots="1") as live:
        pg, other = PostgresSide(live.url, "one"), PostgresSide(live.url, "two")
        mapping = twip(pg)
        with pytest.raises(BadRequest, match="drop a slot that nobody needs"):
            twip(other)
        other.slot = pg.slot
        with pytest.raises(BadRequest, match="is of database one; choose another name"):
            other.init(mapping)
        pg.connection.close()
        other.connection.close()


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


def test_a_key_of_a_vague_collation_is_refused(pg):
    try:
        pg.execute("CREATE COLLATION vague (provider = icu, locale = 'und', deterministic = false)")
    except psycopg.errors.FeatureNotSupported:
        pytest.skip("this PostgreSQL is built without ICU")
    pg.execute("CREATE TABLE one (id TEXT COLLATE vague PRIMARY KEY, n TEXT)")
    with pytest.raises(BadRequest, match=r'keys are exact.*COLLATE "C"'):
        pg.init('[[table]]\nname = "one"\nkey = "x|<id>"\nvalue = "n"')
