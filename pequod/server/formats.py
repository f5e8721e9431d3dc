"""What HTTP says: requests and answers in JSON or msgpack, and a status for each kind of error.

JSON has no bytes, so a value of bytes is written {"base64": "..."}, in both directions.
"""

import base64
import binascii
import json
from typing import Any

from pequod.errors import (
    BadRequest,
    ComputedKey,
    Forbidden,
    MissingData,
    PequodError,
    ServerFault,
    SourceDown,
    TimedOut,
    TooLarge,
    Unauthorized,
    UnknownJoin,
    UnknownMethod,
)
from pequod.wire import BROKEN, packed_array, packer, unpack_request

JSON, MSGPACK = "application/json", "application/msgpack"


class NoSuchKey(PequodError):
    """The answer of a plain read that finds nothing."""

    code = "no_such_key"


class UnsupportedType(BadRequest):
    """A body in a format that is not spoken here."""

    code = "unsupported_type"


class NoSuchRoute(PequodError):
    """A path that leads nowhere."""

    code = "no_such_route"


class WrongVerb(BadRequest):
    """A path that does not take this verb."""

    code = "wrong_verb"

    def __init__(self, message: str, allowed: str) -> None:
        super().__init__(message)
        self.allowed = allowed


_STATUS: tuple[tuple[type[PequodError], int], ...] = (
    (TooLarge, 413),
    (ComputedKey, 409),
    (UnknownMethod, 404),
    (UnknownJoin, 404),
    (NoSuchKey, 404),
    (NoSuchRoute, 404),
    (WrongVerb, 405),
    (UnsupportedType, 415),
    (TimedOut, 408),
    (MissingData, 503),
    (SourceDown, 503),
    (Unauthorized, 401),
    (Forbidden, 403),
    (ServerFault, 500),
    (PequodError, 400),
)


def status_of(error: PequodError) -> int:
    """The HTTP status that says what is wrong."""
    return next(status for kind, status in _STATUS if isinstance(error, kind))


def packed(result: Any, kind: str) -> bytes:
    """A result as it is sent."""
    if kind == MSGPACK:
        return packer()(result)
    # A lone surrogate, which only JSON can say, goes out as it came in: escaped. The line feed is
    # for people: in a terminal the prompt is then on a line of its own.
    return (_to_json(result) + "\n").encode("utf-8", "backslashreplace")


def array(items: list[bytes], kind: str) -> bytes:
    """An array of items that are packed already."""
    if kind == MSGPACK:
        return packed_array(items)
    return b"[" + b",".join(item.rstrip() for item in items) + b"]\n"


def _written(value: object) -> dict[str, str]:
    assert isinstance(value, bytes), f"{type(value).__name__} is not a part of any answer"
    return {"base64": base64.b64encode(value).decode()}


_to_json = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, default=_written, separators=(",", ":")
).encode


def parsed(body: bytes, kind: str) -> Any:
    """What a request says."""
    try:
        if kind == MSGPACK:
            return unpack_request(body)
        return json.loads(body.decode("utf-8"), object_hook=_read)
    except (*BROKEN, binascii.Error) as error:
        raise BadRequest(f"the body is no {kind}: {error}") from error


def _read(found: dict[str, Any]) -> Any:
    if found.keys() == {"base64"} and isinstance(found["base64"], str):
        return base64.b64decode(found["base64"], validate=True)
    return found
