"""Pequod with its timeline join, and Pequod as a plain store whose clients keep the timelines."""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import msgpack

from loadgen.servers import ServerProcess, start_pequod
from loadgen.systems.application import Application
from loadgen.systems.base import System, batched
from loadgen.systems.conversation import TIMEOUT_SECONDS, Row, SocketConversation, Twip
from pequod import AsyncClient, Client

if TYPE_CHECKING:
    from loadgen.twip_world import TwipWorld

# Nine follows come between a hundred reads, so it does not pay to let them wait for each other.
TIMELINE = "t|<user>|<time:10>|<poster> = eager check s|<user>|<poster> copy p|<poster>|<time>;"
PULLED = "t|<user>|<time:10>|<poster> = pull check s|<user>|<poster> copy p|<poster>|<time>;"
FOLLOWS = "1"
BATCH = 5_000  # rows in one request while a server is filled


class PequodRequests(SocketConversation):
    """Requests as msgpack."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._pack = msgpack.Packer().pack
        self._unpacker = msgpack.Unpacker(use_list=False, max_buffer_size=1 << 30)
        self._number = 0
        self.ask(None, "get", "hello")  # a server closes connections that say nothing for long
        while self.waiting:
            self.flush()
            self.wait(TIMEOUT_SECONDS)

    def ask(self, then: Any, method: str, *arguments: object) -> None:
        self._number = number = self._number + 1
        self.out.append(self._pack((number, method, *arguments)))
        self.waiting.append(then)

    def parsed(self, data: bytes) -> Iterator[Any]:
        self._unpacker.feed(data)
        for number, error, result in self._unpacker:
            # A reply may come in any order; this server answers in turn, and so must it stay here.
            if number + len(self.waiting) != self._number + 1 or error is not None:
                raise SystemExit(f"pequod: reply {number} in another order, or an error: {error}")
            yield result


class PequodConversation(Twip, PequodRequests):
    """Scans and puts; the server keeps the timelines."""

    def read(self, number: int, user: int, since: int) -> None:
        self._number = request = self._number + 1
        self.out.append(
            self._pack((request, "scan", f"t|u{user:07}|{since:010}", f"t|u{user:07}}}"))
        )
        self.waiting.append(number)

    def subscribe(self, number: int, user: int, poster: int) -> None:
        self.ask(number, "put", f"s|u{user:07}|u{poster:07}", FOLLOWS)

    def post(self, number: int, poster: int, time: int, text: str) -> None:
        self.ask(number, "put", f"p|u{poster:07}|{time:010}", text)

    def finish(self, number: int, reply: Any) -> None:
        self.ended.append(number)
        if reply:
            self.rows += len(reply)
            if self.answers is not None:
                self.answers[number] = [
                    Row(int(key[11:21]), int(key[23:]), text) for key, text in reply
                ]


class ClientPequodConversation(PequodConversation):
    """No joins: f| holds the followers of a poster, and whoever posts writes all timelines."""

    def __init__(self, port: int, batched: bool) -> None:
        super().__init__(port)
        self._batched = batched

    def write(self, number: int, rows: list[tuple[str, Any]]) -> None:
        """Put rows, and end the operation with the last of them."""
        if not rows:
            self.ended.append(number)
        elif self._batched:
            *most, last = batched(rows, BATCH)
            for some in most:
                self.ask(None, "put_many", some)
            self.ask(number, "put_many", last)
        else:
            for key, value in rows[:-1]:
                self.ask(None, "put", key, value)
            self.ask(number, "put", *rows[-1])

    def subscribe(self, number: int, user: int, poster: int) -> None:
        self.ask(None, "put", f"f|u{poster:07}|u{user:07}", FOLLOWS)
        name, reader = f"u{poster:07}", f"u{user:07}"

        def backfill(posts: Any) -> None:
            self.write(number, [(f"t|{reader}|{key[11:]}|{name}", text) for key, text in posts])

        self.ask(backfill, "scan", f"p|{name}|", f"p|{name}}}")

    def post(self, number: int, poster: int, time: int, text: str) -> None:
        name = f"u{poster:07}"
        self.ask(None, "put", f"p|{name}|{time:010}", text)

        def fan_out(followers: Any) -> None:
            end = f"|{time:010}|{name}"
            self.write(number, [(f"t|{key[11:]}{end}", text) for key, _ in followers])

        self.ask(fan_out, "scan", f"f|{name}|", f"f|{name}}}")


class PequodApplication(Application):
    """By `AsyncClient`, whose calls share a connection and leave together."""

    def __init__(self, port: int) -> None:
        self.client = AsyncClient(f"pequod://127.0.0.1:{port}", timeout=60)

    async def open(self) -> None:
        await self.client.__aenter__()

    async def close(self) -> None:
        await self.client.close()

    async def read(self, user: int, since: int) -> list[Any]:
        return await self.client.scan(f"t|u{user:07}|{since:010}", f"t|u{user:07}}}")

    async def subscribe(self, user: int, poster: int) -> None:
        await self.client.put(f"s|u{user:07}|u{poster:07}", FOLLOWS)

    async def post(self, poster: int, time: int, text: str) -> None:
        await self.client.put(f"p|u{poster:07}|{time:010}", text)

    def rows(self, reading: Any) -> list[Row]:
        return [Row(int(key[11:21]), int(key[23:]), text) for key, text in reading]


class ClientPequodApplication(PequodApplication):
    """The same without joins."""

    def __init__(self, port: int, batched: bool) -> None:
        super().__init__(port)
        self._batched = batched

    async def write(self, rows: list[tuple[str, Any]]) -> None:
        if not self._batched:
            await asyncio.gather(*(self.client.put(key, value) for key, value in rows))
        else:
            await asyncio.gather(*(self.client.put_many(some) for some in batched(rows, BATCH)))

    async def subscribe(self, user: int, poster: int) -> None:
        name, reader = f"u{poster:07}", f"u{user:07}"
        _, posts = await asyncio.gather(
            self.client.put(f"f|{name}|{reader}", FOLLOWS),
            self.client.scan(f"p|{name}|", f"p|{name}}}"),
        )
        await self.write([(f"t|{reader}|{key[11:]}|{name}", text) for key, text in posts])

    async def post(self, poster: int, time: int, text: str) -> None:
        name = f"u{poster:07}"
        _, followers = await asyncio.gather(
            self.client.put(f"p|{name}|{time:010}", text),
            self.client.scan(f"f|{name}|", f"f|{name}}}"),
        )
        end = f"|{time:010}|{name}"
        await self.write([(f"t|{key[11:]}{end}", text) for key, _ in followers])


@dataclass(frozen=True)
class Pequod(System):
    """The timeline join, as in the paper's Figure 1."""

    name: str = "pequod"
    join: str = TIMELINE

    def start(self) -> ServerProcess:
        return start_pequod()

    def fill(self, server: ServerProcess, world: "TwipWorld") -> None:
        with Client(f"pequod://127.0.0.1:{server.port}", timeout=120) as client:
            client.add_join(self.join)
            for pairs in world.pairs():
                put_all(client, pairs)

    def converse(self, port: int) -> PequodConversation:
        return PequodConversation(port)

    def application(self, port: int) -> PequodApplication:
        return PequodApplication(port)

    def version(self) -> str:
        return f"pequod {version('pequod')}"

    @property
    def tuning(self) -> str:
        return (
            f"Default settings and one join, `{self.join}`; it is eager, since follows are few "
            "beside reads. A check is one scan, a post or a follow one put. Library: "
            "`AsyncClient`, one connection for all calls in flight."
        )


@dataclass(frozen=True)
class ClientPequod(System):
    """The same server without joins: a put for each row, as in the paper, or one for all."""

    name: str = "client-pequod"
    batched: bool = False

    def start(self) -> ServerProcess:
        return start_pequod()

    def fill(self, server: ServerProcess, world: "TwipWorld") -> None:
        with Client(f"pequod://127.0.0.1:{server.port}", timeout=120) as client:
            for poster, followers in world.followers():
                put_all(client, [(f"f|u{poster:07}|u{user:07}", FOLLOWS) for user in followers])
            for posts in batched(world.posts(), BATCH):
                rows = [(f"p|u{poster:07}|{time:010}", text) for poster, time, text in posts]
                put_all(client, rows)
            for user, rows_of_user in world.timelines():
                put_all(
                    client,
                    [
                        (f"t|u{user:07}|{time:010}|u{poster:07}", text)
                        for time, poster, text in rows_of_user
                    ],
                )

    def converse(self, port: int) -> ClientPequodConversation:
        return ClientPequodConversation(port, self.batched)

    def application(self, port: int) -> ClientPequodApplication:
        return ClientPequodApplication(port, self.batched)

    def version(self) -> str:
        return f"pequod {version('pequod')}"

    @property
    def tuning(self) -> str:
        return (
            "Default settings and no joins. A post reads the followers and writes all their "
            "timelines; a follow reads the posts and writes them into one, "
            + (
                "by one `put_many`."
                if self.batched
                else "by a `put` for each row, as in the paper."
            )
        )


def put_all(client: Client, pairs: Iterable[tuple[str, Any]]) -> None:
    for batch in batched(pairs, BATCH):
        client.put_many(batch)
