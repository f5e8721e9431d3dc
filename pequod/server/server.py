"""A server: one event loop around one cache, and one port for msgpack and HTTP."""

import asyncio
import logging
import os
import secrets
import ssl
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pequod.backing.base import Database
from pequod.backing.mapping import read_tables
from pequod.backing.opening import open_database
from pequod.cluster.connection import Connector
from pequod.cluster.partition import ClusterMap
from pequod.config import ServerConfig
from pequod.engine.cache import Cache
from pequod.errors import BadRequest, PequodError
from pequod.server.access import ADMIN, Access, Principal, hash_of, read_tokens
from pequod.server.binary import BinaryConnection
from pequod.server.feeds import Feeds
from pequod.server.garbage import Collector
from pequod.server.http import Http
from pequod.server.loading import Loader, Source
from pequod.server.node import Node
from pequod.server.service import Service
from pequod.server.tcp import Doorman, Port

log = logging.getLogger("pequod.server")

BACKLOG = 4096
_ABORT_SECONDS = 1.0  # more than the loop needs to end what was aborted


class Server:
    """A cache that listens.

    async with Server(ServerConfig(port=0)) as server:
        print(server.url)
    """

    def __init__(
        self,
        config: ServerConfig | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        source: Source | None = None,
    ) -> None:
        """Reads all files that the configuration names; raises if something is wrong with them."""
        self._config = config or ServerConfig()
        self._clock = clock
        self.cache = Cache(
            clock=clock,
            memory_limit=self._config.memory_limit,
            subtables=self._config.subtables,
        )
        self._access = _access(self._config)
        self._tls = _tls(self._config)
        for path in self._config.joins:
            _install(self.cache, path)
        self._collector = Collector()
        self._database = _database(self._config)
        assert source is None or self._database is None, "one source of data is enough"
        self.node = _node(self._config, self.cache, clock, self._database)
        self._source = source or self.node or self._database
        if self._database is not None:  # to a cluster, it is the home's
            following = self.cache if self.node is None else self.node.base
            for table in self._database.tables:
                following.declare_remote(table.keys)
        self._loader: Loader | None = None
        self.service = Service(self.cache, self._config, self._stats, self._source)
        self._port: Port | None = None
        self._http: Http | None = None
        self._listener: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        assert self._listener is not None, "the server is not started"
        host, port = self._listener.sockets[0].getsockname()[:2]
        scheme = "pequods" if self._tls else "pequod"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen."""
        loader = self._loader = Loader(
            self.cache,
            self._source,
            seconds=2 * self._config.db_seconds,  # what is waited for has deadlines of its own
            at_once=self._config.db_connections,
        )
        if self._database is not None:
            await self._database.start(self.cache if self.node is None else self.node.sink)
        feeds = Feeds(self.cache, self._clock, self._config, loader)
        port = Port(
            self.service,
            self._access,
            self._config,
            feeds,
            loader,
            self._database,
            self.node,
            self._tls,
        )
        http = Http(port)
        port.binary, port.http = BinaryConnection, http.connection
        try:
            self._listener = await port.loop.create_server(
                lambda: Doorman(port),
                self._config.host,
                self._config.port,
                backlog=BACKLOG,
            )
        except (OSError, UnicodeError) as error:
            if self._database is not None:
                await self._database.stop()
            reason = getattr(error, "strerror", None) or error
            raise BadRequest(
                f"cannot listen on {self._config.host}:{self._config.port}: {reason}; "
                "choose another with --host and --port"
            ) from error
        self._port, self._http = port, http
        if self.node is not None:
            self.node.start()
        self._collector.start()

    async def give_notice(self) -> None:
        """Go on for a while, with `/readyz` saying no: whoever sends clients here may notice."""
        if self._port is not None and self._config.notice_seconds:
            self._port.ready = False
            await asyncio.sleep(self._config.notice_seconds)

    async def stop(self) -> None:
        """Take no more connections, let the answers on their way out, and close the rest."""
        port, http, listener = self._port, self._http, self._listener
        if port is None or http is None or listener is None:
            return
        self._port = None
        port.draining = True
        listener.close()
        port.feeds.close()
        for session in list(port.open):
            session.drain()
        await _emptied(port, self._config.drain_seconds)
        for session in list(port.open):
            session.close("the server stops")
        await _emptied(port, _ABORT_SECONDS)
        port.stop()
        await port.loader.stop()
        if self.node is not None:
            await self.node.stop()
        if self._database is not None:
            await self._database.stop()
        await http.stop()
        self._collector.stop()

    def _stats(self) -> dict[str, Any]:
        found = dict(self._collector.stats())
        if self.node is not None:
            found["cluster"] = self.node.status()
        if self._loader is not None and self._source is not None:
            calls = self.service.calls
            reads = calls["get"] + calls["scan"] + calls["count"] + calls["read"]
            found["loading"] = self._loader.stats() | {
                "hit_rate": round(1 - self._loader.calls / reads, 6) if reads else None
            }
        if self._database is not None:
            found["database"] = self._database.stats()
        return found


async def _emptied(port: Port, seconds: float) -> None:
    """Wait for the connections to end."""
    end = port.loop.time() + seconds
    while port.open and port.loop.time() < end:
        await asyncio.sleep(0.01)


def _node(
    config: ServerConfig, cache: Cache, clock: Callable[[], float], database: Database | None
) -> Node | None:
    if config.cluster is None or config.node is None:
        return None
    partitions = ClusterMap.read(config.cluster)
    if config.node not in partitions.nodes:
        raise BadRequest(
            f"node: {config.node!r:.60} is not in {config.cluster}, "
            f"which has {', '.join(partitions.nodes)}"
        )
    return Node(
        config.node,
        partitions,
        cache,
        connect=Connector(config.token),
        new_epoch=lambda: secrets.token_hex(6),
        clock=clock,
        max_log=config.cluster_log,
        base=Cache(
            clock=clock,
            memory_limit=config.memory_limit if database is not None else None,
            subtables=config.subtables,
        ),
        database=database,
        save=partial(_save, Path(config.cluster)),
        started=round(time.time() * 1000),
    )


def _save(path: Path, text: str) -> None:
    """Keep another map for the next start, whole or not at all; others may do the same."""
    new = path.with_suffix(f".{os.getpid()}")
    try:
        new.write_text(text, "utf-8")
        new.replace(path)
    except OSError as error:
        log.error("cannot keep the new map in %s: %s; put it there by hand", path, error.strerror)


def _database(config: ServerConfig) -> Database | None:
    if config.db is None or config.tables is None:
        return None
    return open_database(
        config.db,
        read_tables(config.tables),
        slot=config.db_slot,
        connections=config.db_connections,
        seconds=config.db_seconds,
        max_rows=config.db_max_rows,
        wal_budget=config.db_wal_budget,
    )


def _access(config: ServerConfig) -> Access:
    principals: dict[str, Principal] = {}
    if config.tokens is not None:
        try:
            principals = read_tokens(_text(config.tokens, "tokens"))
        except BadRequest as error:
            raise BadRequest(f"tokens: {config.tokens}: {error}") from error
    if config.token is not None:
        principals[hash_of(config.token)] = Principal("token", ADMIN)
    return Access(principals)


def _tls(config: ServerConfig) -> ssl.SSLContext | None:
    if config.tls_cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # A password would be asked for at the terminal, and a server may have none.
        context.load_cert_chain(config.tls_cert, config.tls_key, password=lambda: "")
    except (OSError, ValueError) as error:
        raise BadRequest(f"tls_cert: {config.tls_cert} cannot be used: {error}") from error
    return context


def _install(cache: Cache, path: str) -> None:
    text = _text(path, "joins")
    try:
        joins = cache.add_join(text)
    except PequodError as error:
        raise BadRequest(f"joins: {path}: {error}") from error
    for join in joins:
        for warning in join["warnings"]:
            log.warning("join %s: %s", join["name"], warning)


def _text(path: str, setting: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadRequest(f"{setting}: cannot read {path}: {reason}") from error
