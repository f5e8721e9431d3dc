"""Shows a value of any shape as a few aligned lines of text.

Records of one shape become a grid, flat things one line, and the rest is set in by level.
"""

import dataclasses
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any


def outline(value: Any, width: int = 88) -> list[str]:
    """The lines that show `value`, each at most `width` wide if words allow.

    >>> stats = {"bytes": 1200, "tables": {"p": {"keys": 3}, "s": {"keys": 12}}}
    >>> print(*outline(stats), sep="\\n")
    bytes   1,200
    tables
         keys
      p     3
      s    12
    """
    value = plain(value)
    rows = grid(value)
    if rows and max(map(len, rows)) <= width:
        return rows
    if is_flat(value):
        return textwrap.wrap(inline(value), width, break_long_words=False, break_on_hyphens=False)
    if isinstance(value, dict):
        return list(_outline_names(value, width))
    return [line for item in value for line in _behind("- ", outline(item, width - 2))]


def _outline_names(value: dict[str, Any], width: int) -> Iterable[str]:
    names = max(map(len, value))
    for name, item in value.items():
        text = inline(item) if is_flat(item) else ""
        if text and names + 2 + len(text) <= width:
            yield f"{name:<{names}}  {text}"
        else:
            yield name
            yield from _behind("  ", outline(item, width - 2))


def _behind(mark: str, lines: list[str]) -> Iterable[str]:
    for line in lines:
        yield mark + line
        mark = " " * len(mark)


def grid(value: Any) -> list[str]:
    """Aligned rows for a list of tuples, or for records of the same names; else none.

    >>> grid([["t|ann|0000000100|bob", "Hi"], ["t|ann|0000000124|li", "hello"]])
    ['t|ann|0000000100|bob  Hi', 't|ann|0000000124|li   hello']
    """
    table: list[list[Any]]
    match value:
        case dict() if _are_records(list(value.values())):
            records = list(value.values())
            table = [["", *records[0]]]
            table += [[name, *record.values()] for name, record in value.items()]
        case [dict(first), *_] if _are_records(value):
            table = [list(first), *(list(record.values()) for record in value)]
        case [list(first), *_] if all(
            isinstance(row, list) and len(row) == len(first) and is_flat(row) for row in value
        ):
            table = value
        case _:
            return []
    columns = [_aligned(list(column)) for column in zip(*table)]
    return ["  ".join(cells).rstrip() for cells in zip(*columns)]


def _are_records(items: list[Any]) -> bool:
    """True for flat mappings that all have the same names."""
    return bool(items) and all(
        isinstance(item, dict) and item and is_flat(item) and item.keys() == items[0].keys()
        for item in items
    )


def _aligned(column: list[Any]) -> list[str]:
    """The cells of a column in one width, to the right if all below the head are numbers."""
    cells = [cell if isinstance(cell, str) else inline(cell) for cell in column]
    width = max(map(len, cells))
    numbers = all(isinstance(cell, int | float) for cell in column[1:])
    return [cell.rjust(width) if numbers else cell.ljust(width) for cell in cells]


def plain(value: Any) -> Any:
    """The same value made of dicts, lists and single things only."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return value


def is_flat(value: Any) -> bool:
    """True for a single thing, and for collections that fit well into one line.

    >>> is_flat("text"), is_flat({"a": [1, 2], "b": {}}), is_flat([{"a": 1}])
    (True, True, False)
    """
    if not isinstance(value, dict | list):
        return True
    items = value.values() if isinstance(value, dict) else value
    return all(is_flat(item) and not (item and isinstance(item, dict)) for item in items)


def inline(value: Any) -> str:
    """The value on one line.

    >>> inline({"keys": 1200, "fresh": True, "ranges": ["t|ann|", "t|ann}"], "spare": []})
    'keys 1,200, fresh yes, ranges [t|ann|, t|ann}], spare none'
    """
    if value in (None, "", [], {}):
        return "none"
    match value:
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.4g}"
        case dict():
            return ", ".join(f"{name} {inline(item)}" for name, item in value.items())
        case list():
            return f"[{', '.join(map(inline, value))}]"
    return str(value)
