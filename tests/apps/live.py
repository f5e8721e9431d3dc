"""Both apps over a small world, each on a free port, in a thread with a server of its own."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from typing import Any, NamedTuple
from urllib.parse import urlencode

from aiohttp import web

from apps.newp.app import Newp
from apps.newp.app import fill as fill_newp
from apps.newp.app import install as install_newp
from apps.run import preparation
from apps.site import Site
from apps.twip.app import Twip, fill, install
from tests.live import LiveServer, LoopThread

USERS = 40


@contextmanager
def running(site: Site, loop: LoopThread) -> Iterator[str]:
    """The address of an app while the block lasts."""

    async def start() -> tuple[web.AppRunner, int]:
        runner = web.AppRunner(
            site.app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True
        )
        await runner.setup()
        place = web.TCPSite(runner, "127.0.0.1", 0)
        await place.start()
        return runner, runner.addresses[0][1]

    runner, port = loop.run(start())
    try:
        yield f"127.0.0.1:{port}"
    finally:
        loop.run(runner.cleanup())


class World(NamedTuple):
    """Where everything is."""

    pequod: LiveServer
    twip: str
    newp: str


@contextmanager
def small_world(separate: bool = False) -> Iterator[World]:
    loop = LoopThread()
    with LiveServer() as pequod:
        twip, newp = Twip(pequod.url), Newp(pequod.url, separate=separate)
        loop.run(twip.prepare(preparation("twip", install, fill, USERS)))
        installing = partial(install_newp, separate=separate)
        loop.run(newp.prepare(preparation("newp", installing, fill_newp, USERS)))
        with running(twip, loop) as twip_at, running(newp, loop) as newp_at:
            yield World(pequod, twip_at, newp_at)
    loop.close()


class Page(NamedTuple):
    """An answer, as a visitor sees it."""

    status: int
    text: str
    headers: dict[str, str]


class Visitor:
    """Somebody with a browser that has no scripts."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._cookies: dict[str, str] = {}
        self.token = ""

    def get(self, path: str) -> Page:
        return self._ask("GET", path, None)

    def post(self, path: str, **fields: str) -> Page:
        """Send a form, with the token of the last page unless another is given."""
        return self._ask("POST", path, urlencode({"token": self.token, **fields}))

    def log_in(self, name: str) -> Page:
        self.get("/login")
        return self.post("/login", name=name)

    @property
    def headers(self) -> dict[str, str]:
        return {"Cookie": "; ".join(f"{k}={v}" for k, v in self._cookies.items())}

    def _ask(self, verb: str, path: str, body: str | None) -> Page:
        connection = HTTPConnection(self._address, timeout=10)
        headers = self.headers
        if body is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            connection.request(verb, path, body, headers)
            answer: Any = connection.getresponse()
            page = Page(answer.status, answer.read().decode(), dict(answer.getheaders()))
        finally:
            connection.close()
        if "Set-Cookie" in page.headers:
            name, _, value = page.headers["Set-Cookie"].partition(";")[0].partition("=")
            self._cookies[name] = value
        if found := re.search(r'name="token" value="([0-9a-f]+)"', page.text):
            self.token = found[1]
        if page.status == 303:
            return self.get(page.headers["Location"])
        return page
