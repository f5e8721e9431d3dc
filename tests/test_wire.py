"""The messages that both ends share."""

import msgpack
import pytest

from pequod.errors import (
    BadRequest,
    ComputedKey,
    JoinSyntaxError,
    MissingData,
    PequodError,
    ProtocolError,
)
from pequod.wire import (
    BROKEN,
    error_map,
    error_of,
    is_binary,
    packed,
    packed_array,
    packer,
    reply_unpacker,
    request_unpacker,
    unpack_request,
    with_lists,
)

REFUSED = [
    {"k": "v"},
    {},
    [1, "put_many", {"k": "v"}],
    msgpack.ExtType(1, b"x"),
    msgpack.ExtType(1, b""),
    [1, "get", msgpack.Timestamp(1)],
]


def test_the_first_byte_tells_the_protocol():
    for length in (0, 1, 15, 16, 65_535, 65_536):
        assert is_binary(msgpack.packb([None] * length))
    for other in (None, True, 1, -1, 200, "text", b"bytes", {"k": 1}, 1.5):
        assert not is_binary(msgpack.packb(other))
    for verb in (b"GET", b"POST", b"PRI", b"\r\n", b"\x16\x03\x01"):
        assert not is_binary(verb)


def test_requests_in_pieces():
    requests = [[1, "get", "é"], [2, "put", "k", b"\xff"], [3, "scan", "a", "b", None, True]]
    data = b"".join(map(msgpack.packb, requests))
    for size in range(1, len(data) + 1):
        unpacker = request_unpacker(1024)
        found = []
        for start in range(0, len(data), size):
            unpacker.feed(data[start : start + size])
            found += unpacker
        assert found == [tuple(request) for request in requests]
        assert unpacker.tell() == len(data)


@pytest.mark.parametrize("message", REFUSED)
def test_maps_and_extensions_are_refused(message):
    data = msgpack.packb(message)
    unpacker = request_unpacker(1024)
    unpacker.feed(data)
    with pytest.raises(BROKEN):
        list(unpacker)
    with pytest.raises(BROKEN):
        unpack_request(data)


@pytest.mark.parametrize("data", [b"\xc1", b"\xa1\xff", b"\x91" * 5000, b"\xdd\xff\xff\xff\xff"])
def test_broken_bytes(data):
    unpacker = request_unpacker(1024)
    unpacker.feed(data)
    with pytest.raises(BROKEN):
        list(unpacker)
    with pytest.raises(BROKEN):
        unpack_request(data)


def test_one_request_and_nothing_else():
    assert unpack_request(msgpack.packb(["get", "k"])) == ("get", "k")
    for data in (b"", msgpack.packb(["get", "k"])[:-1], msgpack.packb(["get", "k"]) + b"\x01"):
        with pytest.raises(BROKEN):
            unpack_request(data)


def test_a_part_over_the_limit():
    for part in ("x" * 1025, b"x" * 1025, [None] * 1025):
        unpacker = request_unpacker(1024)
        unpacker.feed(msgpack.packb([1, "get", part]))
        with pytest.raises(BROKEN):
            list(unpacker)


def test_replies():
    unpacker = reply_unpacker(1024)
    unpacker.feed(msgpack.packb([1, None, [["k", "v"]]]) + msgpack.packb([2, {"code": "x"}, None]))
    assert list(unpacker) == [(1, None, (("k", "v"),)), (2, {"code": "x"}, None)]


def test_errors_there_and_back():
    for error in (
        BadRequest("a sentence"),
        ComputedKey("'k' is computed"),
        JoinSyntaxError("line 1", 1, 5),
        MissingData([("a", "b")]),
        PequodError("of an unknown kind"),
    ):
        sent = msgpack.unpackb(msgpack.packb(error_map(error)))
        found = error_of(sent)
        assert type(found) is type(error)
        assert str(found) == str(error)
        assert found.details() == error.details()
    assert type(error_of({"code": "from_the_future", "message": "m"})) is PequodError


@pytest.mark.parametrize("sent", [None, 5, "text", {}, {"code": "x"}, ["code", "message"]])
def test_an_error_that_is_none(sent):
    assert isinstance(error_of(sent), ProtocolError)


@pytest.mark.parametrize("value", [object(), 2**64, {1, 2}, "\ud800", [[object()]]])
def test_what_cannot_be_sent(value):
    pack = packer()
    with pytest.raises(BadRequest, match="this cannot be sent"):
        packed(pack, (1, "put", "k", value))
    assert packed(pack, (1,)) == msgpack.packb([1]), "the packer is as good as before"


def test_arrays_of_what_is_packed():
    for number in (0, 1, 20, 70_000):
        items = list(range(number))
        assert packed_array([packer()(item) for item in items]) == msgpack.packb(items)


def test_lists_again():
    assert with_lists(((1, (2,)), {"a": ({"b": ()},)})) == [[1, [2]], {"a": [{"b": []}]}]
    assert with_lists("text") == "text"
