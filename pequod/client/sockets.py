"""A connection of the blocking client: one socket; one call, or one pipeline, at a time."""

import select
import socket
import time
from collections.abc import Iterator
from typing import Any

from pequod.client.address import Address
from pequod.client.calls import (
    MAX_REPLY,
    MAY_HAVE_HAPPENED,
    check_reply,
    check_sizes,
    closes,
    failure_of,
    lost,
)
from pequod.errors import PequodError, ProtocolError, TimedOut
from pequod.wire import BROKEN, packed, packer, reply_unpacker

_READ_BYTES = 1 << 16
_BURST_BYTES = 1 << 16  # of a pipeline; more, and both sides might wait for each other


class Connection:
    """One socket; one call, or one pipeline, at a time."""

    def __init__(self, address: Address, timeout: float) -> None:
        self.has_answered = False
        self.is_spent = False  # the server closes it
        self._timeout = timeout
        self._pack = packer()
        self._unpacker = reply_unpacker(MAX_REPLY)
        self._number = 0
        self._socket = socket.create_connection((address.host, address.port), timeout)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if address.tls is not None:
                self._socket = address.tls.wrap_socket(self._socket, server_hostname=address.host)
            # TLS sends of itself, so that being readable says nothing there.
            self._poll = None if address.tls else _poll_of(self._socket)
            if address.token is not None:
                reply = self.call("auth", (address.token,))
                if reply[1] is not None:
                    raise failure_of(reply)
        except BaseException:
            self._socket.close()
            raise

    def call(self, method: str, args: tuple[Any, ...]) -> Any:
        """The reply to one call."""
        check_sizes(method, args)
        self._number = number = self._number + 1
        message = packed(self._pack, (number, method, *args))
        end = time.monotonic() + self._timeout
        try:
            self._socket.settimeout(self._timeout)
            self._socket.sendall(message)
            while True:
                for reply in self._unpacker:
                    check_reply(reply)
                    if reply[0] == number:
                        self.is_spent = closes(reply)
                        return reply
                self._receive(end)
        except (OSError, *BROKEN) as error:
            raise self._failure(error, len(message)) from error

    def call_all(self, calls: list[tuple[str, tuple[Any, ...]]]) -> list[Any]:
        """The replies to many calls, in the order of the calls."""
        for method, args in calls:
            check_sizes(method, args)
        base = self._number + 1
        messages = [
            packed(self._pack, (number, method, *args))
            for number, (method, args) in enumerate(calls, base)
        ]
        self._number += len(calls)
        replies: dict[int, Any] = {}
        try:
            for burst in _bursts(messages):
                end = time.monotonic() + self._timeout
                self._socket.settimeout(self._timeout)
                self._socket.sendall(b"".join(burst))
                goal = len(replies) + len(burst)
                while True:
                    for reply in self._unpacker:
                        check_reply(reply)
                        if reply[0] >= base:
                            replies[reply[0]] = reply
                    if len(replies) == goal:
                        break
                    self._receive(end)
        except (OSError, *BROKEN) as error:
            for reply in replies.values():
                if closes(reply):  # that is why
                    self.is_spent = True
                    raise failure_of(reply) from error
            raise self._failure(error, max(map(len, messages))) from error
        return [replies[number] for number in range(base, base + len(calls))]

    def close(self) -> None:
        self._socket.close()

    def is_alive(self) -> bool:
        """False if the server has closed it meanwhile: nothing else comes while nobody asks."""
        return self._poll is None or not self._poll.poll(0)

    def _receive(self, end: float) -> None:
        self._socket.settimeout(max(0.001, end - time.monotonic()))
        data = self._socket.recv(_READ_BYTES)
        if not data:
            raise ConnectionResetError("the server closed it")
        self.has_answered = True
        self._unpacker.feed(data)

    def _failure(self, error: Exception, size: int) -> PequodError:
        if isinstance(error, TimeoutError):
            return TimedOut(f"no answer in {self._timeout:g} seconds; {MAY_HAVE_HAPPENED}")
        if isinstance(error, OSError):
            return lost(error, size)
        return ProtocolError(f"the answer is not Pequod's protocol: {error}")


def _poll_of(one: socket.socket) -> Any:
    """What tells whether there is something to read, where the system has it."""
    if not hasattr(select, "poll"):
        return None
    poll = select.poll()
    poll.register(one, select.POLLIN | select.POLLHUP)
    return poll


def _bursts(messages: list[bytes]) -> Iterator[list[bytes]]:
    """The messages in parts that fit into the buffers between client and server."""
    burst: list[bytes] = []
    size = 0
    for message in messages:
        if burst and size + len(message) > _BURST_BYTES:
            yield burst
            burst, size = [], 0
        burst.append(message)
        size += len(message)
    if burst:
        yield burst
