"""The port: one for everything. The first byte of a connection says what it speaks.

Whatever a client owes is a deadline: its first request, the rest of one that has begun, to go on
reading. A timer looks at them now and then, so that a request in good order costs no timer.
"""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from pequod.config import ServerConfig
from pequod.server.access import Access
from pequod.server.service import Service
from pequod.wire import is_binary

log = logging.getLogger("pequod.server")

_LOOK_SECONDS = 0.25


class Session(asyncio.Protocol):
    """What the port knows of a connection, whatever it speaks."""

    __slots__ = ()

    @abstractmethod
    def close(self, reason: str) -> None:
        """End it now."""

    @abstractmethod
    def drain(self) -> None:
        """End it once the answers on their way are out."""


class Port:
    """Everything that the connections of a server share."""

    def __init__(self, service: Service, access: Access, config: ServerConfig) -> None:
        self.service = service
        self.access = access
        self.config = config
        self.loop = asyncio.get_running_loop()
        self.open: set[Session] = set()
        self.draining = False
        self.binary: Callable[[Port], Session] | None = None
        self.http: Callable[[Port], Session] | None = None
        self._deadlines: dict[Session, tuple[float, str]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._full = False

    def expect(self, session: Session, seconds: float, reason: str) -> None:
        """Close the session with this reason unless `relax` is called in time."""
        self._deadlines[session] = (self.loop.time() + seconds, reason)
        if self._timer is None:
            self._timer = self.loop.call_later(_LOOK_SECONDS, self._look)

    def relax(self, session: Session) -> None:
        self._deadlines.pop(session, None)

    def add(self, session: Session) -> bool:
        """Take a new connection in; False if there are too many."""
        if len(self.open) >= self.config.max_connections:
            if not self._full:
                log.warning("refusing connections: %d are open (max_connections)", len(self.open))
            self._full = True
            return False
        self._full = False
        self.open.add(session)
        self.service.connections = len(self.open)
        return True

    def replace(self, session: Session, successor: Session) -> None:
        """The connection speaks now, so that another session has it."""
        self.relax(session)
        self.open.discard(session)
        self.open.add(successor)

    def remove(self, session: Session) -> None:
        self.relax(session)
        self.open.discard(session)
        self.service.connections = len(self.open)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        now = self.loop.time()
        for session, (deadline, reason) in list(self._deadlines.items()):
            if deadline <= now:
                del self._deadlines[session]
                session.close(reason)
        self._timer = self.loop.call_later(_LOOK_SECONDS, self._look) if self._deadlines else None


class Doorman(Session):
    """A connection that has not said anything yet."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._transport: Any = None  # uvloop's are no subclass of asyncio's

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        if not self._port.add(self):
            transport.abort()
            return
        self._port.expect(self, self._port.config.request_seconds, "no request came")

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        make = self._port.binary if is_binary(data) else self._port.http
        assert make is not None, "the port knows no such protocol"
        session = make(self._port)
        self._transport = None
        transport.set_protocol(session)
        session.connection_made(transport)
        self._port.replace(self, session)
        session.data_received(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._port.remove(self)
        self._transport = None

    def close(self, reason: str) -> None:
        if self._transport is not None:
            log.info("closed %s: %s", peer_of(self._transport), reason)
            self._transport.abort()

    def drain(self) -> None:
        if self._transport is not None:
            self._transport.close()


def peer_of(transport: asyncio.BaseTransport) -> str:
    """The other end of a connection, for the log."""
    peer = transport.get_extra_info("peername")
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) and len(peer) > 1 else "a client"
