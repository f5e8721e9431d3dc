"""The messages of PostgreSQL's logical replication: what `pgoutput` (protocol 1) says.

https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from struct import Struct
from typing import NamedTuple

_XLOG = Struct("!qqq")  # start, end, time
_KEEPALIVE = Struct("!qqB")  # end, time, reply wanted
_STATUS = Struct("!cqqqqB")  # 'r', written, flushed, applied, time, reply wanted
_COMMIT = Struct("!Bqqq")  # flags, commit, end, time
_NUMBER, _SHORT, _LENGTH = Struct("!I"), Struct("!H"), Struct("!i")

UNCHANGED = b"\x00unchanged"  # a large value that an update left alone: it is not sent

Tuple = list[str | bytes | None]


class Keepalive(NamedTuple):
    """The server is alive, and has sent everything up to `end`."""

    end: int
    wants_reply: bool


class Relation(NamedTuple):
    """What a table looks like from now on."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[tuple[str, int, bool], ...]  # name, type, part of the replica identity


class Row(NamedTuple):
    """A row that came (`old` is None), changed or went (`new` is None)."""

    oid: int
    old: Tuple | None
    new: Tuple | None


class Truncate(NamedTuple):
    """Tables that are empty now."""

    oids: tuple[int, ...]


class Begin(NamedTuple):
    """The start of a transaction; its number, without the epoch."""

    xid: int


class Commit(NamedTuple):
    """The end of a transaction, at this position."""

    end: int


Message = Keepalive | Relation | Row | Truncate | Begin | Commit | None


def status(position: int, wants_reply: bool = False) -> bytes:
    """What to tell the server: everything up to a position is done with."""
    return _STATUS.pack(b"r", position, position, position, 0, wants_reply)


def parse(data: bytes) -> Message:
    """A message of the stream; None if it says nothing that matters here."""
    kind = data[0]
    if kind == 0x6B:  # k
        end, _, wants = _KEEPALIVE.unpack_from(data, 1)
        return Keepalive(end, bool(wants))
    if kind != 0x77:  # w
        return None
    what = data[25]
    if what == 0x49:  # I
        new, _ = _tuple(data, 31)
        return Row(_oid(data), None, new)
    if what == 0x55:  # U
        old, place = None, 30
        if data[30] != 0x4E:  # N
            old, place = _tuple(data, 31)
        new, _ = _tuple(data, place + 1)
        return Row(_oid(data), old, new)
    if what == 0x44:  # D
        old, _ = _tuple(data, 31)
        return Row(_oid(data), old, None)
    if what == 0x43:  # C
        return Commit(_COMMIT.unpack_from(data, 26)[2])
    if what == 0x42:  # B
        return Begin(_NUMBER.unpack_from(data, 42)[0])
    if what == 0x52:  # R
        return _relation(data)
    if what == 0x54:  # T
        (number,) = _NUMBER.unpack_from(data, 26)
        return Truncate(tuple(_NUMBER.unpack_from(data, 31 + 4 * i)[0] for i in range(number)))
    return None


def _oid(data: bytes) -> int:
    return int(_NUMBER.unpack_from(data, 26)[0])


def _tuple(data: bytes, place: int) -> tuple[Tuple, int]:
    """The cells of a row that begins here, and where it ends."""
    (number,) = _SHORT.unpack_from(data, place)
    place += 2
    cells: Tuple = []
    for _ in range(number):
        kind = data[place]
        place += 1
        if kind == 0x74:  # t
            (length,) = _LENGTH.unpack_from(data, place)
            place += 4
            cells.append(data[place : place + length].decode())
            place += length
        else:
            cells.append(None if kind == 0x6E else UNCHANGED)  # n, u
    return cells, place


def _relation(data: bytes) -> Relation:
    place = 30
    schema, place = _text(data, place)
    name, place = _text(data, place)
    identity = chr(data[place])
    (number,) = _SHORT.unpack_from(data, place + 1)
    place += 3
    columns = []
    for _ in range(number):
        is_identity = bool(data[place] & 1)
        column, place = _text(data, place + 1)
        (kind,) = _NUMBER.unpack_from(data, place)
        place += 8
        columns.append((column, int(kind), is_identity))
    return Relation(_oid(data), schema or "pg_catalog", name, identity, tuple(columns))


def _text(data: bytes, place: int) -> tuple[str, int]:
    end = data.index(0, place)
    return data[place:end].decode(), end + 1


def lsn_text(position: int) -> str:
    """A position as PostgreSQL writes it.

    >>> lsn_text(0x16_B374D848), hex(lsn_number("16/B374D848"))
    ('16/B374D848', '0x16b374d848')
    """
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)
