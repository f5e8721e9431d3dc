"""Columns of texts of equal length, made by numpy: keys, and words of chance."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pequod.pipeline.chance import Words, words

Bytes = NDArray[np.uint8]

_LETTERS = np.frombuffer(
    b" abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ .,0123456", np.uint8
)
# The digits of 0000 to 9999: looking up four at a time is several times faster than reckoning.
_FOURS = np.array([list(f"{number:04}".encode()) for number in range(10_000)], np.uint8)


def digits(numbers: Any, width: int) -> Bytes:
    """Numbers as decimal digits, a row of bytes for each."""
    rest = np.asarray(numbers).astype(np.int64)
    result = np.empty((len(rest), -(-width // 4) * 4), np.uint8)
    for place in range(result.shape[1] - 4, -1, -4):
        rest, four = np.divmod(rest, 10_000)
        result[:, place : place + 4] = _FOURS[four]
    return result[:, result.shape[1] - width :]


def letters(start: np.uint64 | Words, counters: Any, size: int) -> pa.Array:
    """A text of `size` letters of chance for each counter: hardly any compression helps."""
    streams = words(start, counters)
    eights = -(-size // 8)
    random = words(np.repeat(streams, eights), np.tile(np.arange(eights), len(streams)))
    shown = _LETTERS[random.astype("<u8").view(np.uint8) & 63]
    return joined(len(streams), shown.reshape(len(streams), eights * 8)[:, :size])


def joined(count: int, *parts: bytes | Bytes) -> pa.Array:
    """`count` texts, each made of these parts: bytes for all, or a row of bytes for each.

    >>> joined(2, b"u", digits([7, 12], 3)).to_pylist()
    ['u007', 'u012']
    """
    columns = [np.frombuffer(part, np.uint8) if isinstance(part, bytes) else part for part in parts]
    widths = [column.shape[-1] for column in columns]
    result = np.empty((count, sum(widths)), np.uint8)
    at = 0
    for column, width in zip(columns, widths):
        result[:, at : at + width] = column
        at += width
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(at)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(result))
