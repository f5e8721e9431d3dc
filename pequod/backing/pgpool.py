"""Connections to PostgreSQL: so many and no more, each opened when it is needed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.string import TextLoader

from pequod.errors import BadRequest, SourceDown

# The errors of the driver that others must tell apart.
Error, Lost = psycopg.Error, psycopg.OperationalError
InUse = psycopg.errors.ObjectInUse
NotAllowed = psycopg.errors.InsufficientPrivilege
NoMoreRoom = psycopg.errors.ConfigurationLimitExceeded

CONNECT_SECONDS = 5
# So that values look the same in loads and in changes, and a load never reads a whole table.
_OPTIONS = (
    "-c timezone=UTC -c datestyle=ISO -c intervalstyle=postgres -c bytea_output=hex "
    "-c extra_float_digits=1 -c client_encoding=UTF8"
)
_LOAD_OPTIONS = (
    " -c enable_seqscan=off -c jit=off -c plan_cache_mode=force_generic_plan "
    "-c synchronous_commit=on"
)

Result = TypeVar("Result")


def conninfo_of(conninfo: str, more: str = "") -> str:
    """An address with the options that all connections of a server have."""
    said = conninfo_to_dict(conninfo)
    return make_conninfo(
        conninfo,
        options=f"{said.get('options') or ''} {_OPTIONS}{more}",
        application_name="pequod",
        connect_timeout=said.get("connect_timeout") or CONNECT_SECONDS,
    )


class Pool:
    """A bounded number of connections."""

    def __init__(self, conninfo: str, connections: int, seconds: float) -> None:
        """The database gives up statements that take longer than so many seconds."""
        more = f"{_LOAD_OPTIONS} -c statement_timeout={int(seconds * 1000)}"
        self._conninfo = conninfo_of(conninfo, more)
        self._idle: asyncio.LifoQueue[Any] = asyncio.LifoQueue()
        for _ in range(connections):
            self._idle.put_nowait(None)

    async def run(self, work: Callable[[Any], Awaitable[Result]]) -> Result:
        """Do something with a connection; what PostgreSQL says becomes an error of ours."""
        try:
            async with self.connection() as connection:
                return await work(connection)
        except (psycopg.OperationalError, psycopg.InterfaceError, OSError) as error:
            raise SourceDown(f"the database does not answer: {said(error)}") from error
        except psycopg.errors.UndefinedObject as error:
            raise SourceDown(f"the tables have changed: {said(error)}") from error
        except (psycopg.errors.UndefinedColumn, psycopg.errors.UndefinedTable) as error:
            raise SourceDown(f"the tables have changed: {said(error)}; mend the mapping") from error
        except psycopg.Error as error:
            raise BadRequest(f"the database refuses: {said(error)}") from error

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """One of them; it is closed if anything goes wrong with it."""
        connection = await self._idle.get()
        try:
            if connection is None or connection.closed or connection.broken:
                connection = None
                connection = await self.opened()
                # All but bytes as PostgreSQL writes it, which is how it comes in changes.
                for kind in psycopg.postgres.types:
                    if kind.name != "bytea":
                        connection.adapters.register_loader(kind.oid, TextLoader)
                    if kind.array_oid:
                        connection.adapters.register_loader(kind.array_oid, TextLoader)
            yield connection
        except BaseException:
            if connection is not None:  # it may be in the middle of something
                with suppress(psycopg.Error):
                    await connection.close()
            connection = None
            raise
        finally:
            self._idle.put_nowait(connection)

    async def opened(self) -> Any:
        """One more than the others, for the start."""
        return await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True)

    async def close(self) -> None:
        while not self._idle.empty():
            connection = self._idle.get_nowait()
            if connection is not None:
                await connection.close()


async def administrate(conninfo: str, work: Callable[[Any], Awaitable[Result]]) -> Result:
    """Do something with a connection of its own, as `pequod db` does."""
    try:
        async with await psycopg.AsyncConnection.connect(conninfo, autocommit=True) as connection:
            return await work(connection)
    except psycopg.OperationalError as error:
        raise SourceDown(f"the database does not answer: {said(error)}") from error
    except psycopg.Error as error:
        raise BadRequest(f"the database refuses: {said(error)}") from error


def said(error: BaseException) -> str:
    """What went wrong, in a line."""
    return " ".join(str(error).split()) or type(error).__name__
