"""A link over the network: a connection of the binary protocol to the port of a home.

Calls are requests of the method `peer`, and what the home has to tell is pushed under that topic.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from pequod.client.address import address_of
from pequod.client.calls import MAX_REPLY, check_reply, failure_of
from pequod.cluster.links import Lost, Message
from pequod.errors import PequodError, ProtocolError
from pequod.wire import BROKEN, PUSH_ID, packer, reply_unpacker

PEER = "peer"  # method and topic


class Connector:
    """Makes links to homes."""

    def __init__(self, token: str | None = None) -> None:
        """The `token` lets a server in at the others; it is one that may do everything."""
        self._token = token

    async def __call__(
        self, url: str, received: Callable[[Message], None], lost: Callable[[], None]
    ) -> "Connection":
        host, port, tls, token = address_of(url, self._token, None)
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(received, lost), host, port, ssl=tls
        )
        if token is not None:
            try:
                await connection.request("auth", token)
            except BaseException:  # also if it is cancelled
                connection.close()
                raise
        return connection


class Connection(asyncio.Protocol):
    """The caller's end of a link."""

    def __init__(self, received: Callable[[Message], None], lost: Callable[[], None]) -> None:
        self._received = received
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._pack = packer()
        self._unpacker = reply_unpacker(MAX_REPLY)
        self._number = 0
        self.bytes = 0  # that went through it, in both directions
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    def call(self, method: str, *args: Any) -> "asyncio.Future[Any]":
        return self.request(PEER, method, *args)

    def request(self, *request: Any) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._transport is None:
            future.set_exception(Lost("the link is lost"))
            future.exception()  # whoever does not wait for it does not mind
            return future
        self._number += 1
        self._waiting[self._number] = future
        message = self._pack((self._number, *request))
        self.bytes += len(message)
        self._transport.write(message)
        return future

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()  # nothing that is on its way matters any more
        self._end()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        self.bytes += len(data)
        try:
            self._unpacker.feed(data)
            for message in self._unpacker:
                check_reply(message)
                number, error, result = message
                if number == PUSH_ID:
                    self._received(result)
                    if self._transport is None:
                        return
                    continue
                future = self._waiting.pop(number, None)
                if future is None or future.done():
                    continue
                if error is None:
                    future.set_result(result)
                else:
                    future.set_exception(failure_of(message))
        except (*BROKEN, PequodError, ProtocolError):
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        self._transport = None
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(Lost("the link was lost"))
                future.exception()
        self._lost()
