"""Runs an app: its options, its joins, its sample world, and the web server."""

import argparse
import logging
import ssl
import sys
import time
from collections.abc import Awaitable, Callable

from aiohttp import web

from apps.site import Prepare, Site
from apps.world import USERS, World, sample_world
from pequod import AsyncClient, PequodError

Install = Callable[[AsyncClient], Awaitable[None]]
Fill = Callable[[AsyncClient, World], Awaitable[None]]


def options(name: str, port: int, about: str) -> argparse.ArgumentParser:
    """The command line that all apps share."""
    parser = argparse.ArgumentParser(
        prog=f"python -m apps.{name}",
        description=about,
        epilog=f"example:\n  pequod serve &\n  python -m apps.{name} --sample",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--pequod", metavar="URL", default="pequod://127.0.0.1:7709", help="default: %(default)s"
    )
    parser.add_argument("--ca", metavar="FILE", help="trust this certificate for pequods://")
    parser.add_argument("--host", default="127.0.0.1", help="default: %(default)s")
    parser.add_argument("--port", type=int, default=port, help="default: %(default)s")
    parser.add_argument("--sample", action="store_true", help="put a sample world if there is none")
    return parser


def tls_of(ca: str | None) -> ssl.SSLContext | None:
    """What to trust, if it is not what the system trusts."""
    try:
        return ssl.create_default_context(cafile=ca) if ca else None
    except OSError as error:
        raise SystemExit(f"--ca: {ca} cannot be used: {error.strerror or error}") from error


def preparation(name: str, install: Install, fill: Fill | None, users: int = USERS) -> Prepare:
    """What an app puts into an empty cache, and a row that says so."""

    async def prepare(cache: AsyncClient) -> None:
        await install(cache)
        if fill is not None and await cache.get(f"{name}|ready") is None:
            await fill(cache, sample_world(int(time.time()), users))
        await cache.put(f"{name}|ready", "1")

    return prepare


def run(site: Site, host: str, port: int, install: Install, fill: Fill | None) -> int:
    """Serve until interrupted; the answer is the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")

    async def start(app: web.Application) -> None:
        await site.prepare(preparation(site.name, install, fill))

    site.app.on_startup.append(start)
    try:
        web.run_app(
            site.app,
            host=host,
            port=port,
            access_log=None,
            shutdown_timeout=1.0,
            handler_cancellation=True,  # who has left does not watch a timeline any more
            print=lambda _: print(f"{site.name} is at http://{host}:{port}", flush=True),
        )
    except PequodError as error:
        print(f"{site.name}: {error}", file=sys.stderr)
        return 3
    except OSError as error:
        print(f"{site.name}: port {port}: {error.strerror}; try --port", file=sys.stderr)
        return 2
    return 0
