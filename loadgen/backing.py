"""PostgreSQL behind a server: how fast it is followed, and how fast timelines are, cold and warm.

A server of its own process follows a real PostgreSQL through a slot. The rival for following is
what most people build: a trigger that NOTIFYs each row, and a process that LISTENs. The rival for
timelines is the same join in SQL, asked by psycopg with prepared statements. Posts lie in the
table in the order of time, as they do where people post.
"""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from typing import Any

from loadgen.postgres import LivePostgres
from loadgen.report import Findings, Ratio, progress
from loadgen.servers import ServerProcess, start_pequod
from pequod import AsyncClient, Client, prefix

FOLLOWEES = 200
NEWEST = 40
ENOUGH = 10_000  # rows followed in a second
TEXT = "a post of some forty characters, as usual"
TABLES = """
[[table]]
name = "posts"
key = "p|<poster>|<time:10>"
value = "tweet"

[[table]]
name = "subs"
key = "s|<usr>|<poster>"
"""
TIMELINE = "t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>;"
SQL = (
    "SELECT p.time, p.poster, p.tweet FROM subs s JOIN posts p ON p.poster = s.poster "
    "WHERE s.usr = %s ORDER BY p.time {order}, p.poster {order}"
)
WHOLE = SQL.format(order="")
PAGE = SQL.format(order="DESC") + f" LIMIT {NEWEST}"
NOTIFY = """
CREATE TABLE told (poster TEXT, time INTEGER, tweet TEXT, PRIMARY KEY (poster, time));
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('told', row_to_json(NEW)::text);
    RETURN NEW;
END $$;
CREATE TRIGGER tell AFTER INSERT ON told FOR EACH ROW EXECUTE FUNCTION tell();
"""


@dataclass(frozen=True)
class Trial:
    """How much is measured."""

    users: int = 15
    posts: int = 50
    few_posts: int = 5
    transactions: int = 200
    rows: int = 250  # of a transaction
    rounds: int = 3
    writes: int = 3000
    writes_per_second: int = 500


QUICK_TRIAL = Trial(3, 5, 2, transactions=10, rows=50, rounds=1, writes=100)


def measure_backing(trial: Trial) -> Findings:
    """Everything that the benchmark file `backing` holds."""
    import psycopg

    findings = Findings()
    progress("starting PostgreSQL")
    with (
        LivePostgres(shared_buffers="256MB") as live,
        psycopg.connect(live.url, autocommit=True, prepare_threshold=1) as sql,
    ):
        _fill(sql, trial)
        with _server(live.url) as server:
            url = f"pequod://127.0.0.1:{server.port}"
            findings.add(_timelines(sql, url, trial))
            findings.add(_latency(live.url, url, trial))
            findings.add(_following(live.url, sql, url, trial))
    return findings


def _fill(sql: Any, trial: Trial) -> None:
    progress("filling its tables")
    sql.execute(
        "CREATE TABLE posts (poster TEXT, time INT, tweet TEXT, PRIMARY KEY (poster, time))"
    )
    sql.execute("CREATE TABLE subs (usr TEXT, poster TEXT, PRIMARY KEY (usr, poster))")
    sql.execute(NOTIFY)
    for kind, posts in (("many", trial.posts), ("few", trial.few_posts)):
        posters = trial.users * FOLLOWEES
        sql.execute(
            "INSERT INTO posts SELECT %s || i %% %s, i, %s FROM generate_series(0, %s) i",
            [kind, posters, TEXT, posters * posts - 1],
        )
        sql.execute(
            "INSERT INTO subs SELECT %s || i / %s, %s || i FROM generate_series(0, %s) i",
            [kind, FOLLOWEES, kind, posters - 1],
        )
    sql.execute("VACUUM ANALYZE")


@contextmanager
def _server(url: str) -> Iterator[ServerProcess]:
    with TemporaryDirectory() as directory:
        tables, joins = Path(directory) / "twip.toml", Path(directory) / "twip.pq"
        tables.write_text(TABLES)
        joins.write_text(TIMELINE)
        command = [sys.executable, "-m", "pequod", "db", "init", "--db", url]
        subprocess.run([*command, "--tables", str(tables)], check=True, stdout=subprocess.DEVNULL)
        options = ("--db", url, "--tables", str(tables), "--joins", str(joins))
        with start_pequod(*options) as server:
            yield server


# Timelines.


def _timelines(sql: Any, url: str, trial: Trial) -> Findings:
    findings = Findings()
    times = {}
    with Client(url) as client:
        for kind in ("few", "many"):
            progress(f"timelines of {FOLLOWEES} followees with {kind} posts")
            times[kind] = _times(sql, client, kind, trial)
            for name, seconds in times[kind].items():
                findings.results.append(
                    {"job": name, "posts": kind, "milliseconds": median(seconds) * 1e3}
                )
    many = {name: median(seconds) for name, seconds in times["many"].items()}
    few = {name: median(seconds) for name, seconds in times["few"].items()}
    findings.ratios += [
        Ratio(
            "cold_vs_sql",
            many["sql"] / many["cold"],
            1 / 3,
            f"{FOLLOWEES * trial.posts} rows in {many['cold'] * 1e3:.1f} ms, by SQL in "
            f"{many['sql'] * 1e3:.1f} ms; of {FOLLOWEES * trial.few_posts} rows it is "
            f"{few['sql'] / few['cold']:.2f}",
            at_least=True,
        ),
        Ratio(
            "warm_vs_sql",
            many["sql_page"] / many["warm_page"],
            20,
            f"the newest {NEWEST} in {many['warm_page'] * 1e3:.3f} ms, by SQL in "
            f"{many['sql_page'] * 1e3:.2f} ms; all rows: {many['sql'] / many['warm']:.1f}",
            at_least=True,
        ),
    ]
    return findings


def _times(sql: Any, client: Client, kind: str, trial: Trial) -> dict[str, list[float]]:
    """Seconds of each job; each user is cold once."""
    times: dict[str, list[float]] = {}

    def timed(name: str, work: Any) -> Any:
        begun = perf_counter()
        result = work()
        times.setdefault(name, []).append(perf_counter() - begun)
        return result

    for number in range(trial.users):
        user = f"{kind}{number}"
        keys = prefix(f"t|{user}|")
        sql.execute(WHOLE, [user]).fetchall()  # so that PostgreSQL has it in memory
        rows = timed("sql", lambda user=user: sql.execute(WHOLE, [user]).fetchall())
        found = timed("cold", lambda keys=keys: client.scan(*keys))
        assert len(rows) == len(found) > 0, "the timelines differ"
        for _ in range(trial.rounds):
            timed("sql", lambda user=user: sql.execute(WHOLE, [user]).fetchall())
            timed("warm", lambda keys=keys: client.scan(*keys))
            page = timed("sql_page", lambda user=user: sql.execute(PAGE, [user]).fetchall())
            newest = timed("warm_page", lambda keys=keys: client.scan(*keys, NEWEST, True))
            assert [value for *_, value in page] == [value for _, value in newest]
    return times


# From a commit to the reader.


def _latency(postgres: str, url: str, trial: Trial) -> Findings:
    progress(f"commit to visible, at {trial.writes_per_second} writes a second")
    late = asyncio.run(_watched(postgres, url, trial))
    cuts = quantiles(late, n=100)
    p50, p99 = cuts[49] * 1e3, cuts[98] * 1e3
    return Findings(
        [{"job": "commit_to_visible", "p50_ms": p50, "p99_ms": p99, "writes": len(late)}],
        [
            Ratio(
                "commit_to_visible_p99_ms",
                p99,
                100,
                f"pushed to a watching client; half of them within {p50:.2f} ms",
            )
        ],
    )


async def _watched(postgres: str, url: str, trial: Trial) -> list[float]:
    """Seconds from the end of each commit to the event at a client that watches the timeline."""
    seen: dict[str, float] = {}
    written: dict[str, float] = {}
    writer = threading.Thread(target=_write, args=(postgres, trial, written))
    async with AsyncClient(url) as client:
        events = client.watch(*prefix("t|few0|"))
        await anext(events)
        writer.start()
        async for event in events:
            seen[event.value] = perf_counter()  # type: ignore[index]
            if len(seen) == trial.writes:
                break
        await events.aclose()
    writer.join()
    return [max(0.0, seen[text] - written[text]) for text in written]


def _write(postgres: str, trial: Trial, written: dict[str, float]) -> None:
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as sql:
        begun = perf_counter()
        for number in range(trial.writes):
            wait = begun + number / trial.writes_per_second - perf_counter()
            if wait > 0:
                sleep(wait)
            text = f"write {number}"
            sql.execute(
                "INSERT INTO posts VALUES (%s, %s, %s)",
                [f"few{number % FOLLOWEES}", 100_000_000 + number, text],
            )
            written[text] = perf_counter()


# Following.


def _following(postgres: str, sql: Any, url: str, trial: Trial) -> Findings:
    """Rows followed in a second, and those that a listener to NOTIFY hears, in turns."""
    ours, theirs = [], []
    with Client(url, timeout=120) as client:
        client.scan(*prefix("p|few200|"))  # so that what is followed is kept
        for number in range(trial.rounds):
            progress(f"following bulk writes, round {number + 1} of {trial.rounds}")
            ours.append(_followed(sql, client, number, trial))
            theirs.append(_told(postgres, sql, number, trial))
    mine, notified = median(ours), median(theirs)
    return Findings(
        [
            {"job": "follow", "rows_per_second": mine},
            {"job": "notify", "rows_per_second": notified},
        ],
        [
            Ratio("follow_rows_per_second", mine, ENOUGH, "rows, into a range in memory", True),
            Ratio(
                "follow_rows_vs_notify",
                mine / notified,
                5 if mine < ENOUGH else 0,
                f"triggers with NOTIFY tell {notified:,.0f} rows a second, and lose those that "
                f"nobody hears; 5 times as many, or {ENOUGH:,} a second, is the aim",
                True,
            ),
        ],
    )


def _insert(sql: Any, table: str, number: int, trial: Trial) -> None:
    for part in range(trial.transactions):
        first = 200_000_000 + (number * trial.transactions + part) * trial.rows
        sql.execute(
            f"INSERT INTO {table} SELECT 'few200', i, %s FROM generate_series(%s, %s) i",
            [TEXT, first, first + trial.rows - 1],
        )


def _followed(sql: Any, client: Client, number: int, trial: Trial) -> float:
    rows = trial.transactions * trial.rows
    before = client.count(*prefix("p|few200|"))
    begun = perf_counter()
    _insert(sql, "posts", number, trial)
    token = sql.execute("SELECT pg_current_wal_lsn()::text").fetchone()[0]
    after = client.count(*prefix("p|few200|"), after=token)
    seconds = perf_counter() - begun
    assert after == before + rows, "rows were lost"
    return rows / seconds


def _told(postgres: str, sql: Any, number: int, trial: Trial) -> float:
    """The same rows, each told by a trigger to a process that listens."""
    import psycopg

    rows, known = trial.transactions * trial.rows, {}
    with psycopg.connect(postgres, autocommit=True) as listener:
        listener.execute("LISTEN told")
        writer = threading.Thread(target=_insert, args=(sql, "told", number, trial))
        begun = perf_counter()
        writer.start()
        for notice in listener.notifies():
            row = json.loads(notice.payload)
            known[f"p|{row['poster']}|{row['time']:010}"] = row["tweet"]
            if len(known) == rows:
                break
        seconds = perf_counter() - begun
        writer.join()
    return rows / seconds
