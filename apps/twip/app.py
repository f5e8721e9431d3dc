"""Twip's pages: a microblog whose timelines Pequod keeps.

The app writes follows and posts, and reads finished timelines with one scan. When somebody posts,
open timelines move by themselves: the browser listens to `/events`, which watches the range.
"""

import contextlib
import json
import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web

from apps.site import HEADERS, VISIT, Site
from apps.texts import NAME, Mistake, known_name, valid_name, valid_text
from apps.twip import JOINS
from apps.world import World
from pequod import AsyncClient, PequodError, prefix

MAX_POST = 280
SHOWN = 40
STAMP = re.compile(r"[0-9]{10}")

PAGES = Path(__file__).parent / "pages"


class Post(NamedTuple):
    """A row of a timeline, or of somebody's posts."""

    poster: str
    time: str
    text: str

    @property
    def anchor(self) -> str:
        return f"{self.time}-{self.poster}"


def timeline_post(row: tuple[str, Any]) -> Post:
    _, _, stamp, poster = row[0].split("|")
    return Post(poster, stamp, row[1])


def own_post(row: tuple[str, Any]) -> Post:
    _, poster, stamp = row[0].split("|")
    return Post(poster, stamp, row[1])


def before_of(request: web.Request) -> Post | None:
    """The post that an address asks for older ones than."""
    stamp, _, poster = request.query.get("before", "").partition("-")
    is_post = STAMP.fullmatch(stamp) and NAME.fullmatch(poster)
    return Post(poster, stamp, "") if is_post else None


class Twip(Site):
    """The web application."""

    def __init__(
        self, pequod: str, secret: str | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__("twip", PAGES, pequod, secret, tls)
        self.app.add_routes(
            [
                web.get("/", self.home),
                web.get("/events", self.events),
                web.get("/celebrities", self.celebrities),
                web.get("/user/{name}", self.profile),
                web.post("/post", self.post),
                web.post("/follow", self.follow),
                web.post("/unfollow", self.unfollow),
            ]
        )

    # Reading.

    async def home(self, request: web.Request) -> web.StreamResponse:
        visit = request[VISIT]
        user = visit.needs_user()
        first, last = prefix(f"t|{user}|")
        before = before_of(request)
        if before is not None:
            last = f"t|{user}|{before.time}|{before.poster}"
        rows = await visit.scan(first, last, limit=SHOWN, reverse=True)
        return self.page(
            request,
            "timeline.html",
            posts=[timeline_post(row) for row in rows],
            has_more=len(rows) == SHOWN,
            is_newest=before is None,
            counts=await self._counts(request, user),
            longest=MAX_POST,
            shown=SHOWN,
        )

    async def profile(self, request: web.Request) -> web.StreamResponse:
        visit, name = request[VISIT], known_name(request.match_info["name"])
        if await visit.get(f"u|{name}") is None:
            raise Mistake(f"There is no user {name[:30]}.", 404)
        table = "cp" if await visit.get(f"c|{name}") else "p"
        first, last = prefix(f"{table}|{name}|")
        before = before_of(request)
        if before is not None:
            last = f"{table}|{name}|{before.time}"
        rows = await visit.scan(first, last, limit=SHOWN, reverse=True)
        followers = await visit.scan(*prefix(f"f|{name}|"), limit=SHOWN)
        follows = visit.user is not None and await visit.get(f"s|{visit.user}|{name}") is not None
        return self.page(
            request,
            "profile.html",
            name=name,
            posts=[own_post(row) for row in rows],
            has_more=len(rows) == SHOWN,
            followers=[key.split("|")[2] for key, _ in followers],
            follows=follows,
            is_celebrity=table == "cp",
            counts=await self._counts(request, name),
        )

    async def celebrities(self, request: web.Request) -> web.StreamResponse:
        visit = request[VISIT]
        names = [key.split("|")[1] for key, _ in await visit.scan(*prefix("c|"))]
        latest = await visit.scan(*prefix("ct|"), limit=SHOWN, reverse=True)
        known = [(name, int(await visit.get(f"followers|{name}") or 0)) for name in names]
        posts = [Post(key.split("|")[2], key.split("|")[1], text) for key, text in latest]
        known.sort(key=lambda one: -one[1])
        return self.page(request, "celebrities.html", celebrities=known, posts=posts)

    async def _counts(self, request: web.Request, user: str) -> dict[str, int]:
        visit = request[VISIT]
        return {
            name: int(await visit.get(f"{name}|{user}") or 0) for name in ("followers", "following")
        }

    async def events(self, request: web.Request) -> web.StreamResponse:
        """The visitor's timeline as it changes, as pieces of the page.

        Only what the page shows is watched, and what comes later.
        """
        first, last = prefix(f"t|{request[VISIT].needs_user()}|")
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        # If the cache is down, the stream ends, and the browser asks again.
        with contextlib.suppress(PequodError, ConnectionError):
            rows = await self.cache.scan(first, last, limit=SHOWN, reverse=True)
            if len(rows) == SHOWN:
                first = rows[-1][0]
            async with contextlib.aclosing(self.cache.watch(first, last)) as events:
                async for event in events:
                    kind, data = self._piece(event)
                    await response.write(f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode())
        return response

    def _piece(self, event: Any) -> tuple[str, Any]:
        if event.kind == "init":
            posts = [timeline_post(row) for row in event.rows[::-1][:SHOWN]]
            return "init", self.render("posts.html", posts=posts)
        _, _, stamp, poster = event.key.split("|")
        if event.kind == "remove":
            return "remove", Post(poster, stamp, "").anchor
        return "update", self.render("posts.html", posts=[Post(poster, stamp, event.value)])

    # Writing.

    async def post(self, request: web.Request) -> web.StreamResponse:
        user = request[VISIT].needs_user()
        text = valid_text((await self.form(request)).get("text", ""), MAX_POST, "A post")
        table = "cp" if await self.cache.get(f"c|{user}") else "p"
        stamp = await self.free_stamp(f"{table}|{user}|")
        await self.cache.put(f"{table}|{user}|{stamp}", text)
        raise web.HTTPSeeOther("/")

    async def follow(self, request: web.Request) -> web.StreamResponse:
        user, name = request[VISIT].needs_user(), await self._somebody(request)
        if user == name:
            raise Mistake("You cannot follow yourself.")
        await self.cache.put(f"s|{user}|{name}", "1")
        raise web.HTTPSeeOther(f"/user/{name}")

    async def unfollow(self, request: web.Request) -> web.StreamResponse:
        user, name = request[VISIT].needs_user(), await self._somebody(request)
        await self.cache.remove(f"s|{user}|{name}")
        raise web.HTTPSeeOther(f"/user/{name}")

    async def _somebody(self, request: web.Request) -> str:
        name = valid_name((await self.form(request)).get("name", ""))
        if await self.cache.get(f"u|{name}") is None:
            raise Mistake(f"There is no user {name}.", 404)
        return name


async def install(cache: AsyncClient) -> None:
    """Install Twip's joins; they may be there already."""
    await cache.add_join(JOINS)


async def fill(cache: AsyncClient, world: World) -> None:
    """Put a sample world."""
    await cache.put_many(list(_rows(world)))


def _rows(world: World) -> Iterator[tuple[str, str]]:
    celebrities = set(world.celebrities)
    for user in world.users:
        yield f"u|{user}", user
    for user in celebrities:
        yield f"c|{user}", "1"
    for user, poster in sorted(world.follows):
        yield f"s|{user}|{poster}", "1"
    for poster, stamp, text in world.posts:
        yield f"{'cp' if poster in celebrities else 'p'}|{poster}|{stamp:010}", text
