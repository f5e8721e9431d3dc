"""Digests of rows: whether two places hold the same rows, without bringing them together.

The digest of rows in key order is BLAKE2b, 16 bytes, over every 4096 rows in turn: the lengths of
the keys in bytes, the keys, the lengths of the values, the values. Lengths have 32 bits,
little-endian; the top bit tells a value that is bytes. A server takes it from its lists of rows,
the pipeline from columns of Arrow: `pequod/pipeline/files.py`.
"""

import sys
from array import array
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from pequod.keys import Pair

ROWS = 4096
BYTES_FLAG = 1 << 31
SIZE = 16  # bytes of a digest


def new_digest() -> Any:
    return blake2b(digest_size=SIZE)


class RowsDigest:
    """Takes rows in key order, however they are cut into lists.

    >>> one, other = RowsDigest(), RowsDigest()
    >>> one.add([("a", "1"), ("b", b"2")])
    >>> other.add([("a", "1")])
    >>> other.add([("b", b"2")])
    >>> one.hexdigest() == other.hexdigest(), one.rows
    (True, 2)
    """

    def __init__(self) -> None:
        self.rows = 0
        self._hash = new_digest()
        self._waiting: list[Pair] = []

    def add(self, rows: Sequence[Pair]) -> None:
        """Take in more rows, the next ones in key order."""
        self.rows += len(rows)
        waiting = self._waiting
        waiting += rows
        whole = len(waiting) - len(waiting) % ROWS
        for at in range(0, whole, ROWS):
            _add(self._hash, waiting[at : at + ROWS])
        del waiting[:whole]

    def hexdigest(self) -> str:
        """The digest of all rows so far; no more may follow."""
        if self._waiting:
            _add(self._hash, self._waiting)
            self._waiting = []
        digest: str = self._hash.hexdigest()
        return digest


def _add(state: Any, rows: Sequence[Pair]) -> None:
    keys, values = zip(*rows)
    _add_texts(state, keys)
    try:
        _add_texts(state, values)
    except TypeError:  # some of them are bytes
        packed = [v if isinstance(v, bytes) else v.encode() for v in values]
        flags = [BYTES_FLAG if isinstance(v, bytes) else 0 for v in values]
        state.update(lengths_bytes([len(v) | flag for v, flag in zip(packed, flags)]))
        state.update(b"".join(packed))


def _add_texts(state: Any, texts: Sequence[str]) -> None:
    joined = "".join(texts)
    if joined.isascii():
        lengths = list(map(len, texts))
    else:
        lengths = [len(text.encode()) for text in texts]
    state.update(lengths_bytes(lengths))
    state.update(joined.encode())


def lengths_bytes(lengths: Sequence[int]) -> bytes:
    """Lengths as they enter a digest."""
    packed = array("I", lengths)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()
