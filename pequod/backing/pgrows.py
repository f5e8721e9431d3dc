"""Ranges of keys in, rows sorted into them out: the two ends of a load from PostgreSQL."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from pequod.backing.base import Database
from pequod.backing.mapping import Bounds, Table
from pequod.errors import TooLarge
from pequod.keys import KeyRange, Pair

Shape = tuple[int, int, bool, bool]  # place of the table, equal columns, has least, has most
Asked = list[tuple[int, Bounds]]  # each with the number of its range


def asked_of(tables: Sequence[Table], keys: Sequence[KeyRange]) -> dict[Shape, Asked]:
    """What is asked for; what has one shape is asked in one query."""
    asked: dict[Shape, Asked] = defaultdict(list)
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
    asked: Asked,
    rows: list[Any],
    keys: Sequence[KeyRange],
    found: list[list[Pair]],
) -> None:
    """Sort the rows of an answer into the ranges that were asked for."""
    if len(rows) > database.max_rows:
        raise TooLarge(
            f"more than {database.max_rows} rows of {table.name} at once (db_max_rows); "
            "ask for a smaller part of the range"
        )
    skip = len(asked[0][1].equal)
    key_of, value_of = table.key_maker(skip), table.value_maker(len(table.slots) - skip)
    heads = {number: bounds.head for number, bounds in asked}
    number, head, first, last, pairs = "", "", "", "", found[0]
    for row in rows:
        if row[-1] != number:  # the rows of a range come together
            number = row[-1]
            place = int(number)
            head, pairs = heads[place], found[place]
            first, last = keys[place]
        key = key_of(row, head)
        if key is None:
            database.note_unfit(table)
        elif first <= key < last:
            pairs.append((key, value_of(row)))
