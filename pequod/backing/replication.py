"""A replication connection to PostgreSQL: the stream of changes of a slot, on the event loop.

libpq does the talking (psycopg's `pq`), and the loop tells when there is something to read. No
call waits for the network, so that each of them can be given up.
"""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Any, NamedTuple

import psycopg
from psycopg import pq

from pequod.backing.pgoutput import Message, lsn_number, lsn_text, parse, status

ANSWER_SECONDS = 10.0  # for a command
SLOT_SECONDS = 60.0  # for a new slot, which waits for the transactions that are open
SLICE_SECONDS = 0.004  # that changes are applied before readers have their turn
# TLS hands over a record of up to 16 KB, and libpq takes 8 KB or more of it at a time: what is left
# inside of TLS makes no socket readable.
_TLS_READS = 3
_FINE = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.COPY_BOTH)


class System(NamedTuple):
    """Which database this is, and where its log ends."""

    identifier: str
    timeline: str
    end: int


class Stream:
    """An open stream; `ended` is done, with an exception, when the connection is lost."""

    def __init__(self, connection: Any, receive: Callable[[Message], None]) -> None:
        self._connection = connection
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._socket = connection.pgconn.socket
        self._reads = _TLS_READS if connection.pgconn.ssl_in_use else 1
        self._is_open = True
        self._again: asyncio.Handle | None = None
        self.heard_at = monotonic()  # when the server said something
        self.ended: asyncio.Future[None] = self._loop.create_future()

    @classmethod
    async def connect(cls, conninfo: str, receive: Callable[[Message], None]) -> "Stream":
        """A connection that does not stream yet."""
        connection = await psycopg.AsyncConnection.connect(
            psycopg.conninfo.make_conninfo(conninfo, replication="database"), autocommit=True
        )
        connection.pgconn.nonblocking = 1
        return cls(connection, receive)

    async def identify(self) -> System:
        result = await self._execute("IDENTIFY_SYSTEM")
        cells = [(result.get_value(0, column) or b"").decode() for column in range(3)]
        return System(cells[0], cells[1], lsn_number(cells[2]))

    async def create_slot(self, slot: str) -> None:
        await self._execute(
            f'CREATE_REPLICATION_SLOT "{slot}" LOGICAL pgoutput NOEXPORT_SNAPSHOT', SLOT_SECONDS
        )

    async def start(self, slot: str, publication: str, position: int) -> None:
        """Stream the transactions that were committed after a position."""
        await self._execute(
            f'START_REPLICATION SLOT "{slot}" LOGICAL {lsn_text(position)} '
            f"(proto_version '1', publication_names '\"{publication}\"')"
        )
        self._loop.add_reader(self._socket, self._read)
        self._again = self._loop.call_soon(self._read)  # some may have come already

    async def _execute(self, command: str, seconds: float = ANSWER_SECONDS) -> Any:
        """Run a command, and give its first result."""
        pgconn, found = self._connection.pgconn, None
        async with asyncio.timeout(seconds):
            pgconn.send_query(command.encode())
            while pgconn.flush():
                await asyncio.sleep(0)
            while found is None or found.status != pq.ExecStatus.COPY_BOTH:  # that has no end
                while pgconn.is_busy():
                    await self._readable()
                    pgconn.consume_input()
                result = pgconn.get_result()
                if result is None:
                    break
                found = found or result
        if found is None:
            raise psycopg.OperationalError("the connection was closed")
        if found.status not in _FINE:
            raise psycopg.errors.error_from_result(found)
        return found

    async def _readable(self) -> None:
        told = asyncio.Event()
        self._loop.add_reader(self._socket, told.set)
        try:
            await told.wait()
        finally:
            self._loop.remove_reader(self._socket)

    def send(self, position: int, wants_reply: bool = False) -> None:
        """Tell the server how far we are, so that it may forget, and maybe ask how far it is.

        What the network does not take now goes out with the next of these.
        """
        if self._is_open:
            try:
                self._connection.pgconn.put_copy_data(status(position, wants_reply))
                self._connection.pgconn.flush()
            except psycopg.Error as error:
                self.close(error)

    def _read(self) -> None:
        """Hand over what has come, for a slice of time."""
        if self._again is not None:
            self._again.cancel()
            self._again = None
        pgconn, receive = self._connection.pgconn, self._receive
        self.heard_at = monotonic()
        end = self.heard_at + SLICE_SECONDS
        try:
            for _ in range(self._reads):
                pgconn.consume_input()
            while self._is_open:
                size, data = pgconn.get_copy_data(1)
                if size <= 0:
                    if size < 0:
                        result = pgconn.get_result()
                        message = result.error_message if result else b""
                        raise psycopg.OperationalError(
                            message.decode(errors="replace").strip() or "the stream has ended"
                        )
                    return
                message_of = parse(bytes(data))
                if message_of is not None:
                    receive(message_of)
                if monotonic() > end:
                    self._again = self._loop.call_soon(self._read)
                    return
        except Exception as error:  # noqa: BLE001 -- whoever waits for the end is told
            self.close(error)

    def close(self, error: BaseException | None = None) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self._loop.remove_reader(self._socket)
        if self._again is not None:
            self._again.cancel()
        self._connection.pgconn.finish()
        if not self.ended.done():
            if error is None:
                self.ended.set_result(None)
            else:
                self.ended.set_exception(error)
                self.ended.exception()
