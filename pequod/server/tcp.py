"""The port: one for everything. The first byte of a connection says what it speaks.

Whatever a client owes is a deadline: its first request, the rest of one that has begun, to go on
reading. A timer looks at them now and then, so that a request in good order costs no timer.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any

from pequod.backing.base import Database
from pequod.config import ServerConfig
from pequod.server.access import Access
from pequod.server.feeds import Feeds
from pequod.server.loading import Loader
from pequod.server.node import Node
from pequod.server.service import Service
from pequod.server.tls import deliver, secured
from pequod.wire import is_binary, packer

log = logging.getLogger("pequod.server")

REQUEST, READING = "request", "reading"  # what a client may owe: to go on sending, or reading
LEAST_READ = 64 * 1024  # bytes that a slow reader takes in the time of a deadline, to get another

_LOOK_SECONDS = 0.25
_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6}  # seconds; times


class Session(asyncio.Protocol):
    """A connection, whatever it speaks: how it is kept to its deadlines, and how it ends."""

    __slots__ = ("_port", "_stalled", "_transport", "_unread", "_wire")

    def __init__(self, port: "Port") -> None:
        self._port = port
        self._transport: Any = None  # uvloop's are no subclass of asyncio's
        self._wire: Any = None  # the transport below that, if it is TLS
        self._stalled = False  # the client does not read its answers
        self._unread = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self._port.remove(self)
        self._transport = self._wire = None  # breaks the cycle with the transport

    def pause_writing(self) -> None:
        self._stalled = True
        self._unread = self.unread()
        self._expect_reading()

    def resume_writing(self) -> None:
        self._stalled = False
        self._port.relax(self, READING)

    def overdue(self, owed: str, reason: str) -> None:
        """A deadline has passed; a client that reads, if slowly, gets another."""
        if self._stalled:
            if owed == REQUEST:  # we do not read either, before the client does
                self._port.expect(self, REQUEST, self._port.config.request_seconds, reason)
                return
            unread = self.unread()
            if unread + LEAST_READ <= self._unread:
                self._unread = unread
                self._expect_reading()
                return
        self.close(reason)

    def close(self, reason: str) -> None:
        """End it now; the log says why, unless it has said so already."""
        transport = self._transport
        if transport is not None:
            if not transport.is_closing():
                log.warning("closed %s: %s", peer_of(transport), reason)
            transport.abort()

    def drain(self) -> None:
        """End it once the answers on their way are out."""
        if self._transport is not None:
            self._transport.close()

    def unread(self) -> int:
        """The bytes of answers that the client has not read."""
        return sum(one.get_write_buffer_size() for one in (self._transport, self._wire) if one)

    def held(self) -> int:
        """The bytes that are kept for this client: what it has not read, or not sent to its end."""
        return self.unread()

    def _expect_reading(self) -> None:
        reason = "it does not read its answers (stall_seconds)"
        self._port.expect(self, READING, self._port.config.stall_seconds, reason)


class Port:
    """Everything that the connections of a server share."""

    def __init__(
        self,
        service: Service,
        access: Access,
        config: ServerConfig,
        feeds: Feeds,
        loader: Loader,
        database: Database | None = None,
        node: Node | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.service = service
        self.tls = tls
        self.database = database
        self.node = node
        self.loader = loader
        self.access = access
        self.config = config
        self.feeds = feeds
        self.loop = asyncio.get_running_loop()
        self.pack = packer()  # one for all, since a packer keeps the memory of its largest message
        self.open: set[Session] = set()
        self.ready = True  # what /readyz says
        self.draining = False
        self.binary: Callable[[Port], Session] | None = None
        self.http: Callable[[Port], Session] | None = None
        self._deadlines: dict[tuple[Session, str], tuple[float, str]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._full = False

    def expect(self, session: Session, owed: str, seconds: float, reason: str) -> None:
        """Close the session with this reason unless `relax` is called in time."""
        self._deadlines[session, owed] = (self.loop.time() + seconds, reason)
        if self._timer is None:
            self._timer = self.loop.call_later(_LOOK_SECONDS, self._look)

    def relax(self, session: Session, owed: str) -> None:
        self._deadlines.pop((session, owed), None)

    def _relax_all(self, session: Session) -> None:
        for owed in (REQUEST, READING):
            self.relax(session, owed)

    def add(self, session: Session) -> bool:
        """Take a new connection in; False if there are too many, or the server stops."""
        if self.draining:
            return False
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
        self._relax_all(session)
        self.open.discard(session)
        self.open.add(successor)

    def remove(self, session: Session) -> None:
        self._relax_all(session)
        self.open.discard(session)
        self.service.connections = len(self.open)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        now = self.loop.time()
        self._bound({session for session, _ in self._deadlines})
        for (session, owed), (deadline, reason) in list(self._deadlines.items()):
            if deadline <= now and (session, owed) in self._deadlines:
                self.relax(session, owed)
                session.overdue(owed, reason)
        self._timer = self.loop.call_later(_LOOK_SECONDS, self._look) if self._deadlines else None

    def _bound(self, sessions: set[Session]) -> None:
        """Close those that hold most, if all together hold too much; the idle hold nothing."""
        held = {session: session.held() for session in sessions}
        over = sum(held.values()) - self.config.max_pending
        while over > 0:
            session = max(held, key=held.__getitem__)
            over -= held.pop(session)
            session.close("all clients together read or send too slowly (max_pending)")


class Doorman(Session):
    """A connection that has not said anything yet."""

    __slots__ = ("_early", "_greeted")

    def __init__(self, port: Port) -> None:
        super().__init__(port)
        self._greeted = False  # the first byte will be the client's, and not one of TLS
        self._early = b""  # what came before that

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        port = self._port
        if not port.add(self):
            transport.abort()
            return
        # Whatever the system does not take at once counts as not read, also of a last answer.
        transport.set_write_buffer_limits(high=1, low=0)
        _notice_death(transport)
        if port.tls is None:
            self._greet()
        else:
            self._expect("no TLS handshake came (request_seconds)")
            port.loader.start(self._secure(port.tls))
            port.loop.call_soon(port.loop.call_soon, self._deliver)  # when TLS stands

    async def _secure(self, tls: ssl.SSLContext) -> None:
        wire, above = self._transport, None
        if wire is None:
            return
        try:
            above = await secured(wire, self, tls, self._port.config.request_seconds)
        except ssl.SSLError as error:
            log.warning("closed %s: no TLS: %s", peer_of(wire), error.reason or error)
        except OSError:
            pass  # the client has left, or was late
        if above is None or self._transport is None:
            wire.abort()
            self.connection_lost(None)  # nobody else says so before the handshake is done
        else:
            self._wire, self._transport = wire, above
            self._greet()

    def _deliver(self) -> None:
        early, self._early = self._early, b""
        if early and self._transport is not None:
            deliver(self._transport, early)

    def _greet(self) -> None:
        self._greeted = True
        self._expect("no request came (request_seconds)")
        if self._early:
            self.data_received(self._early)

    def _expect(self, reason: str) -> None:
        self._port.expect(self, REQUEST, self._port.config.request_seconds, reason)

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if not self._greeted:
            self._early += data
            return
        make = self._port.binary if is_binary(data) else self._port.http
        assert make is not None, "the port knows no such protocol"
        session = make(self._port)
        session._wire = self._wire
        self._transport = self._wire = None
        self._port.replace(self, session)
        transport.set_protocol(session)
        session.connection_made(transport)
        session.data_received(data)


def peer_of(transport: asyncio.BaseTransport) -> str:
    """The other end of a connection, for the log."""
    peer = transport.get_extra_info("peername")
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) and len(peer) > 1 else "a client"


def _notice_death(transport: asyncio.BaseTransport) -> None:
    """Let the system find out that the other machine is gone, though it never said so."""
    connection = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # not everywhere
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
