"""Newp's pages: an article with its votes, its comments and their authors' karma by one scan."""

import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from apps.newp import JOINS, SEPARATE_JOINS
from apps.site import VISIT, Site, Visit
from apps.texts import NAME, Mistake, known_name, valid_text
from apps.world import World
from pequod import AsyncClient, prefix

MAX_TITLE = 120
MAX_TEXT = 2000
SHOWN = 30
MAX_ROWS = 3 * SHOWN  # an article has up to three on the front page
NUMBER = re.compile(r"[0-9]{10}")

PAGES = Path(__file__).parent / "pages"


@dataclass
class Comment:
    """A comment, and the karma of its author."""

    time: str
    commenter: str
    text: str
    karma: str = "0"


@dataclass
class Article:
    """An article as far as a page shows it."""

    author: str
    id: str
    title: str = ""
    body: str = ""
    votes: str = "0"
    comments: list[Comment] = field(default_factory=list)
    comment_count: str = "0"

    def tell(self, value: str) -> None:
        """Take the title and what comes below it from the row of the article."""
        self.title, _, self.body = value.partition("\n")

    @property
    def host(self) -> str:
        """The host that the article links to; none if it has a text instead."""
        try:
            parts = urlsplit(self.body)
            is_link = parts.scheme in ("http", "https") and len(self.body.split()) == 1
            return (parts.hostname or "") if is_link else ""
        except ValueError:  # of a host that is none
            return ""

    @property
    def path(self) -> str:
        return f"/article/{self.author}/{self.id}"


class Newp(Site):
    """The web application; `separate` reads a page piece by piece, for comparison."""

    def __init__(
        self,
        pequod: str,
        secret: str | None = None,
        separate: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__("newp", PAGES, pequod, secret, tls)
        self._read = self._separately if separate else self._at_once
        self.app.add_routes(
            [
                web.get("/", self.front),
                web.get("/submit", self.submit_page),
                web.get("/article/{author}/{id}", self.article),
                web.get("/user/{name}", self.user),
                web.post("/submit", self.submit),
                web.post("/vote", self.vote),
                web.post("/comment", self.comment),
            ]
        )

    # Reading.

    async def front(self, request: web.Request) -> web.StreamResponse:
        first, last = prefix("front|")
        number, _, author = request.query.get("before", "").partition("-")
        if NUMBER.fullmatch(number) and NAME.fullmatch(author):
            last = f"front|{number}|{author}|"
        rows = await request[VISIT].scan(first, last, limit=MAX_ROWS, reverse=True)
        articles = front_articles(rows)
        has_more = len(rows) == MAX_ROWS or len(articles) > SHOWN
        return self.page(request, "front.html", articles=articles[:SHOWN], has_more=has_more)

    async def article(self, request: web.Request) -> web.StreamResponse:
        found = await self._read(request[VISIT], named_article(request.match_info))
        if not found.title:
            raise Mistake("There is no such article.", 404)
        return self.page(request, "article.html", article=found, longest=MAX_TEXT)

    async def _at_once(self, visit: Visit, article: Article) -> Article:
        """All of the page by one scan; the letter after the id says what a row is."""
        rows = await visit.scan(*prefix(f"page|{article.author}|{article.id}|"))
        karma = {}
        for key, value in rows:
            kind, *rest = key.split("|")[3:]
            if kind == "a":
                article.tell(value)
            elif kind == "r":
                article.votes = value
            elif kind == "c":
                article.comments.append(Comment(*rest, value))
            else:
                karma[tuple(rest)] = value
        for comment in article.comments:
            comment.karma = karma.get((comment.time, comment.commenter), "0")
        return article

    async def _separately(self, visit: Visit, article: Article) -> Article:
        """The same without interleaved joins: a read for each piece."""
        name = f"{article.author}|{article.id}"
        article.tell(await visit.get(f"article|{name}") or "")
        article.votes = await visit.get(f"rank|{name}") or "0"
        for key, text in await visit.scan(*prefix(f"comment|{name}|")):
            stamp, commenter = key.split("|")[3:]
            karma = await visit.get(f"karma|{commenter}") or "0"
            article.comments.append(Comment(stamp, commenter, text, karma))
        return article

    async def user(self, request: web.Request) -> web.StreamResponse:
        visit, name = request[VISIT], known_name(request.match_info["name"])
        if await visit.get(f"u|{name}") is None:
            raise Mistake(f"There is no user {name[:30]}.", 404)
        rows = await visit.scan(*prefix(f"article|{name}|"), limit=SHOWN, reverse=True)
        articles = []
        for key, value in rows:
            articles.append(Article(name, key.split("|")[2]))
            articles[-1].tell(value)
        karma = await visit.get(f"karma|{name}") or "0"
        return self.page(request, "user.html", name=name, articles=articles, karma=karma)

    # Writing.

    async def submit_page(self, request: web.Request) -> web.StreamResponse:
        request[VISIT].needs_user("/submit")
        return self.page(request, "submit.html", longest_title=MAX_TITLE, longest=MAX_TEXT)

    async def submit(self, request: web.Request) -> web.StreamResponse:
        user, form = request[VISIT].needs_user(), await self.form(request)
        title = valid_text(" ".join(form.get("title", "").split()), MAX_TITLE, "A title")
        body = form.get("body", "").strip()
        value = f"{title}\n{valid_text(body, MAX_TEXT, 'A text')}" if body else title
        stamp = await self.free_stamp(f"article|{user}|")
        await self.cache.put(f"article|{user}|{stamp}", value)
        raise web.HTTPSeeOther(f"/article/{user}/{stamp}")

    async def vote(self, request: web.Request) -> web.StreamResponse:
        form = await self.form(request)
        article = await self._existing(form)
        user = request[VISIT].needs_user(article.path)
        await self.cache.put(f"vote|{article.author}|{article.id}|{user}", "1")
        raise web.HTTPSeeOther(article.path if form.get("back") == "article" else "/")

    async def comment(self, request: web.Request) -> web.StreamResponse:
        user, form = request[VISIT].needs_user(), await self.form(request)
        text = valid_text(form.get("text", ""), MAX_TEXT, "A comment")
        article = await self._existing(form)
        start = f"comment|{article.author}|{article.id}|"
        stamp = await self.free_stamp(start, f"|{user}")
        await self.cache.put(f"{start}{stamp}|{user}", text)
        raise web.HTTPSeeOther(article.path)

    async def _existing(self, form: Mapping[str, str]) -> Article:
        article = named_article(form)
        if await self.cache.get(f"article|{article.author}|{article.id}") is None:
            raise Mistake("There is no such article.", 404)
        return article


def named_article(names: Mapping[str, str]) -> Article:
    """The article that an address or a form names, which may exist, or a `Mistake`."""
    author, number = names.get("author", ""), names.get("id", "")
    if not NAME.fullmatch(author) or not NUMBER.fullmatch(number):
        raise Mistake("There is no such article.", 404)
    return Article(author, number)


def front_articles(rows: list[tuple[str, Any]]) -> list[Article]:
    """The articles of rows of the front page, in their order."""
    found: dict[tuple[str, str], Article] = {}
    for key, value in rows:
        _, number, author, kind = key.split("|")
        article = found.setdefault((number, author), Article(author, number))
        if kind == "a":
            article.tell(value)
        elif kind == "r":
            article.votes = value
        else:
            article.comment_count = value
    return [article for article in found.values() if article.title]


async def install(cache: AsyncClient, separate: bool = False) -> None:
    """Install Newp's joins; they may be there already."""
    await cache.add_join(SEPARATE_JOINS if separate else JOINS)


async def fill(cache: AsyncClient, world: World) -> None:
    """Put a sample world."""
    await cache.put_many(list(_rows(world)))


def _rows(world: World) -> Iterator[tuple[str, str]]:
    for user in world.users:
        yield f"u|{user}", user
    for author, number, title in world.articles:
        words = re.findall("[a-z0-9]+", title.lower())
        link = "" if title.startswith("Ask") else f"\nhttps://{author}.example/{'-'.join(words)}"
        yield f"article|{author}|{number:010}", f"{title}{link}"
    for author, number, stamp, commenter, text in world.comments:
        yield f"comment|{author}|{number:010}|{stamp:010}|{commenter}", text
    for author, number, voter in sorted(world.votes):
        yield f"vote|{author}|{number:010}|{voter}", "1"
