"""TLS on a connection that stands already, so that the port counts and times it from the start.

asyncio's TLS takes in an answer of any size and tells the session of no client that does not read
it: only the transport below knows. `_Below` listens there, and tells the session.
"""

import asyncio
import ssl
from typing import Any

_NEVER = 1 << 30  # bytes; what counts is what waits below


async def secured(
    transport: Any, session: asyncio.BaseProtocol, context: ssl.SSLContext, seconds: float
) -> Any:
    """The transport for a session over TLS; None if the client has left.

    Raises an OSError if the client does not speak TLS. The time is for the port to keep: it ends
    the connection earlier, and knows why.
    """
    loop = asyncio.get_running_loop()
    above = await loop.start_tls(
        transport, session, context, server_side=True, ssl_handshake_timeout=2 * seconds
    )
    if above is None or above.is_closing() or transport.is_closing():
        return None
    above.set_write_buffer_limits(high=_NEVER)
    transport.set_protocol(_Below(transport.get_protocol(), above))
    return above


def deliver(transport: Any, data: bytes) -> None:
    """Give TLS what came before it stood: uvloop reads once before anybody can tell it not to."""
    tls = transport.get_protocol()
    while data:
        buffer = tls.get_buffer(len(data))
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        tls.buffer_updated(size)
        data = data[size:]


class _Below(asyncio.BufferedProtocol):
    """What the transport below TLS tells: all of it to TLS, and what is not read to the session."""

    def __init__(self, tls: Any, above: Any) -> None:
        self._tls = tls
        self._above = above
        self._paused = False
        # Straight to TLS, at no cost.
        self.get_buffer = tls.get_buffer  # type: ignore[method-assign]
        self.buffer_updated = tls.buffer_updated  # type: ignore[method-assign]
        self.eof_received = tls.eof_received  # type: ignore[method-assign]
        self.connection_lost = tls.connection_lost  # type: ignore[method-assign]

    def pause_writing(self) -> None:
        self._paused = True
        self._tls.pause_writing()
        self._above.get_protocol().pause_writing()

    def resume_writing(self) -> None:
        self._paused = False
        self._tls.resume_writing()  # which sends what it has kept back, and may be paused again
        if not self._paused:
            self._above.get_protocol().resume_writing()
