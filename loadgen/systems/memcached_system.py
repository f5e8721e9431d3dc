"""memcached: a string for each timeline, to which clients append.

    f10000001    the followers of user 1, 8 digits each
    p10000001    the posts of user 1, a line each: time, poster, text
    t10000001    the timeline of user 1, in lines of the same form

Each user has all three from the start, if empty, for an append wants something to append to. By
sockets this speaks the meta protocol, whose quiet flag saves the answers of a fan-out but the last.
"""

import asyncio
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from loadgen.servers import ServerProcess, start_memcached
from loadgen.systems.application import Application
from loadgen.systems.base import Missing, System
from loadgen.systems.conversation import Row, SocketConversation, Twip
from loadgen.systems.redis_system import FIRST_USER, NAME_BYTES, user_id

if TYPE_CHECKING:
    from loadgen.twip_world import TwipWorld

INSTALL = "memcached is not on PATH: apt-get install memcached, or brew install memcached"
INSTALL_EMCACHE = "emcache is not installed: pip install 'pequod[bench]'"
SET, APPEND, QUIETLY = b"MS", b"MA", b"MA q"


class MemcachedConversation(Twip, SocketConversation):
    """The meta protocol, by hand."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._data = b""

    def fetch(self, then: Any, key: bytes) -> None:
        self.out.append(b"mg %b v\r\n" % key)
        self.waiting.append(then)

    def append(self, then: Any, key: bytes, data: bytes, mode: bytes = APPEND) -> None:
        self.out.append(b"ms %b %d %b\r\n%b\r\n" % (key, len(data), mode, data))
        self.waiting.append(then)

    def parsed(self, data: bytes) -> Iterator[bytes]:
        """The value of each answer; nothing if there was none."""
        if self._data:
            data = self._data + data
        place = 0
        while (end := data.find(b"\r\n", place)) >= 0:
            kind = data[place : place + 2]
            if kind == b"VA":
                size = int(data[place + 3 : end].split(b" ", 1)[0])
                if len(data) < end + 4 + size:
                    break
                place = end + 4 + size
                yield data[end + 2 : end + 2 + size]
            elif kind in (b"HD", b"EN"):
                place = end + 2
                yield b""
            else:
                raise SystemExit(f"memcached: {data[place : end + 2]!r}")
        self._data = data[place:]

    def read(self, number: int, user: int, since: int) -> None:
        bound = b"%010d" % since

        def filtered(value: bytes) -> None:
            # Lines come as they were appended: a line may be late, or twice if a follow met a post.
            lines = [line for line in value.split(b"\n") if line > bound]
            self.rows += len(lines)
            self.ended.append(number)
            if self.answers is not None:
                self.answers[number] = [_row(line.decode()) for line in sorted(set(lines))]

        self.fetch(filtered, b"t%d" % (user + FIRST_USER))

    def subscribe(self, number: int, user: int, poster: int) -> None:
        self.append(None, b"f%d" % user_id(poster), b"%d" % user_id(user))

        def backfill(posts: bytes) -> None:
            if posts:
                self.append(number, b"t%d" % user_id(user), posts)
            else:
                self.ended.append(number)

        self.fetch(backfill, b"p%d" % user_id(poster))

    def post(self, number: int, poster: int, time: int, text: str) -> None:
        line = f"{time:010}|{user_id(poster)}|{text}\n".encode()
        self.append(None, b"p%d" % user_id(poster), line)

        def fan_out(names: bytes) -> None:
            if not names:
                self.ended.append(number)
                return
            users = [names[at : at + NAME_BYTES] for at in range(0, len(names), NAME_BYTES)]
            last = users.pop()
            if users:
                tail = b" %d %b\r\n%b\r\n" % (len(line), QUIETLY, line)
                self.out.append(b"ms t" + (tail + b"ms t").join(users) + tail)
            self.append(number, b"t" + last, line)

        self.fetch(fan_out, b"f%d" % user_id(poster))

    def finish(self, number: int, reply: bytes) -> None:
        self.ended.append(number)


def _row(line: str) -> Row:
    time, poster, text = line.split("|", 2)
    return Row(int(time), int(poster) - FIRST_USER, text)


class MemcachedApplication(Application):
    """By emcache, in Cython: it gathers reads, and a fan-out waits for no answers."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def open(self) -> None:
        import emcache

        self._emcache = emcache
        self._client = await emcache.create_client(
            [emcache.MemcachedHostAddress("127.0.0.1", self._port)],
            timeout=60.0,
            connection_timeout=60.0,
            autobatching=True,
            max_connections=32,
            min_connections=32,
        )

    async def close(self) -> None:
        await self._client.close()

    async def _value(self, key: bytes) -> bytes:
        item = await self._client.get(key)
        return item.value if item is not None else b""

    async def read(self, user: int, since: int) -> list[bytes]:
        bound = b"%010d" % since
        value = await self._value(b"t%d" % user_id(user))
        return [line for line in value.split(b"\n") if line > bound]

    async def subscribe(self, user: int, poster: int) -> None:
        await self._client.append(b"f%d" % user_id(poster), b"%d" % user_id(user))
        if posts := await self._value(b"p%d" % user_id(poster)):
            await self._client.append(b"t%d" % user_id(user), posts)

    async def post(self, poster: int, time: int, text: str) -> None:
        line = f"{time:010}|{user_id(poster)}|{text}\n".encode()
        await self._client.append(b"p%d" % user_id(poster), line)
        names = await self._value(b"f%d" % user_id(poster))
        append = self._client.append
        await asyncio.gather(
            *(
                append(b"t" + names[at : at + NAME_BYTES], line, noreply=True)
                for at in range(0, len(names), NAME_BYTES)
            )
        )

    def rows(self, reading: Any) -> list[Row]:
        return [_row(line.decode()) for line in sorted(set(reading))]


@dataclass(frozen=True)
class Memcached(System):
    """memcached with one thread, for it has one core."""

    name: str = "memcached"

    def start(self) -> ServerProcess:
        if find_spec("emcache") is None:
            raise Missing(INSTALL_EMCACHE)
        server = start_memcached()
        if server is None:
            raise Missing(INSTALL)
        return server

    def fill(self, server: ServerProcess, world: "TwipWorld") -> None:
        talk = self.converse(server.port)
        asked = 0
        posted: dict[int, list[str]] = {}
        for poster, time, text in world.posts():
            posted.setdefault(poster, []).append(f"{time:010}|{user_id(poster)}|{text}\n")
        for poster, followers in world.followers():
            names = b"".join([b"%d" % user_id(user) for user in followers])
            for key, data in ((b"f", names), (b"p", "".join(posted.get(poster, [])).encode())):
                talk.append(asked, key + b"%d" % user_id(poster), data, SET)
                asked += 1
            talk.settle(asked - 500)
        for user, rows in world.timelines():
            lines = [f"{time:010}|{user_id(poster)}|{text}\n" for time, poster, text in rows]
            talk.append(asked, b"t%d" % user_id(user), "".join(lines).encode(), SET)
            asked += 1
            talk.settle(asked - 500)
        talk.settle(asked)
        talk.close()

    def converse(self, port: int) -> MemcachedConversation:
        return MemcachedConversation(port)

    def application(self, port: int) -> MemcachedApplication:
        return MemcachedApplication(port)

    def version(self) -> str:
        return subprocess.run(["memcached", "-V"], capture_output=True, text=True).stdout.strip()

    @property
    def tuning(self) -> str:
        return (
            "One thread (`-t 1`), 8 GB so that nothing is evicted, items of up to 16 MB. A check "
            "is one read of the whole timeline, which the client filters. A post is an append and "
            "a read of the followers, then an append to each timeline; a follow is an append, a "
            "read of the posts, and an append of them all. Library: emcache, which gathers "
            "the reads of one turn of the event loop; the appends of a fan-out want no answer "
            "(`noreply`). By sockets: the meta protocol, the appends of a fan-out in one write, "
            "quiet but for the last."
        )
