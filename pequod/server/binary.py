"""A connection that speaks msgpack: requests in, replies out, in order of arrival.

All requests of one read are served in one loop and answered with one write, or with some if they
are many, so that the two ends work at the same time. The loop stops after a slice of time or of
answers, so that one client cannot starve the others, and stands still while the client does not
read.
"""

import logging
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any

from pequod.cluster.connection import PEER
from pequod.cluster.session import HomeSession
from pequod.engine.requests import checked_range
from pequod.errors import (
    BadRequest,
    Forbidden,
    MissingData,
    OversizedKey,
    PequodError,
    ServerFault,
    Unauthorized,
    Unavailable,
)
from pequod.server.access import ADMIN, Principal
from pequod.server.feeds import Listener
from pequod.server.loading import Later
from pequod.server.node import Node
from pequod.server.service import SLICE_SECONDS, Methods, check_arguments, too_large, unknown_method
from pequod.server.tcp import REQUEST, Port, Session, peer_of
from pequod.wire import BROKEN, PUSH_ID, error_map, request_unpacker

log = logging.getLogger("pequod.server")

SLICE_BYTES = 256 * 1024
ANSWERS_AT_ONCE = 32  # in one write; the client reads them while we are at the next
STRANGERS_FRAME = 4096  # bytes of a request before a token is shown
RENEWAL = 1 << 20  # bytes, after which an unpacker makes room: it keeps that of its largest request

MAX_TOPICS = 10_000  # watched ranges of one connection
MAX_AWAITED = 1000  # calls of one connection that wait for data from elsewhere

_NO_METHODS: Methods = {}
_ABOUT_WATCHING = ("watch", "unwatch")
_NO_REQUEST = "a request is [id, method, argument...] with an id above 0"
_TOO_LONG = "a request over the limit (max_frame)"


class BinaryConnection(Session):
    """One client."""

    __slots__ = (
        "_awaited",
        "_begun",
        "_busy",
        "_caller",
        "_fed",
        "_listeners",
        "_methods",
        "_owes",
        "_peer",
        "_unpacker",
    )

    def __init__(self, port: Port) -> None:
        super().__init__(port)
        newcomer = port.access.newcomer
        self._caller = port.service.caller(newcomer) if newcomer else None
        self._methods = self._caller.methods if self._caller else _NO_METHODS
        self._listeners: dict[int, Listener] | None = None  # by topic, to watched ranges
        self._unpacker = request_unpacker(port.config.max_frame)
        self._fed = 0  # bytes that came
        self._begun = 0  # bytes of them before the first request that is not served
        self._busy = False  # requests wait for their turn, or for the client to read
        self._awaited = 0  # calls that are answered later
        self._peer: HomeSession | None = None  # if it is another server of the cluster
        self._owes: object = None  # what the client has a deadline for, if not for reading

    # What the event loop calls.

    def data_received(self, data: bytes) -> None:
        self._fed += len(data)
        try:
            self._unpacker.feed(data)
        except BROKEN:
            self.close(_TOO_LONG)
            return
        if not self._busy:
            self._serve()

    def resume_writing(self) -> None:
        super().resume_writing()
        for topic, listener in list((self._listeners or {}).items()):
            self._push(topic, listener)
        if self._peer is not None and self._port.node is not None:
            self._port.node.tell_soon()
        if self._busy:
            self._go_on()

    def connection_lost(self, error: Exception | None) -> None:
        for listener in (self._listeners or {}).values():
            listener.leave()
        self._listeners = None
        if self._peer is not None and self._port.node is not None:
            self._port.node.close_session(self._peer)
        super().connection_lost(error)

    # What the port calls.

    def held(self) -> int:
        return super().held() + self._fed - self._begun

    def drain(self) -> None:
        if not self._busy and not self._awaited:  # otherwise it ends when all is answered
            super().drain()

    # Serving.

    def _serve(self) -> None:
        """Answer what has arrived, for a slice of time."""
        port, methods, unpacker = self._port, self._methods, self._unpacker
        calls, pack, tell = port.service.calls, port.pack, unpacker.tell
        limit, longest, begun = port.config.max_reply, port.config.max_frame, self._begun
        replies: list[bytes] = []
        size = 0
        more = False
        end = monotonic() + SLICE_SECONDS
        try:
            for message in unpacker:
                ended = tell()
                if ended - begun > longest:
                    raise ValueError(_TOO_LONG)
                begun = ended
                number, name = message[0], message[1]
                if number.__class__ is not int or number < 1 or message.__class__ is not tuple:
                    raise ValueError(_NO_REQUEST)
                try:
                    result = methods[name](*message[2:])
                    calls[name] += 1
                    reply = pack((number, None, result))
                    if len(reply) > limit:
                        raise too_large(limit)
                except (MissingData, Later) as reason:
                    call = partial(methods[name], *message[2:])
                    reply = self._answered_later(number, name, call, reason)
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
                if len(replies) == ANSWERS_AT_ONCE:
                    self._transport.write(b"".join(replies))
                    replies.clear()
                if size > SLICE_BYTES or monotonic() > end or self._awaited >= MAX_AWAITED:
                    more = True
                    break
        except (IndexError, TypeError):
            self._leave(replies, _NO_REQUEST)
            return
        except BROKEN as error:
            self._leave(replies, f"{str(error) or type(error).__name__:.100}")
            return
        self._begun = begun
        if replies:
            self._transport.write(replies[0] if len(replies) == 1 else b"".join(replies))
        if more or self._stalled:
            self._wait_for_turn()
        else:
            self._wait_for_data()

    def _wait_for_turn(self) -> None:
        """Others come first, or the client reads first."""
        if not self._busy:
            self._busy = True
            self._transport.pause_reading()
        self._owes = None
        self._port.relax(self, REQUEST)
        if not self._stalled and self._awaited < MAX_AWAITED:
            self._port.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        transport = self._transport
        if not self._busy or self._stalled or self._awaited >= MAX_AWAITED:
            return
        if transport and not transport.is_closing():
            self._serve()

    def _wait_for_data(self) -> None:
        """All is answered, but for a request that is not complete."""
        if self._busy:
            self._busy = False
            self._transport.resume_reading()
        if self._port.draining:
            if not self._awaited:
                self._transport.close()
            return
        waiting = self._fed - self._begun
        if self._methods is _NO_METHODS:
            if waiting > STRANGERS_FRAME:
                self.close("a long request without a token")
                return
            self._owe("token", "no token came (request_seconds)")
        elif waiting:
            if waiting > self._port.config.max_frame:
                self.close(_TOO_LONG)
                return
            self._owe(self._begun, "a request that does not go on (request_seconds)")
        else:
            if self._owes is not None:
                self._owes = None
                self._port.relax(self, REQUEST)
            if self._fed > RENEWAL:
                self._unpacker = request_unpacker(self._port.config.max_frame)
                self._fed = self._begun = 0

    def _owe(self, what: object, reason: str) -> None:
        """The deadline counts from when this was first owed."""
        if self._owes != what:
            self._owes = what
            self._port.expect(self, REQUEST, self._port.config.request_seconds, reason)

    def _leave(self, replies: list[bytes], reason: str) -> None:
        """Give the answers so far, and close."""
        self._busy = True  # TLS may hand over what it still has; nobody is served any more
        log.warning("closed %s: %s", peer_of(self._transport), reason)
        self._transport.write(b"".join(replies))
        self._transport.close()

    # Answers that take time.

    def _answered_later(
        self, number: int, name: object, call: Callable[[], Any], reason: MissingData | Later
    ) -> bytes:
        """Answer this call when it can be; nothing goes out now."""
        self._awaited += 1
        self._port.loader.start(self._answer_later(number, name, call, reason))
        return b""

    async def _answer_later(
        self, number: int, name: object, call: Callable[[], Any], reason: MissingData | Later
    ) -> None:
        port = self._port
        try:
            result = await port.loader.finish(call, reason)
            reply = port.pack((number, None, result))
            if len(reply) > port.config.max_reply:
                raise too_large(port.config.max_reply)
            if name in port.service.calls:
                port.service.calls[str(name)] += 1
        except PequodError as error:
            reply = self._refused(number, error)
        except Exception as error:  # noqa: BLE001 -- logged by `_fault`
            reply = self._fault(number, name, error)
        was_full = self._awaited >= MAX_AWAITED
        self._awaited -= 1
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.write(reply)
        if was_full:
            self._go_on()
        if port.draining:
            self.drain()

    # Answers that are no results.

    def _refused(self, number: int, error: PequodError) -> bytes:
        self._port.service.errors[error.code] += 1
        return self._port.pack((number, error_map(error), None))

    def _failed(self, number: int, name: object, args: tuple[Any, ...], error: Exception) -> bytes:
        """The answer to a call that ended in none of our errors."""
        try:
            if name not in self._methods:
                return self._port.pack((number, None, self._unknown(name, args)))
            if isinstance(error, TypeError):
                check_arguments(str(name), self._methods[str(name)], args)
        except (MissingData, Later) as reason:
            return self._answered_later(number, name, partial(self._unknown, name, args), reason)
        except PequodError as refused:
            return self._refused(number, refused)
        return self._fault(number, name, error)

    def _fault(self, number: int, name: object, error: Exception) -> bytes:
        log.error("%s failed: %r", name, error, exc_info=error)
        return self._refused(number, ServerFault(f"{name} failed; the server's log says why"))

    def _unknown(self, name: object, args: tuple[Any, ...]) -> Any:
        if name == "auth":
            return self._authenticate(*args[:1])
        if name in _ABOUT_WATCHING and self._caller is not None:
            method = getattr(self, f"_{name}")
            check_arguments(str(name), method, args)
            return method(*args)
        if name == PEER and self._port.node is not None and self._caller is not None:
            return self._called_by_peer(self._port.node, self._caller.principal, args)
        if self._methods is _NO_METHODS:
            raise Unauthorized("this server wants a token: give the client one, or PEQUOD_TOKEN")
        raise unknown_method(name)

    def _authenticate(self, token: object = None) -> str:
        self._caller = self._port.service.caller(self._port.access.principal(token))
        self._methods = self._caller.methods
        return self._caller.principal.role

    # Other servers of the cluster.

    def _called_by_peer(self, node: Node, principal: Principal, args: tuple[Any, ...]) -> Any:
        if not principal.has_role(ADMIN) or principal.is_confined:
            raise Forbidden("another server of the cluster needs a token that may do everything")
        if self._transport is None:
            raise Unavailable("the other server has left")
        if self._peer is None:
            ahead = self._transport.get_write_buffer_size
            end = partial(self.close, "another server of the cluster, cut off")
            self._peer = node.session(self._tell_peer, ahead, end)
        call = partial(self._peer.call, *args)
        try:
            return call()
        except (MissingData, Later) as reason:
            raise Later(partial(node.finish_base, call, reason)) from None
        except (TypeError, ValueError) as error:
            raise BadRequest(f"{PEER}: {error}") from error

    def _tell_peer(self, message: tuple[object, ...]) -> None:
        if self._transport is not None:
            self._transport.write(self._port.pack((PUSH_ID, PEER, message)))

    # Watched ranges.

    def _watch(self, topic: int, first: str, last: str, seen: str | None = None) -> None:
        """From now on, push what happens in a range under this topic."""
        assert self._caller is not None, "strangers do not get here"
        keys = checked_range(first, last)
        self._caller.principal.check_reach("watch", [keys])
        if self._transport is None:  # it went while data was fetched
            raise Unavailable("the client has left")
        if type(topic) is not int or topic < 1 or not isinstance(seen, str | None):
            raise BadRequest("watch(topic, first, last, seen): topic is a number above 0")
        if self._listeners is None:
            self._listeners = {}
        if topic in self._listeners or len(self._listeners) >= MAX_TOPICS:
            raise BadRequest(f"topic {topic} is taken, or there are {MAX_TOPICS} already")
        push = partial(self._push, topic)
        self._listeners[topic] = self._port.feeds.listen(keys, push, seen)

    def _unwatch(self, topic: int) -> bool:
        listener = (self._listeners or {}).pop(topic, None)
        if listener is not None:
            listener.leave()
        return listener is not None

    def _push(self, topic: int, listener: Listener) -> None:
        """Send what a listener has to tell, unless the client does not read."""
        if not self._stalled and self._transport is not None:
            pack = self._port.pack
            events = [pack((PUSH_ID, topic, event)) for event in listener.take()]
            if events:
                self._transport.write(b"".join(events))
