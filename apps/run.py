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
from pequod import AsyncClient, BadRequest, PequodError

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
    parser.add_argument("--port", type=_port, default=port, help="default: %(default)s")
    parser.add_argument("--sample", action="store_true", help="put a sample world if there is none")
    return parser


def _port(text: str) -> int:
    number = int(text)
    if not 0 <= number < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text} is no port; they go from 0 to 65535")
    return number


def tls_of(ca: str | None) -> ssl.SSLContext | None:
    """What to trust, if it is not what the system trusts."""
    try:
        return ssl.create_default_context(cafile=ca) if ca else None
    except OSError as error:
        raise BadRequest(f"{ca} cannot be used: {error.strerror or error}") from error


def preparation(name: str, install: Install, fill: Fill | None, users: int = USERS) -> Prepare:
    """What an app puts into an empty cache, and a row that says so."""

    async def prepare(cache: AsyncClient) -> None:
        await install(cache)
        if fill is not None and await cache.get(f"{name}|ready") is None:
            await fill(cache, sample_world(int(time.time()), users))
        await cache.put(f"{name}|ready", "1")

    return prepare


def run(make: Callable[..., Site], given: argparse.Namespace, install: Install, fill: Fill) -> int:
    """Make an app and serve it until interrupted; the answer is the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    host, port = given.host, given.port
    try:
        site = make(given.pequod, tls=tls_of(given.ca))
    except BadRequest as error:
        print(error, file=sys.stderr)
        return 2

    async def start(app: web.Application) -> None:
        await site.prepare(preparation(site.name, install, fill if given.sample else None))

    site.app.on_startup.append(start)
    try:
        web.run_app(
            site.app,
            host=host,
            port=port,
            access_log=None,
            shutdown_timeout=0.2,  # pages are quick, and streams do not end by themselves
            handler_cancellation=True,  # who has left does not watch a timeline any more
            print=lambda _: print(f"{site.name} is at http://{host}:{port}", flush=True),
        )
    except PequodError as error:
        print(f"{site.name}: {error}", file=sys.stderr)
        return 3
    except OSError as error:
        print(
            f"{site.name}: {error.strerror or error}; try another --port or --host", file=sys.stderr
        )
        return 2
    return 0
