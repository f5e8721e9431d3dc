"""The table mapping: which rows of a database are which keys.

    [[table]]
    name  = "posts"
    key   = "p|<poster>|<time:10>"
    value = "tweet"
    mode  = "around"

The slots of a key are columns, of whole numbers or of text. A number in a slot with a width is
padded with zeros, so that keys sort as numbers do. A row that does not fit, because a column is
NULL, empty, has a bar in it or not the width, is no key: it is left out, and counted.
"""

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pequod.errors import BadKey, BadRequest
from pequod.keys import BAR, KeyRange, Value, prefix, successor

AROUND, THROUGH = "around", "through"

# What a column holds, as far as it matters for keys and values.
NUMBER, TEXT, BYTES, TRUTH, DECIMAL, JSON = "number", "text", "bytes", "truth", "decimal", "json"

_PART = re.compile(r"<([^<>|:]*)(?::(\d+))?>|([^<>]+)")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)", re.ASCII)
_SETTINGS = {"name", "key", "value", "mode"}
_MOST = 1 << 63
_TRUTHS: dict[Any, str] = {"t": "true", "f": "false"}

Columns = Mapping[str, str]  # name -> what it holds
Cell = str | bytes | None


class Slot(NamedTuple):
    """A column in a key; what follows it in the key, up to the next slot."""

    column: str
    width: int | None
    after: str


class Bounds(NamedTuple):
    """What a range of keys says of columns: the first ones are equal to these, the next between.

    All rows of the range are within the bounds, and others may be. The keys of all rows that are
    within them begin with `head`.
    """

    equal: tuple[Any, ...]
    head: str
    least: Any = None
    most: Any = None


@dataclass(frozen=True)
class Table:
    """One table of the database, and what its rows are called here."""

    name: str
    text: str
    head: str
    slots: tuple[Slot, ...]
    value: str | tuple[str, ...] | None = None
    mode: str = AROUND
    kinds: Columns = field(default_factory=dict)

    @property
    def keys(self) -> KeyRange:
        """The range in which all keys of the table are."""
        return prefix(self.head)

    @property
    def key_columns(self) -> tuple[str, ...]:
        return tuple(slot.column for slot in self.slots)

    @property
    def value_columns(self) -> tuple[str, ...]:
        if self.value is None:
            return ()
        return (self.value,) if isinstance(self.value, str) else self.value

    @property
    def columns(self) -> tuple[str, ...]:
        """Those of the key, then those of the value."""
        return self.key_columns + self.value_columns

    # From rows to keys and values.

    def key_maker(self, skip: int = 0) -> Callable[..., str | None]:
        """A function from cells of the key's columns to the key; None if they make none.

        The first columns may be skipped: what the key begins with is said instead.
        """
        steps = [
            (place, slot.width, self.kinds[slot.column] == NUMBER, slot.after)
            for place, slot in enumerate(self.slots[skip:])
        ]
        if len(steps) == 1:
            [(_, only_width, is_only_number, behind)] = steps
            if is_only_number and only_width is not None:
                return _number_maker(only_width, behind, self.head)

        def key_of(cells: Sequence[Any], head: str = self.head) -> str | None:
            for place, width, is_number, after in steps:
                cell = cells[place]
                if not cell or cell.__class__ is bytes:
                    return None
                if width is None:
                    if BAR in cell or (after and after in cell):
                        return None
                elif is_number:
                    if len(cell) > width or cell[0] == "-":
                        return None
                    cell = cell.rjust(width, "0")
                elif len(cell) != width or BAR in cell:
                    return None
                head += cell + after
            return head

        return key_of

    def value_maker(self, start: int = 0) -> Callable[[Sequence[Cell]], Value]:
        """A function to the value from cells, of which those of its columns start somewhere."""
        value, kinds = self.value, self.kinds
        if value is None:
            return lambda _: ""
        if isinstance(value, str) and kinds[value] == TRUTH:
            return lambda cells: _TRUTHS.get(cells[start], cells[start]) or ""
        if isinstance(value, str):
            return lambda cells: cells[start] or ""
        columns = [(start + place, name, kinds[name]) for place, name in enumerate(value)]
        return lambda cells: json.dumps(
            {name: _jsonable(cells[place], kind) for place, name, kind in columns},
            ensure_ascii=False,
        )

    # From keys and values to rows.

    def slots_of(self, key: str) -> tuple[Any, ...]:
        """What the columns of a key must hold; raises if no row can have this key."""
        bounds = self.bounds(KeyRange(key, key + "\0"))
        if bounds is None or len(bounds.equal) < len(self.slots):
            raise BadKey(f"{key!r:.100} is no key of table {self.name}, which has {self.text}")
        return bounds.equal

    def cells_of(self, value: Value) -> tuple[Any, ...]:
        """What the value's columns must hold."""
        if self.value is None:
            return ()
        if isinstance(self.value, str):
            is_bytes = self.kinds[self.value] == BYTES
            if is_bytes and isinstance(value, str):
                return (value.encode(),)
            if not is_bytes and isinstance(value, bytes):
                raise BadRequest(f"column {self.value} of {self.name} holds text, not bytes")
            return (value,)
        try:
            found = json.loads(value)
        except ValueError as error:
            raise BadRequest(f"a value of {self.name} is a JSON object: {error}") from error
        if not isinstance(found, dict) or not found.keys() <= set(self.value):
            raise BadRequest(
                f"a value of {self.name} is a JSON object with {', '.join(self.value)}"
            )
        return tuple(_cell(found.get(column), self.kinds[column]) for column in self.value)

    def bounds(self, keys: KeyRange) -> Bounds | None:
        """What a range says of the columns; None if it can have no row of this table."""
        keys = keys.clip(self.keys)
        if not keys:
            return None
        head = self.head
        equal: list[Any] = []
        for slot in self.slots:
            if not keys.first.startswith(head):
                return Bounds(tuple(equal), head)
            found = self._cut(slot, keys.first[len(head) :])
            if found is None:
                return self._between(slot, head, keys, equal)
            end = head + found + slot.after
            is_last = slot is self.slots[-1] and not slot.after
            if keys.last > (end + "\0" if is_last else successor(end)) or (
                is_last and keys.first != end
            ):
                return self._between(slot, head, keys, equal)
            exact = _exact(found, slot, self.kinds[slot.column])
            if exact is None:
                return None
            equal.append(exact)
            head = end
        return Bounds(tuple(equal), head) if keys.first == head else None

    def _cut(self, slot: Slot, rest: str) -> str | None:
        """What a slot holds at the beginning of a text, if all of it is there."""
        if slot.width is not None:
            found = rest[: slot.width]
            whole = len(found) == slot.width and rest[slot.width :].startswith(slot.after)
            return found if whole and BAR not in found else None
        found, after, _ = rest.partition(slot.after) if slot.after else (rest, "", "")
        return found if found and after == slot.after and BAR not in found else None

    def _between(self, slot: Slot, head: str, keys: KeyRange, equal: list[Any]) -> Bounds:
        """Where the next column begins and ends, if its order is that of the keys."""
        kind, width = self.kinds[slot.column], slot.width
        is_last = slot is self.slots[-1] and not slot.after
        least = keys.first[len(head) :] if keys.first.startswith(head) else ""
        most = keys.last[len(head) :] if keys.last.startswith(head) else None
        if width is not None:
            least, most = least[:width], None if most is None else most[:width]
        elif kind == NUMBER or not is_last:
            return Bounds(tuple(equal), head)
        if kind == NUMBER:
            assert width is not None, "those without have no order"
            return Bounds(tuple(equal), head, _padded(least, width, "0"), _padded(most, width, "9"))
        if kind != TEXT:
            return Bounds(tuple(equal), head)
        return Bounds(tuple(equal), head, least or None, most)


def _padded(text: str | None, width: int, digit: str) -> int | None:
    if not text or not (text.isascii() and text.isdigit()):
        return None
    return int(text.ljust(width, digit))


def _exact(text: str, slot: Slot, kind: str) -> Any:
    """What a column must hold for this text in a key; None if nothing gives it."""
    if kind != NUMBER:
        return text if "\0" not in text else None
    if slot.width is not None:
        if not (text.isascii() and text.isdigit()):
            return None
    elif not _NUMBER.fullmatch(text) or text == "-0":
        return None
    number = int(text)
    return number if -_MOST <= number < _MOST else None


def _jsonable(cell: Cell, kind: str) -> Any:
    if cell is None:
        return None
    if isinstance(cell, bytes):
        return cell.hex()
    if kind in (NUMBER, DECIMAL, JSON):
        try:
            return json.loads(cell)
        except ValueError:  # NaN has no place in JSON
            return cell
    if kind == TRUTH:
        return cell in ("t", "true", "1")
    return cell


def _cell(found: Any, kind: str) -> Any:
    if kind == JSON and found is not None:
        return json.dumps(found)
    if kind == BYTES and isinstance(found, str):
        return bytes.fromhex(found)
    if isinstance(found, bool):
        return "true" if found else "false"
    return found if found is None or isinstance(found, str | bytes) else json.dumps(found)


# Reading the file.


def read_tables(path: str) -> list[Table]:
    """The tables of a mapping file."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadRequest(f"tables: cannot read {path}: {reason}") from error
    try:
        return tables_of(text)
    except BadRequest as error:
        raise BadRequest(f"tables: {path}: {error}") from error


def tables_of(text: str) -> list[Table]:
    """The tables of a mapping.

    >>> [one] = tables_of('[[table]]\\nname = "posts"\\nkey = "p|<poster>|<time:10>"')
    >>> one.keys, one.key_columns
    (KeyRange(first='p|', last='p}'), ('poster', 'time'))
    """
    try:
        said = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadRequest(f"it is not TOML: {error}") from error
    if set(said) != {"table"} or not isinstance(said["table"], list) or not said["table"]:
        raise BadRequest("it has [[table]] entries, with name, key, value and mode, and only those")
    tables = [_table(one) for one in said["table"]]
    for place, one in enumerate(tables):
        for other in tables[:place]:
            if one.keys.overlaps(other.keys):
                raise BadRequest(
                    f"{one.text} and {other.text} share a beginning; let each table have its own"
                )
            if one.name == other.name:
                raise BadRequest(f"table {one.name} is there twice; give each table one entry")
    return tables


def _table(said: Any) -> Table:
    if not isinstance(said, dict) or not isinstance(said.get("name"), str):
        raise BadRequest('a table has a name: name = "posts"')
    name, key, value = said["name"], said.get("key"), said.get("value")
    if unknown := set(said) - _SETTINGS:
        raise BadRequest(f"{name}: no setting is named {min(unknown)!r}; there are name, key, ...")
    if not isinstance(key, str):
        raise BadRequest(f'{name}: it has a key: key = "p|<poster>|<time:10>"')
    if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
        value = tuple(value)
    elif value is not None and not isinstance(value, str):
        raise BadRequest(f"{name}: value is a column, or a list of columns")
    mode = said.get("mode", AROUND)
    if mode not in (AROUND, THROUGH):
        raise BadRequest(f'{name}: mode is "around" or "through", not {mode!r:.40}')
    head, slots = _parts(name, key)
    return Table(name, key, head, slots, value, mode)


def _parts(name: str, key: str) -> tuple[str, tuple[Slot, ...]]:
    found = list(_PART.finditer(key))
    if "".join(one[0] for one in found) != key or not found:
        raise BadRequest(f"{name}: key {key!r} is not like p|<poster>|<time:10>")
    head = found.pop(0)[3] or ""
    if BAR not in head:
        raise BadRequest(f"{name}: key {key!r} begins with the name of a table and a bar, as in p|")
    slots: list[Slot] = []
    for one in found:
        column, width, literal = one[1], one[2], one[3]
        if literal is not None:
            slots[-1] = slots[-1]._replace(after=literal)
        elif not column or column in [slot.column for slot in slots]:
            raise BadRequest(f"{name}: key {key!r} has a column twice, or one without a name")
        elif slots and not slots[-1].after and slots[-1].width is None:
            raise BadRequest(f"{name}: in key {key!r} nothing parts {slots[-1].column}, {column}")
        else:
            slots.append(Slot(column, int(width) if width else None, ""))
    if not slots:
        raise BadRequest(f"{name}: key {key!r} has no columns, as in p|<poster>|<time:10>")
    for slot in slots[:-1]:
        if slot.width is None and not slot.after.startswith(BAR):
            raise BadRequest(
                f"{name}: a column without a width is followed by a bar: <{slot.column}>|"
            )
    return head, tuple(slots)


def _number_maker(width: int, after: str, before: str) -> Callable[..., str | None]:
    """A `key_maker` for one number of a fixed width, as most loads want: the times of a poster."""

    def key_of(cells: Sequence[Any], head: str = before) -> str | None:
        cell = cells[0]
        if not cell or cell.__class__ is bytes or len(cell) > width or cell[0] == "-":
            return None
        key: str = head + cell.rjust(width, "0") + after
        return key

    return key_of
