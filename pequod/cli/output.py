"""How the command line writes values and tables, as text or as JSON."""

import base64
import json
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from pequod.errors import BadValue
from pequod.keys import Pair, Value

_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_CONTROLS = re.compile(r"[\\\x00-\x1f\x7f-\x9f]")  # none may reach a terminal
_ESCAPED = re.compile(r"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_BYTES_MARK = "\\b"


def write_json(result: Any, file: TextIO | None = None) -> None:
    print(json.dumps(result, default=_base64, ensure_ascii=False), file=file, flush=True)


def _base64(value: object) -> dict[str, str]:
    assert isinstance(value, bytes), f"{type(value).__name__} is part of no answer"
    return {"base64": base64.b64encode(value).decode()}


def write_value(value: Value) -> None:
    """A value as it is, and a line end if it is text."""
    if isinstance(value, bytes):
        sys.stdout.buffer.write(value)
    else:
        print(value)


def row_line(row: Pair) -> str:
    r"""A row as one line, key and value parted by a tab; `row_of` reads it.

    >>> row_line(("k|1", "two\nlines")), row_line(("k|2", b"\xff!"))
    ('k|1\ttwo\\nlines', 'k|2\t\\b\\xff!')
    """
    key, value = row
    if isinstance(value, bytes):
        return f"{_escaped(key)}\t{_BYTES_MARK}{_escaped_bytes(value)}"
    return f"{_escaped(key)}\t{_escaped(value)}"


def row_of(line: str) -> Pair:
    r"""The row of a line, as `row_line` writes it.

    >>> row_of("k|1\ttwo\\nlines"), row_of("k|2\t\\b\\xff!")
    (('k|1', 'two\nlines'), ('k|2', b'\xff!'))
    """
    key, tab, text = line.partition("\t")
    if not tab:
        raise BadValue(f"a line has a key, a tab and a value, and {line!r:.60} has no tab")
    if text.startswith(_BYTES_MARK):
        return _plain(key), _plain(text.removeprefix(_BYTES_MARK)).encode("latin-1")
    return _plain(key), _plain(text)


def range_text(first: str, last: str) -> str:
    r"""A range on one line.

    >>> range_text("t|ann", "t|ann\0")
    '[t|ann, t|ann\\x00)'
    """
    return f"[{_escaped(first)}, {_escaped(last)})"


def _escaped(text: str) -> str:
    """A text without signs that a terminal would obey."""
    return _CONTROLS.sub(lambda found: _ESCAPES.get(found[0]) or f"\\x{ord(found[0]):02x}", text)


def _escaped_bytes(value: bytes) -> str:
    return "".join(
        _escaped(chr(byte)) if 32 <= byte < 127 or byte in b"\t\n\r" else f"\\x{byte:02x}"
        for byte in value
    )


def _plain(text: str) -> str:
    known = {escaped[1]: plain for plain, escaped in _ESCAPES.items()}

    def one(found: re.Match[str]) -> str:
        code = found[1]
        if len(code) == 3:
            return chr(int(code[1:], 16))
        if code not in known:
            raise BadValue(f"{found[0]!r} means nothing; write a backslash as \\\\")
        return known[code]

    return _ESCAPED.sub(one, text)


def write_table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Aligned columns; numbers go to the right."""
    cells = [list(head)] + [[shown(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        aligned = [
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("  ".join(aligned).rstrip())


def shown(cell: object) -> str:
    """A cell of a table.

    >>> shown(1234567), shown("t"), shown(0.25)
    ('1,234,567', 't', '0.25')
    """
    if isinstance(cell, int) and not isinstance(cell, bool):
        return f"{cell:,}"
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def counted(number: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "row"), counted(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size_text(size: float) -> str:
    """A number of bytes for people.

    >>> size_text(999), size_text(2_500_000)
    ('999 B', '2.4 MB')
    """
    units = ["B", "KB", "MB", "GB", "TB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:.0f} B" if units[0] == "B" else f"{size:.1f} {units[0]}"
