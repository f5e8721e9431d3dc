"""Ranges of keys in, rows sorted into them out: the two ends of a load from PostgreSQL."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from pequod.backing.base import Database
from pequod.backing.mapping import Bounds, Table
from pequod.errors import TooLarge
from pequod.keys import KeyRange, Pair

Shape = tuple[int, int, bool, bool]  # place of the table, equal columns, has least, has most


def asked_of(tables: Sequence[Table], keys: Sequence[KeyRange]) -> dict[Shape, list[Any]]:
    """What is asked for; what has one shape is asked in one query, each with its range's number."""
    asked: dict[Shape, list[tuple[int, Bounds]]] = defaultdict(list)
    for number, one in enumerate(keys):
        for place, table in enumerate(tables):
            bounds = table.bounds(one) if one.overlaps(table.keys) else None
            if bounds is not None:
                has_least, has_most = bounds.least is not None, bounds.most is not None
                asked[place, len(bounds.equal), has_least, has_most].append((number, bounds))
    return asked


def collect(
    database: Database,
    table: Table,
    rows: list[Any],
    keys: Sequence[KeyRange],
    found: list[list[Pair]],
) -> None:
    """Sort the rows of an answer into their ranges."""
    if len(rows) > database.max_rows:
        raise TooLarge(
            f"more than {database.max_rows} rows of {table.name} at once (db_max_rows); "
            "ask for a smaller part of the range"
        )
    key_of, value_of = table.key_maker(), table.value_maker(len(table.slots))
    number, first, last, pairs = "", "", "", found[0]
    for row in rows:
        if row[-1] != number:  # the rows of a range come together
            number = row[-1]
            first, last = keys[int(number)]
            pairs = found[int(number)]
        key = key_of(row)
        if key is None:
            database.note_unfit(table)
        elif first <= key < last:
            pairs.append((key, value_of(row)))
