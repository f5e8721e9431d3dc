"""What both apps share: sessions, forms that cannot be forged, pages, and what a page cost.

An app is aiohttp on `AsyncClient` and nothing else. Its pages take input from strangers: all text
is escaped by the templates, forms carry a token that only our own pages know, and bodies are short.
A cache that comes back empty is prepared again: the app watches a row that says it was.
"""

import asyncio
import contextlib
import hmac
import logging
import re
import secrets
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from aiohttp import web
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from apps.texts import Mistake, ago, counted, iso, shade, valid_name
from pequod import AsyncClient, PequodError, SourceDown, Unavailable, prefix

log = logging.getLogger("apps")

MAX_BODY = 32 * 1024  # a sign of a text takes up to 12 bytes in a form
MAX_STAMPS = 10_000
TIMEOUT_SECONDS = 2.0  # for the cache; a visitor would rather be told than wait
NAMES_SHOWN = 60  # on the login page
PLACE = re.compile(r"(/[a-z0-9_]{1,40}){1,4}")  # a page of ours; "//host" would lead away
SHARED = Path(__file__).parent / "pages"

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Prepare = Callable[[AsyncClient], Awaitable[None]]


@dataclass
class Cost:
    """One call to the cache that a page was made from."""

    call: str
    rows: int
    microseconds: float
    explain: str


@dataclass
class Visit:
    """One request: who asks, and what the answer has cost so far."""

    site: "Site"
    session: str
    user: str | None
    costs: list[Cost] = field(default_factory=list)

    async def scan(
        self, first: str, last: str, limit: int | None = None, reverse: bool = False
    ) -> Any:
        """The rows of a range; the page tells what it took."""
        rows, microseconds = await self.site.cache.timed("scan", first, last, limit, reverse)
        more = f", limit={limit}" if limit is not None else ""
        more += ", reverse" if reverse else ""
        explain = f"{self.site.console}/?explain={quote(first)}&last={quote(last)}"
        self.costs.append(Cost(f"scan [{first}, {last}){more}", len(rows), microseconds, explain))
        return rows

    async def get(self, key: str) -> Any:
        value, microseconds = await self.site.cache.timed("get", key)
        explain = f"{self.site.console}/?explain={quote(key)}&last={quote(key)}%00"
        self.costs.append(Cost(f"get {key}", int(value is not None), microseconds, explain))
        return value

    @property
    def form_token(self) -> str:
        return self.site.signed(f"form {self.session}")

    def needs_user(self, back: str = "/") -> str:
        """Who asks; a stranger is sent to log in, and from there to `back`."""
        if self.user is None:
            raise web.HTTPSeeOther(login_at(back))
        return self.user


VISIT: web.RequestKey[Visit] = web.RequestKey("visit", Visit)


class Site:
    """A web application over a Pequod server."""

    def __init__(
        self,
        name: str,
        pages: Path,
        pequod: str,
        secret: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.name = name
        self.cache = AsyncClient(pequod, timeout=TIMEOUT_SECONDS, tls=tls)
        self.console = console_of(pequod)
        self._secret = (secret or secrets.token_hex()).encode()
        self._stamps: dict[str, int] = {}  # the last that each kind of row was given
        self._preparing: asyncio.Task[None] | None = None
        self._templates = Environment(
            loader=FileSystemLoader([pages, SHARED]),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "ago": ago,
            "counted": counted,
            "iso": iso,
            "login_at": login_at,
            "shade": shade,
        }
        self.app = web.Application(middlewares=[self._visit], client_max_size=MAX_BODY)
        self.app.router.add_static("/static", SHARED / "static")
        self.app.add_routes(
            [
                web.get("/healthz", self._health),
                web.get("/login", self._login_page),
                web.post("/login", self._login),
                web.post("/logout", self._logout),
            ]
        )
        self.app.on_cleanup.append(self._close)

    # The cache.

    async def prepare(self, prepare: Prepare) -> None:
        """Prepare the cache now, and whenever it comes back empty."""
        await prepare(self.cache)
        self._preparing = asyncio.create_task(self._keep_prepared(prepare))

    async def _keep_prepared(self, prepare: Prepare) -> None:
        while True:
            try:
                async for event in self.cache.watch(*prefix(f"{self.name}|")):
                    if not event.rows and event.kind in ("init", "remove"):
                        await prepare(self.cache)
            except PequodError as error:
                log.warning("%s: the cache is down: %s", self.name, error)
                await asyncio.sleep(0.5)

    async def free_stamp(self, table: str, rest: str = "") -> str:
        """The time now for a new key, or the next second that is free: a row of a second is one.

        Requests at the same time get different ones; this process is the only one that writes.
        """
        kind = f"{table}{rest}"
        while True:
            stamp = max(int(time.time()), self._stamps.get(kind, 0) + 1)
            self._stamps.pop(kind, None)  # the oldest come first
            self._stamps[kind] = stamp
            while len(self._stamps) > MAX_STAMPS:
                del self._stamps[next(iter(self._stamps))]
            if await self.cache.get(f"{table}{stamp:010}{rest}") is None:
                return f"{stamp:010}"

    def signed(self, text: str) -> str:
        return hmac.new(self._secret, text.encode(), "sha256").hexdigest()

    # Pages.

    def page(
        self, request: web.Request, template: str, status: int = 200, **values: Any
    ) -> web.Response:
        visit = request[VISIT]
        text = self.render(template, visit=visit, request=request, **values)
        return web.Response(text=text, status=status, content_type="text/html", headers=HEADERS)

    def render(self, template: str, **values: Any) -> str:
        return self._templates.get_template(template).render(site=self.name, **values)

    async def form(self, request: web.Request) -> Mapping[str, str]:
        """The fields of a form that one of our pages sent."""
        try:
            fields = await request.post()
        except (ValueError, LookupError, RuntimeError, AssertionError) as error:
            raise Mistake("This is no form that can be read.") from error
        found = {name: value for name, value in fields.items() if isinstance(value, str)}
        token = found.get("token", "")
        if not hmac.compare_digest(token.encode(), request[VISIT].form_token.encode()):
            raise Mistake("This form is out of date. Go back, reload the page, and try again.", 403)
        return found

    async def _sent(self, request: web.Request) -> Mapping[str, str]:
        """What came in a form of ours, so that nobody has to write it again."""
        with contextlib.suppress(Mistake):
            return await self.form(request) if request.method == "POST" else {}
        return {}

    # Sessions.

    @web.middleware
    async def _visit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        session, user = self._session(request.cookies.get(f"{self.name}_session", ""))
        is_new = session is None
        visit = request[VISIT] = Visit(self, session or secrets.token_hex(16), user)
        try:
            response = await handler(request)
        except web.HTTPException as error:
            if error.status < 400:
                location = {"Location": error.headers["Location"]}
                response = web.Response(status=error.status, headers=location)
            else:
                response = self._mistake(request, Mistake(_plain(error), error.status))
        except Mistake as mistake:
            response = self._mistake(request, mistake, await self._sent(request))
        except (Unavailable, SourceDown) as error:
            log.warning("%s: the cache is down: %s", self.name, error)
            response = self.page(request, "down.html", 503, sent=await self._sent(request))
            response.headers["Retry-After"] = "2"
        except ConnectionError:
            raise  # the visitor has left
        except Exception:
            log.exception("%s: %s %r failed", self.name, request.method, request.path)
            response = self._mistake(request, Mistake("Something is wrong here. Sorry.", 500))
        if (is_new or visit.user != user) and not response.prepared:
            self.remember(response, visit)
        return response

    def _mistake(
        self, request: web.Request, mistake: Mistake, sent: Mapping[str, str] | None = None
    ) -> web.Response:
        heading = "Not found" if mistake.status == 404 else "That did not work"
        said = mistake.said
        return self.page(
            request, "mistake.html", mistake.status, heading=heading, said=said, sent=sent
        )

    def remember(self, response: web.StreamResponse, visit: Visit) -> None:
        text = f"{visit.session}.{visit.user or ''}"
        response.set_cookie(
            f"{self.name}_session",
            f"{text}.{self.signed(text)}",
            httponly=True,
            samesite="Lax",
            max_age=30 * 86_400,
        )

    def _session(self, cookie: str) -> tuple[str | None, str | None]:
        text, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self.signed(text).encode()):
            return None, None
        session, _, user = text.partition(".")
        return session, user or None

    async def _login_page(self, request: web.Request) -> web.StreamResponse:
        rows = await request[VISIT].scan(*prefix("u|"), limit=NAMES_SHOWN)
        names = [key.split("|")[1] for key, _ in rows]
        are_all, back = len(names) < NAMES_SHOWN, request.query.get("back", "/")
        return self.page(request, "login.html", names=names, are_all=are_all, back=back)

    async def _login(self, request: web.Request) -> web.StreamResponse:
        form = await self.form(request)
        name, back = valid_name(form.get("name", "")), form.get("back", "/")
        await self.cache.put(f"u|{name}", name)
        request[VISIT].user = name
        raise web.HTTPSeeOther(back if PLACE.fullmatch(back) else "/")

    async def _logout(self, request: web.Request) -> web.StreamResponse:
        await self.form(request)
        request[VISIT].user = None
        raise web.HTTPSeeOther("/")

    async def _health(self, request: web.Request) -> web.Response:
        try:
            await self.cache.count("", "\0")
        except PequodError as error:
            return web.json_response({"status": "the cache is down", "why": str(error)}, status=503)
        return web.json_response({"status": "ok"})

    async def _close(self, app: web.Application) -> None:
        if self._preparing is not None:
            self._preparing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._preparing
        await self.cache.close()


def console_of(pequod: str) -> str:
    """The address of a server's console, without the token that may be in its own.

    >>> console_of("pequod://:secret@127.0.0.1:7709/")
    'http://127.0.0.1:7709'
    """
    scheme, place = urlsplit(pequod)[:2]
    return f"{scheme.replace('pequod', 'http', 1)}://{place.rpartition('@')[2]}"


def login_at(back: str) -> str:
    """Where to log in, to be sent back from there.

    >>> login_at("/user/ann"), login_at("/"), login_at("//example.org/")
    ('/login?back=%2Fuser%2Fann', '/login', '/login')
    """
    return f"/login?{urlencode({'back': back})}" if PLACE.fullmatch(back) else "/login"


def _plain(error: web.HTTPException) -> str:
    known = {
        404: "There is no such page.",
        405: "That cannot be done with this page.",
        413: "That is too long.",
    }
    return known.get(error.status, error.reason)
