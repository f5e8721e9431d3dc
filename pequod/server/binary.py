"""A connection that speaks msgpack: requests in, replies out, in order of arrival.

All requests of one read are served in one loop and answered with one write. The loop stops after
a slice of time or of answers, so that one client cannot starve the others, and stands still
while the client does not read.
"""

import asyncio
import logging
from time import monotonic
from typing import Any

from pequod.errors import OversizedKey, PequodError, ServerFault, Unauthorized
from pequod.server.service import Methods, check_arguments, too_large, unknown_method
from pequod.server.tcp import Port, Session, peer_of
from pequod.wire import BROKEN, Pack, error_map, packer, request_unpacker

log = logging.getLogger("pequod.server")

SLICE_SECONDS = 0.002
SLICE_BYTES = 256 * 1024
STRANGERS_FRAME = 4096  # bytes of a request before a token is shown

_NO_METHODS: Methods = {}


class BinaryConnection(Session):
    """One client."""

    __slots__ = (
        "_busy",
        "_calls",
        "_fed",
        "_limit",
        "_methods",
        "_pack",
        "_partial",
        "_port",
        "_stalled",
        "_transport",
        "_unpacker",
    )

    def __init__(self, port: Port) -> None:
        self._port = port
        self._transport: Any = None
        self._pack: Pack = packer()
        self._methods: Methods = _NO_METHODS
        self._calls = port.service.calls
        self._limit = port.config.max_reply
        self._fed = 0
        self._partial = False  # a request has begun to arrive
        self._busy = False  # requests wait for their turn, or for the client to read
        self._stalled = False  # the client does not read
        self._unpacker = request_unpacker(port.config.max_frame)
        if port.access.newcomer is not None:
            self._methods = port.service.methods_for(port.access.newcomer)

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._fed += len(data)
        try:
            self._unpacker.feed(data)
        except BROKEN:
            self.close("a request over the limit (max_frame)")
            return
        if not self._busy:
            self._serve()

    def pause_writing(self) -> None:
        self._stalled = True
        reason = "it does not read its answers (stall_seconds)"
        self._port.expect(self, self._port.config.stall_seconds, reason)

    def resume_writing(self) -> None:
        self._stalled = False
        self._port.relax(self)
        if self._busy:
            self._serve()

    def connection_lost(self, error: Exception | None) -> None:
        self._port.remove(self)
        self._transport = None  # breaks the cycle with the transport
        self._methods = _NO_METHODS

    # What the port calls.

    def close(self, reason: str) -> None:
        if self._transport is not None:
            log.warning("closed %s: %s", peer_of(self._transport), reason)
            self._transport.abort()

    def drain(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # Serving.

    def _serve(self) -> None:
        """Answer what has arrived, for a slice of time."""
        methods, calls, pack, limit = self._methods, self._calls, self._pack, self._limit
        replies: list[bytes] = []
        size = 0
        more = False
        end = monotonic() + SLICE_SECONDS
        try:
            for message in self._unpacker:
                number, name = message[0], message[1]
                if number.__class__ is not int or number < 1:
                    raise ValueError("a request has a positive integer first")
                try:
                    result = methods[name](*message[2:])
                    calls[name] += 1
                    reply = pack((number, None, result))
                    if len(reply) > limit:
                        raise too_large(limit)
                except PequodError as error:
                    reply = self._refused(number, error)
                    if isinstance(error, OversizedKey):
                        replies.append(reply)
                        self._leave(replies, str(error))
                        return
                except Exception as error:  # noqa: BLE001 -- logged by `_failed`
                    reply = self._failed(number, name, message[2:], error)
                    methods = self._methods  # `auth` comes this way
                replies.append(reply)
                size += len(reply)
                if size > SLICE_BYTES or monotonic() > end:
                    more = True
                    break
        except (*BROKEN, IndexError) as error:
            self._leave(replies, f"not a request: {str(error) or type(error).__name__:.100}")
            return
        if self._transport is None:
            return
        if replies:
            self._transport.write(replies[0] if len(replies) == 1 else b"".join(replies))
        if more:
            self._wait_for_turn()
        else:
            self._wait_for_data()

    def _wait_for_turn(self) -> None:
        if not self._busy:
            self._busy = True
            self._transport.pause_reading()
        if not self._stalled:
            self._port.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        transport = self._transport
        if self._busy and not self._stalled and transport and not transport.is_closing():
            self._serve()

    def _wait_for_data(self) -> None:
        if self._busy:
            self._busy = False
            self._transport.resume_reading()
        if self._unpacker.tell() != self._fed:
            waiting = self._fed - self._unpacker.tell()
            if self._methods is _NO_METHODS and waiting > STRANGERS_FRAME:
                self.close("a long request without a token")
            elif not self._partial:
                self._partial = True
                reason = "a request that does not go on (request_seconds)"
                self._port.expect(self, self._port.config.request_seconds, reason)
        elif self._partial:
            self._partial = False
            if not self._stalled:
                self._port.relax(self)

    def _leave(self, replies: list[bytes], reason: str) -> None:
        """Give the answers so far, and close."""
        if self._transport is not None:
            log.warning("closed %s: %s", peer_of(self._transport), reason)
            self._transport.write(b"".join(replies))
            self._transport.close()

    # Answers that are no results.

    def _refused(self, number: int, error: PequodError) -> bytes:
        self._port.service.errors[error.code] += 1
        return self._pack((number, error_map(error), None))

    def _failed(self, number: int, name: object, args: tuple[Any, ...], error: Exception) -> bytes:
        """The answer to a call that ended in none of our errors."""
        try:
            if name not in self._methods:
                return self._pack((number, None, self._unknown(name, args)))
            if isinstance(error, TypeError):
                check_arguments(str(name), self._methods[str(name)], args)
        except PequodError as refused:
            return self._refused(number, refused)
        log.error("%s failed: %r", name, error, exc_info=error)
        return self._refused(number, ServerFault(f"{name} failed; the server's log says why"))

    def _unknown(self, name: object, args: tuple[Any, ...]) -> Any:
        if name == "auth":
            return self._authenticate(*args[:1])
        if self._methods is _NO_METHODS:
            raise Unauthorized("this server wants a token: give the client one, or PEQUOD_TOKEN")
        raise unknown_method(name)

    def _authenticate(self, token: object = None) -> str:
        principal = self._port.access.principal(token)
        self._methods = self._port.service.methods_for(principal)
        return principal.role
