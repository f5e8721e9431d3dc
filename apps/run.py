"""Runs an app: its options, its joins, its sample world, and the web server."""

import argparse
import logging
import sys
import time
from collections.abc import Awaitable, Callable

from aiohttp import web

from apps.site import Site
from apps.world import World, sample_world
from pequod import AsyncClient, PequodError, prefix

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
    parser.add_argument("--host", default="127.0.0.1", help="default: %(default)s")
    parser.add_argument("--port", type=int, default=port, help="default: %(default)s")
    parser.add_argument("--sample", action="store_true", help="put a sample world if there is none")
    return parser


def run(site: Site, host: str, port: int, install: Install, fill: Fill | None) -> int:
    """Serve until interrupted; the answer is the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")

    async def start(app: web.Application) -> None:
        await install(site.cache)
        if fill is not None and not await site.cache.scan(*prefix(f"{site.name}|filled"), limit=1):
            await fill(site.cache, sample_world(int(time.time())))
            await site.cache.put(f"{site.name}|filled", "1")

    site.app.on_startup.append(start)
    try:
        web.run_app(
            site.app,
            host=host,
            port=port,
            access_log=None,
            shutdown_timeout=1.0,
            print=lambda _: print(f"{site.name} is at http://{host}:{port}", flush=True),
        )
    except PequodError as error:
        print(f"{site.name}: {error}", file=sys.stderr)
        return 3
    except OSError as error:
        print(f"{site.name}: port {port}: {error.strerror}; try --port", file=sys.stderr)
        return 2
    return 0
