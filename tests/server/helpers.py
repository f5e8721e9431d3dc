"""A server and raw connections to it in one event loop, and a few words to speak with them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Self

import msgpack

from pequod.config import ServerConfig
from pequod.server import Server

SECONDS = 20.0  # that anything here may take; a healthy run takes much less
TOKEN = "a-token-of-the-tests"


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[Server]:
    """A server on a free port."""
    async with Server(ServerConfig(**{"port": 0, **settings})) as server:
        yield server


def address_of(server: Server) -> tuple[str, int]:
    host, _, port = server.url.partition("://")[2].rpartition(":")
    return host.strip("[]"), int(port)


def plant(server: Server, name: str, method: Callable[..., Any]) -> None:
    """Let another function answer a method from now on."""
    server.service._methods[name] = method
    server.service._callers.clear()  # and the one that HTTP uses is made at the start
    assert server._http is not None, "the server is not started"
    newcomer = server._access.newcomer
    server._http._anybody = server.service.caller(newcomer) if newcomer else None


def packed(*messages: Any) -> bytes:
    return b"".join(map(msgpack.packb, messages))


class Wire:
    """A connection that speaks, or misspeaks, the binary protocol."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._unpacker = msgpack.Unpacker(use_list=False, max_buffer_size=0)
        self._number = 0

    @classmethod
    async def open(cls, server: Server, tls: Any = None) -> Self:
        name = "localhost" if tls else None
        return cls(
            *await asyncio.open_connection(*address_of(server), ssl=tls, server_hostname=name)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: Any) -> None:
        self.writer.transport.abort()

    def send(self, *messages: Any) -> None:
        self.writer.write(packed(*messages))

    async def dribble(self, data: bytes, size: int = 1) -> None:
        """Send pieces, each in a turn of the loop, as long as the server takes them."""
        for start in range(0, len(data), size):
            if self.writer.transport.is_closing():
                return
            self.writer.write(data[start : start + size])
            await asyncio.sleep(0)

    async def reply(self) -> Any:
        """The next reply."""
        while True:
            for message in self._unpacker:
                return message
            data = await self.reader.read(1 << 16)
            if not data:
                raise EOFError
            self._unpacker.feed(data)

    async def replies(self, number: int) -> list[Any]:
        return [await self.reply() for _ in range(number)]

    async def call(self, method: Any, *args: Any) -> Any:
        """The result of a call, or the code of its error."""
        self._number += 1
        self.send((self._number, method, *args))
        number, error, result = await self.reply()
        assert number == self._number
        return error["code"] if error else result

    async def rest(self) -> bytes:
        """What comes until the server closes the connection."""
        data = b""
        try:
            while found := await self.reader.read(1 << 16):
                data += found
        except ConnectionError:
            pass
        return data

    async def last_replies(self) -> list[Any]:
        self._unpacker.feed(await self.rest())
        return list(self._unpacker)


class Answer(NamedTuple):
    """An HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of the error that it tells."""
        return str(self.json["error"]["code"])


class Web(Wire):
    """A connection that speaks HTTP, byte by byte as the test wants it."""

    def ask(self, verb: str, target: str, body: bytes = b"", **headers: str) -> None:
        """Send a request; underscores in names of headers are hyphens."""
        lines = {
            "Host": "localhost",
            **{name.replace("_", "-"): of for name, of in headers.items()},
        }
        if body or verb == "POST":
            lines.setdefault("Content-Length", str(len(body)))
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self.writer.write(f"{verb} {target} HTTP/1.1\r\n{head}\r\n".encode() + body)

    async def answer(self, verb: str = "GET") -> Answer:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in lines)
        }
        length = 0 if verb == "HEAD" else int(headers.get("content-length", 0))
        return Answer(int(first.split()[1]), headers, await self.reader.readexactly(length))

    async def get(self, target: str, verb: str = "GET", **headers: str) -> Answer:
        self.ask(verb, target, **headers)
        return await self.answer(verb)

    async def rpc(self, said: Any, kind: str = "application/json", **headers: str) -> Answer:
        body = said if isinstance(said, bytes) else json.dumps(said).encode()
        self.ask("POST", "/rpc", body, Content_Type=kind, **headers)
        return await self.answer()


async def until(condition: Callable[[], object]) -> None:
    """Wait until something is so, which it soon is."""
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.005)


def lines_of(caplog: Any) -> list[str]:
    """What the server has logged."""
    return [record.getMessage() for record in caplog.records if record.name == "pequod.server"]
