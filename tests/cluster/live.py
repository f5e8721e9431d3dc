"""Clusters of real servers on free ports, for tests."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from loadgen.servers import free_port
from pequod.config import ServerConfig
from pequod.server import Server

JOINS = """
timeline: t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>;
followers: followers|<poster> = count s|<user>|<poster>;
"""

SCHEMA = (
    "CREATE TABLE posts (poster TEXT, time INTEGER, tweet TEXT, PRIMARY KEY (poster, time));"
    "CREATE TABLE subs (usr TEXT, poster TEXT, note TEXT, PRIMARY KEY (usr, poster));"
)
TABLES = """
[[table]]
name = "posts"
key = "p|<poster>|<time:10>"
value = "tweet"
mode = "through"
[[table]]
name = "subs"
key = "s|<usr>|<poster>"
value = "note"
mode = "through"
"""

SECONDS = 20.0  # that anything here may take; a healthy run takes milliseconds


def write_map(
    path: Path, homes: str = "abc", computes: str = "", ports: dict[str, int] | None = None
) -> Path:
    """The map of a Twip cluster with these nodes, as a file."""
    lines = ["[nodes]"]
    for name in homes + computes:
        port = (ports or {}).get(name) or free_port()
        lines.append(f'{name} = "pequod://127.0.0.1:{port}"')
    names = ", ".join(f'"{home}"' for home in homes)
    lines += [
        "[[partition]]",
        'key = "p|<poster>|<time:10>"',
        'hash = "poster"',
        f"homes = [{names}]",
    ]
    lines += ["[[partition]]", 'range = ["s|", "s}"]']
    lines += [f'split = [["s|h", "{homes[0]}"], ["s}}", "{homes[-1]}"]]']
    path.write_text("\n".join(lines) + "\n")
    return path


def with_database(directory: Path) -> dict[str, Any]:
    """The settings of a home whose rows are in a new SQLite database."""
    (directory / "tables.toml").write_text(TABLES)
    with closing(sqlite3.connect(directory / "twip.db")) as database:
        database.executescript(SCHEMA)
    return {
        "db": f"sqlite:///{directory / 'twip.db'}",
        "tables": str(directory / "tables.toml"),
    }


@asynccontextmanager
async def running(path: Path, names: str, **settings: Any) -> AsyncIterator[dict[str, Server]]:
    """Servers of a map in this event loop."""
    servers: dict[str, Server] = {}
    try:
        for name in names:
            servers[name] = await started(path, name, **settings)
        yield servers
    finally:
        for server in servers.values():
            await server.stop()


async def started(path: Path, name: str, **settings: Any) -> Server:
    from pequod.cluster.partition import ClusterMap

    port = int(ClusterMap.read(str(path)).nodes[name].rpartition(":")[2])
    config = ServerConfig(
        **{"port": port, "cluster": str(path), "node": name, "drain_seconds": 0.1, **settings}
    )
    server = Server(config)
    await server.start()
    return server


async def until(condition: Callable[[], object]) -> None:
    """Wait until something is so, which it soon is."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "it does not come true"
        await asyncio.sleep(0.005)
