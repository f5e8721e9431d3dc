"""The messages that both ends of a connection share.

A connection carries a stream of msgpack values:

    request   [id, method, argument...]       the id is a positive integer the caller chooses
    reply     [id, error or nil, result]      in any order; an error is a map with code and message
    push      [0, topic, payload]             nobody asked for it

A request contains no maps and no other types than nil, booleans, integers, text and bytes in
arrays. Its first byte tells a msgpack array, so a server can speak HTTP on the same port.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgpack

from pequod.errors import BadRequest, PequodError, ProtocolError

DEFAULT_PORT: Final = 7709
PUSH_ID: Final = 0

# Raised by an unpacker on bytes that are no message; it must not be used again afterwards.
BROKEN: Final = (
    ValueError,  # covers bad formats, bad UTF-8, and what is over a limit
    msgpack.exceptions.UnpackException,
    TypeError,  # an array or a map as a key
    RecursionError,
)

_FIRST_BUFFER = 1 << 14  # bytes; a new unpacker would take a megabyte for each connection
_MAX_READ = 1 << 20  # what may arrive at once on top of a message that is not complete yet

Pack = Callable[[object], bytes]


def is_binary(data: bytes) -> bool:
    """True if a connection that starts so speaks msgpack: its first value is an array.

    >>> is_binary(packer()([1, "get", "k"])), is_binary(b"GET / HTTP/1.1")
    (True, False)
    """
    first = data[0]
    return 0x90 <= first <= 0x9F or first in (0xDC, 0xDD)


def packer() -> Pack:
    """A function that packs a message; it is not for several threads at once."""
    pack: Pack = msgpack.Packer().pack
    return pack


def request_unpacker(max_frame: int) -> Any:
    """Reads requests; arrays are tuples, for an empty list costs 56 bytes and arrives in one.

    It bounds each part of a request; that all of them together stay within the limit is for the
    reader to see, for an unpacker takes an array in piece by piece.
    """
    return msgpack.Unpacker(
        use_list=False,
        max_buffer_size=max_frame + _MAX_READ,
        max_str_len=max_frame,
        max_bin_len=max_frame,
        max_array_len=max_frame,
        read_size=_FIRST_BUFFER,
        **_REFUSALS,
    )


def reply_unpacker(max_frame: int) -> Any:
    """Reads replies; arrays are tuples, as rows are."""
    return msgpack.Unpacker(use_list=False, max_buffer_size=max_frame + _MAX_READ)


def unpack_request(data: bytes) -> object:
    """One request that is not part of a stream."""
    return msgpack.unpackb(data, use_list=False, **_REFUSALS)


def with_lists(value: Any) -> Any:
    """A result as the cache gave it: lists, where an unpacker made tuples.

    >>> with_lists({"ranges": (("t|a", "t|b"),)})
    {'ranges': [['t|a', 't|b']]}
    """
    if isinstance(value, tuple):
        return [with_lists(item) for item in value]
    if isinstance(value, dict):
        return {name: with_lists(item) for name, item in value.items()}
    return value


def error_map(error: PequodError) -> dict[str, Any]:
    """An error as it is sent."""
    return {"code": error.code, "message": str(error), **error.details()}


def error_of(sent: object) -> PequodError:
    """The error that was sent so."""
    if not isinstance(sent, Mapping) or not {"code", "message"} <= sent.keys():
        return ProtocolError(f"an error without code and message: {sent!r:.100}")
    details = {name: item for name, item in sent.items() if name not in ("code", "message")}
    return PequodError.restored(str(sent["code"]), str(sent["message"]), details)


def packed(pack: Pack, message: object) -> bytes:
    """The message as bytes; what cannot be sent is the caller's mistake."""
    try:
        return pack(message)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadRequest(f"this cannot be sent: {error}; values are str or bytes") from error


def packed_array(items: Sequence[bytes]) -> bytes:
    """An array of messages that are packed already.

    >>> packed_array([packer()("a"), packer()("b")]) == packer()(["a", "b"])
    True
    """
    head: bytes = msgpack.Packer().pack_array_header(len(items))
    return head + b"".join(items)


def _refuse_map(pairs: object) -> None:
    raise ValueError("a request contains no maps")


def _refuse_extension(code: int, data: bytes) -> None:
    raise ValueError("a request contains no extension types")


# The lengths refuse all but empty ones before they are read, and time stamps, which have no hook.
_REFUSALS: Final[dict[str, Any]] = {
    "max_map_len": 0,
    "max_ext_len": 0,
    "object_pairs_hook": _refuse_map,
    "ext_hook": _refuse_extension,
}
