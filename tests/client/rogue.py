"""A server that misbehaves: it does with each connection what it is told."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self


class RogueServer:
    """Accepts connections and hands each to `behave`, in a thread, until the block ends."""

    def __init__(self, behave: Callable[[socket.socket], None]) -> None:
        self._behave = behave
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"pequod://127.0.0.1:{self._listener.getsockname()[1]}"
        self.accepted = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            self._open.append(one)
            threading.Thread(target=self._run, args=(one,), daemon=True).start()

    def _run(self, one: socket.socket) -> None:
        with suppress(OSError):
            self._behave(one)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()
        for one in self._open:
            one.close()


def silent(one: socket.socket) -> None:
    """Reads and never answers."""
    while one.recv(1 << 16):
        pass


def closing(one: socket.socket) -> None:
    """Reads one request and hangs up."""
    one.recv(1 << 16)
    one.close()


def speaks_http(one: socket.socket) -> None:
    """Takes us for a browser."""
    one.recv(1 << 16)
    one.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def babbling(one: socket.socket) -> None:
    """Sends a message that is no reply."""
    one.recv(1 << 16)
    one.sendall(b"\x93\x01\x02\x93\x01\x02\x03")
