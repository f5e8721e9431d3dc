"""A database behind a server process, under faults, against SQL's own answers.

    python -m tests.backing.torture --seconds 300 --seed 7

Writers change a real PostgreSQL at random, readers ask Pequod, ranges are pushed out of a small
memory; PostgreSQL is stopped, crashed and restarted, Pequod is killed with -9 and restarted, and
connections are cut. Every read with a token must have its write, and at every quiet point each
timeline and each table must be what SQL says. Prints operations, faults and mismatches.
"""

import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import psycopg

from loadgen.postgres import LivePostgres
from pequod import Client, PequodError, prefix
from tests.backing.worlds import TIMELINE, PostgresSide, posts_of, timeline_of, twip

USERS = [f"r{number}" for number in range(12)]
POSTERS = [f"u{number}" for number in range(20)]
MEMORY = "60KB"
PATIENCE_SECONDS = 60.0


class Pequod:
    """A server process that may be killed and comes back on its port."""

    def __init__(self, side: PostgresSide, mapping: str, directory: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        (directory / "twip.toml").write_text(mapping)
        (directory / "twip.pq").write_text(TIMELINE)
        self._log = (directory / "log").open("ab")
        self._command = [
            sys.executable, "-m", "pequod", "serve", "--port", str(self.port),
            "--db", side.url, "--db-slot", side.slot, "--tables", str(directory / "twip.toml"),
            "--joins", str(directory / "twip.pq"), "--memory", MEMORY,
        ]  # fmt: skip
        self.url = f"pequod://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            self._process = subprocess.Popen(
                self._command, stdout=self._log, stderr=self._log, env=environment
            )
            while self._process.poll() is None:
                try:
                    socket.create_connection(("127.0.0.1", self.port), 1).close()
                    return
                except OSError:
                    time.sleep(0.05)
            # PostgreSQL may be down just now, and a server does not start without it.
            assert time.monotonic() < end, "Pequod does not start"
            time.sleep(0.2)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_SECONDS)
        self._log.close()


class Torture:
    """One run."""

    def __init__(self, seed: int, live: LivePostgres, directory: Path) -> None:
        self.chance = random.Random(seed)
        self.live = live
        self.side = PostgresSide(live.url, f"torture{seed}")
        self.pequod = Pequod(self.side, twip(self.side), directory)
        self.counts: Counter[str] = Counter()
        self.mismatches: list[str] = []
        self._busy = threading.Event()
        self._stopped = False
        self.last_error = ""

    # What goes on all the time.

    def write(self, seed: int) -> None:
        """Change tables at random, and read with the token of the change."""
        chance = random.Random(seed)
        connection = None
        with Client(self.pequod.url, timeout=5) as client:
            while not self._stopped:
                if not self._busy.wait(0.1):
                    continue
                try:
                    if connection is None or connection.closed:
                        connection = psycopg.connect(self.side.url, autocommit=True)
                    self._write(chance, connection, client, seed)
                except psycopg.Error:
                    self.counts["writes that failed"] += 1
                    if connection is not None:
                        connection.close()
                    connection = None
                    time.sleep(0.05)
        if connection is not None:
            connection.close()

    def _write(self, chance: random.Random, sql, client: Client, seed: int) -> None:
        when = chance.randrange(200)
        text = f"{seed}-{self.counts['writes']}-{chance.random()}"
        with sql.transaction():
            for _ in range(chance.choice((1, 1, 1, 5, 20))):
                match chance.randrange(10):
                    case 0 | 1 | 2 | 3:
                        sql.execute(
                            "INSERT INTO posts VALUES (%s, %s, %s) ON CONFLICT (poster, time) "
                            "DO UPDATE SET tweet = EXCLUDED.tweet",
                            [chance.choice(POSTERS), chance.randrange(200), text],
                        )
                    case 4:
                        sql.execute("DELETE FROM posts WHERE time = %s", [chance.randrange(200)])
                    case 5:  # the key moves
                        sql.execute(
                            "UPDATE posts p SET time = time + 1000 WHERE poster = %s AND "
                            "time = %s AND NOT EXISTS (SELECT 1 FROM posts q WHERE "
                            "q.poster = p.poster AND q.time = p.time + 1000)",
                            [chance.choice(POSTERS), chance.randrange(200)],
                        )
                    case 6 | 7:
                        sql.execute(
                            "INSERT INTO subs VALUES (%s, %s) ON CONFLICT DO NOTHING",
                            [chance.choice(USERS), chance.choice(POSTERS)],
                        )
                    case 8:
                        sql.execute(
                            "DELETE FROM subs WHERE usr = %s AND poster = %s",
                            [chance.choice(USERS), chance.choice(POSTERS)],
                        )
                    case 9 if chance.random() < 0.02:
                        sql.execute("TRUNCATE posts")
            mine = f"w{seed}"  # a poster of this writer alone, so that it knows what to expect
            sql.execute(
                "INSERT INTO posts VALUES (%s, %s, %s) ON CONFLICT (poster, time) "
                "DO UPDATE SET tweet = EXCLUDED.tweet",
                [mine, when, text],
            )
        self.counts["writes"] += 1
        token = sql.execute("SELECT pg_current_wal_lsn()::text").fetchone()[0]
        key = f"p|{mine}|{when:010}"
        try:
            found = client.get(key, after=token)
        except PequodError as error:
            self.counts[f"reads that failed: {error.code}"] += 1
            return
        self.counts["reads with a token"] += 1
        if found != text:
            # Another writer may have deleted this time, or all: SQL decides.
            now = sql.execute(
                "SELECT tweet FROM posts WHERE poster = %s AND time = %s", [mine, when]
            ).fetchone()
            if now is not None and now[0] == text:
                self.mismatches.append(f"{key} after {token}: {found!r}, not {text!r}")

    def read(self, seed: int) -> None:
        chance = random.Random(seed)
        with Client(self.pequod.url, timeout=5) as client:
            while not self._stopped:
                if not self._busy.wait(0.1):
                    continue
                try:
                    keys = prefix(
                        chance.choice(
                            [f"t|{chance.choice(USERS)}|"] * 8
                            + [f"p|{chance.choice(POSTERS)}|", "s|", f"s|{chance.choice(USERS)}|"]
                        )
                    )
                    rows = client.scan(*keys, *chance.choice([(), (5, True), (3, False)]))
                    self.counts["reads"] += 1
                    assert len({key for key, _ in rows}) == len(rows), "a key twice"
                except PequodError as error:
                    self.counts[f"reads that failed: {error.code}"] += 1
                    self.last_error = str(error)
                    time.sleep(0.02)

    # What goes wrong.

    def fault(self) -> None:
        kind = self.chance.choice(("cut", "cut", "kill", "restart", "crash", "cut slot"))
        self.counts[f"fault: {kind}"] += 1
        if kind == "kill":
            self.pequod.kill()
            time.sleep(self.chance.random() * 0.3)
            self.pequod.start()
        elif kind in ("restart", "crash"):
            self.live.stop(signal.SIGINT if kind == "restart" else signal.SIGQUIT)
            time.sleep(self.chance.random() * 0.5)
            self.live.start()
            self.side.reconnect()
        else:
            only = "AND backend_type = 'walsender'" if kind == "cut slot" else ""
            self.side.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                f"WHERE application_name = 'pequod' AND datname = %s {only}",
                self.side.name,
            )

    # What must be true.

    def check(self) -> None:
        """A quiet point: everything is as SQL says."""
        token = self.side.token()
        end = time.monotonic() + PATIENCE_SECONDS
        with Client(self.pequod.url, timeout=5) as client:
            while True:
                try:
                    for user in USERS:
                        rows = client.scan(*prefix(f"t|{user}|"), after=token)
                        self._compare(f"t|{user}|", rows, timeline_of(self.side, user))
                    rows = client.scan(*prefix("p|"), after=token)
                    self._compare("p|", rows, posts_of(self.side))
                    break
                except PequodError as error:
                    if time.monotonic() > end:
                        raise AssertionError(f"it does not heal: {error}") from error
                    time.sleep(0.05)
        self.counts["quiet points"] += 1

    def _compare(self, what: str, found: list, expected: list) -> None:
        self.counts["comparisons"] += 1
        if found != expected:
            difference = sorted(set(found) ^ set(expected))[:4]
            self.mismatches.append(f"{what}: {difference}")

    def run(self, seconds: float, seed: int) -> None:
        threads = [threading.Thread(target=self.write, args=(seed + n,)) for n in range(2)]
        threads += [threading.Thread(target=self.read, args=(seed + n,)) for n in range(10, 12)]
        for thread in threads:
            thread.start()
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end and not self.mismatches:
                self._busy.set()
                time.sleep(self.chance.uniform(0.2, 1.0))
                if self.chance.random() < 0.7:
                    self.fault()
                    time.sleep(self.chance.uniform(0.1, 0.6))
                self._busy.clear()
                time.sleep(0.15)  # for what is on its way; stragglers only make the check harder
                self._settle()
                self.check()
        finally:
            self._stopped = True
            self._busy.set()
            for thread in threads:
                thread.join(PATIENCE_SECONDS)
            self.pequod.stop()
            self.side.connection.close()

    def _settle(self) -> None:
        """Wait until no writer has a transaction open."""
        end = time.monotonic() + PATIENCE_SECONDS
        before = None
        while time.monotonic() < end:
            now = self.counts["writes"] + self.counts["writes that failed"]
            if now == before:
                return
            before = now
            time.sleep(0.1)


def torture(seconds: float, seed: int) -> Torture:
    """One run of so many seconds; what it counted, and what was wrong."""
    with LivePostgres(max_connections="60") as live, tempfile.TemporaryDirectory() as directory:
        one = Torture(seed, live, Path(directory))
        one.run(seconds, seed)
        return one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    found = torture(options.seconds, options.seed)
    for name, number in sorted(found.counts.items()):
        print(f"{number:8}  {name}")
    print(f"{len(found.mismatches):8}  mismatches")
    print(f"the last read that failed: {found.last_error or 'none'}")
    for mismatch in found.mismatches:
        print(mismatch)
    sys.exit(1 if found.mismatches else 0)


if __name__ == "__main__":
    main()
