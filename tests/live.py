"""A real server for tests, on a free port, in a thread with an event loop of its own."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from pequod.config import ServerConfig
from pequod.server import Server

Result = TypeVar("Result")

SECONDS = 20.0  # that anything here may take; a healthy run takes milliseconds


class LoopThread:
    """An event loop that runs in a thread, for tests that are not coroutines."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(SECONDS)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(SECONDS)
        self.loop.close()


class LiveServer:
    """A server that listens while the block lasts; it may be stopped and started again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, **settings: Any) -> None:
        self._settings = {"port": 0, **settings}
        self._clock = clock
        self._loop = LoopThread()
        self.start()

    def start(self) -> None:
        """Listen, with an empty cache; after a stop, on the same port."""
        self.server = Server(ServerConfig(**self._settings), clock=self._clock)
        self._loop.run(self.server.start())
        self.url = self.server.url
        self.port = self._settings["port"] = int(self.url.rpartition(":")[2])

    def stop(self) -> None:
        self._loop.run(self.server.stop())

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self._loop.close()


def until(condition: Callable[[], object]) -> None:
    """Wait until something is so, which it soon is."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "it does not come true"
        time.sleep(0.002)
