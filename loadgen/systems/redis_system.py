"""Redis: a sorted set for each timeline, which clients maintain.

    f|10000001   a set: who follows user 1
    p|10000001   a sorted set: the posts of user 1
    t|10000001   a sorted set: the timeline of user 1

A member is `time|poster|text`, its score is the time. Users are numbers of one width, so that Redis
can keep small sets of followers as arrays of integers, and so that the requests of a fan-out are
made by joining bytes.
"""

import asyncio
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from loadgen.servers import ServerProcess, start_redis
from loadgen.systems.application import Application
from loadgen.systems.base import Missing, System, batched
from loadgen.systems.conversation import Row, SocketConversation, Twip

if TYPE_CHECKING:
    from loadgen.twip_world import TwipWorld

INSTALL = "redis-server is not on PATH: apt-get install redis-server, or brew install redis"
INSTALL_HIREDIS = "redis-py with hiredis is not installed: pip install 'pequod[bench]'"
FIRST_USER = 10_000_000
NAME_BYTES = 8
CONNECTIONS = 10_000  # at most; a call of redis-py takes one until it is answered


def user_id(user: int) -> int:
    return FIRST_USER + user


class RedisRequests(SocketConversation):
    """Commands as Redis wants them, replies parsed by hiredis."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        import hiredis

        self._reader = hiredis.Reader()
        self._pack = hiredis.pack_command
        self._error = hiredis.ReplyError

    def ask(self, then: Any, *words: str | bytes | int) -> None:
        self.out.append(self._pack(words))
        self.waiting.append(then)

    def parsed(self, data: bytes) -> Iterator[Any]:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            if reply.__class__ is self._error:
                raise SystemExit(f"redis: {reply}")
            yield reply


class RedisConversation(Twip, RedisRequests):
    """Sorted sets, which the client maintains."""

    def read(self, number: int, user: int, since: int) -> None:
        key, score = b"t|%d" % (user + FIRST_USER), b"%d" % since
        self.out.append(
            b"*4\r\n$13\r\nZRANGEBYSCORE\r\n$10\r\n%b\r\n$%d\r\n%b\r\n$4\r\n+inf\r\n"
            % (key, len(score), score)
        )
        self.waiting.append(number)

    def subscribe(self, number: int, user: int, poster: int) -> None:
        self.ask(None, b"SADD", b"f|%d" % user_id(poster), user_id(user))

        def backfill(posts: list[Any]) -> None:
            if not posts:
                self.ended.append(number)
                return
            scored = [item for member in posts for item in (member[:10], member)]
            self.ask(number, b"ZADD", b"t|%d" % user_id(user), *scored)

        self.ask(backfill, b"ZRANGE", b"p|%d" % user_id(poster), 0, -1)

    def post(self, number: int, poster: int, time: int, text: str) -> None:
        member = f"{time:010}|{user_id(poster)}|{text}".encode()
        self.ask(None, b"ZADD", b"p|%d" % user_id(poster), b"%d" % time, member)

        def fan_out(followers: list[bytes]) -> None:
            if not followers:
                self.ended.append(number)
                return
            self.out.append(zadd_to_each(followers, b"%d" % time, member))
            self.waiting.extend([None] * (len(followers) - 1))
            self.waiting.append(number)

        self.ask(fan_out, b"SMEMBERS", b"f|%d" % user_id(poster))

    def finish(self, number: int, reply: Any) -> None:
        self.ended.append(number)
        if reply.__class__ is list:
            self.rows += len(reply)
            if self.answers is not None:
                self.answers[number] = [_row(member.decode()) for member in reply]


def zadd_to_each(users: list[bytes], score: bytes, member: bytes) -> bytes:
    """One ZADD to the timeline of each of these users."""
    head = b"*4\r\n$4\r\nZADD\r\n$10\r\nt|"
    tail = b"\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(score), score, len(member), member)
    return head + (tail + head).join(users) + tail


def _row(member: str) -> Row:
    time, poster, text = member.split("|", 2)
    return Row(int(time), int(poster) - FIRST_USER, text)


class RedisApplication(Application):
    """By redis-py for asyncio, with hiredis; what can go together goes in a pipeline."""

    def __init__(self, port: int) -> None:
        import redis.asyncio

        self._redis = redis.asyncio.Redis(port=port, max_connections=CONNECTIONS)

    async def open(self) -> None:
        await self._redis.ping()

    async def close(self) -> None:
        await self._redis.aclose()

    async def ask(self, *commands: tuple[Any, ...]) -> list[Any]:
        """The replies to some commands, which leave together."""
        if len(commands) == 1:
            return [await self._redis.execute_command(*commands[0])]
        async with self._redis.pipeline(transaction=False) as pipe:
            for words in commands:
                pipe.execute_command(*words)
            return await pipe.execute()

    async def read(self, user: int, since: int) -> list[bytes]:
        (found,) = await self.ask((b"ZRANGEBYSCORE", b"t|%d" % user_id(user), since, b"+inf"))
        return found

    async def subscribe(self, user: int, poster: int) -> None:
        _, posts = await self.ask(
            (b"SADD", b"f|%d" % user_id(poster), user_id(user)),
            (b"ZRANGE", b"p|%d" % user_id(poster), 0, -1),
        )
        if posts:
            scored = [word for member in posts for word in (member[:10], member)]
            await self.ask((b"ZADD", b"t|%d" % user_id(user), *scored))

    async def post(self, poster: int, time: int, text: str) -> None:
        member = f"{time:010}|{user_id(poster)}|{text}".encode()
        _, followers = await self.ask(
            (b"ZADD", b"p|%d" % user_id(poster), time, member),
            (b"SMEMBERS", b"f|%d" % user_id(poster)),
        )
        if followers:
            await self.ask(*[(b"ZADD", b"t|" + name, time, member) for name in followers])

    def rows(self, reading: Any) -> list[Row]:
        return [_row(member.decode()) for member in reading]


class BatchedRedisApplication(RedisApplication):
    """The same, but what all users ask for in one turn of the event loop leaves in one pipeline.

    redis-py has nothing of the kind; it is what Pequod's client does by itself.
    """

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._gathered: list[tuple[Any, ...]] = []
        self._replies: asyncio.Future[list[Any]] | None = None

    async def ask(self, *commands: tuple[Any, ...]) -> list[Any]:
        if self._replies is None:
            self._replies = asyncio.ensure_future(self._send())
        first = len(self._gathered)
        self._gathered += commands
        replies = await self._replies
        return replies[first : first + len(commands)]

    async def _send(self) -> list[Any]:
        commands, self._gathered, self._replies = self._gathered, [], None
        return await super().ask(*commands)


@dataclass(frozen=True)
class Redis(System):
    """Redis without persistence."""

    name: str = "redis"
    batched: bool = False

    def start(self) -> ServerProcess:
        if not (find_spec("hiredis") and find_spec("redis")):
            raise Missing(INSTALL_HIREDIS)
        server = start_redis()
        if server is None:
            raise Missing(INSTALL)
        return server

    def fill(self, server: ServerProcess, world: "TwipWorld") -> None:
        talk = self.converse(server.port)
        asked = 0
        for poster, followers in world.followers():
            if followers:
                talk.ask(asked, b"SADD", b"f|%d" % user_id(poster), *map(user_id, followers))
                asked += 1
        for poster, time, text in world.posts():
            member = f"{time:010}|{user_id(poster)}|{text}"
            talk.ask(asked, b"ZADD", b"p|%d" % user_id(poster), time, member)
            asked += 1
        for user, rows in world.timelines():
            for some in batched(rows, 1000):
                scored: list[str | int] = []
                for time, poster, text in some:
                    scored += [time, f"{time:010}|{user_id(poster)}|{text}"]
                talk.ask(asked, b"ZADD", b"t|%d" % user_id(user), *scored)
                asked += 1
            if asked - len(talk.ended) > 1000:
                talk.settle(asked - 500)
        talk.settle(asked)
        talk.close()

    def converse(self, port: int) -> RedisConversation:
        return RedisConversation(port)

    def application(self, port: int) -> RedisApplication:
        return (BatchedRedisApplication if self.batched else RedisApplication)(port)

    def version(self) -> str:
        told = subprocess.run(["redis-server", "--version"], capture_output=True, text=True)
        return "redis " + told.stdout.partition("v=")[2].partition(" ")[0]

    @property
    def tuning(self) -> str:
        return (
            "No persistence (`--save '' --appendonly no`), else defaults. A check is one "
            "ZRANGEBYSCORE. A post is a ZADD and a SMEMBERS, then one ZADD to each follower's "
            "timeline in one pipeline. A follow is a SADD and a ZRANGE, then one ZADD of all "
            "posts. Library: redis-py for asyncio with hiredis, "
            + (
                "and what all users ask for in one turn of the event loop leaves in one pipeline, "
                "as it does in Pequod's client; redis-py has nothing of the kind, so this is some "
                "lines around it."
                if self.batched
                else "a connection for each call in flight, as it comes."
            )
            + " By sockets: everything pipelined on one connection, hiredis."
        )
