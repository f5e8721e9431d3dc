"""SQL texts: loads of ranges, and writes of rows, as both databases understand them."""

from typing import Any

from pequod.backing.mapping import NUMBER, Bounds, Table
from pequod.keys import Value

Statement = tuple[str, list[Any]]


def quoted(name: str) -> str:
    """A name as SQL has it; a dot parts schema and table.

    >>> quoted("public.posts"), quoted('a"b')
    ('"public"."posts"', '"a""b"')
    """
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(quoted, names))


def of_row(names: tuple[str, ...]) -> str:
    """Columns of a row named `s`: a bare name that is no column is a text to SQLite.

    >>> of_row(("poster", "time"))
    's."poster", s."time"'
    """
    return ", ".join(f"s.{quoted(name)}" for name in names)


def write(table: Table, key: str, value: Value | None, mark: str) -> Statement:
    """Set the row of a key, or remove it; `mark` stands for a parameter."""
    slots = list(table.slots_of(key))
    if value is None:
        name = quoted(table.name)
        where = " AND ".join(f"{name}.{quoted(column)} = {mark}" for column in table.key_columns)
        return f"DELETE FROM {name} WHERE {where}", slots
    cells = list(table.cells_of(value))
    update = ", ".join(f"{quoted(one)} = excluded.{quoted(one)}" for one in table.value_columns)
    return (
        f"INSERT INTO {quoted(table.name)} ({listed(table.columns)}) "
        f"VALUES ({', '.join([mark] * len(table.columns))}) "
        f"ON CONFLICT ({listed(table.key_columns)}) "
        f"DO {f'UPDATE SET {update}' if update else 'NOTHING'}",
        slots + cells,
    )


def one_range(table: Table, bounds: Bounds, limit: int) -> Statement:
    """The rows within bounds, for SQLite."""
    where = [f"s.{quoted(column)} = ?" for column, _ in zip(table.key_columns, bounds.equal)]
    params = list(bounds.equal)
    for operator, bound in ((">=", bounds.least), ("<=", bounds.most)):
        if bound is not None:
            where.append(f"s.{quoted(table.key_columns[len(bounds.equal)])} {operator} ?")
            params.append(bound)
    only = f" WHERE {' AND '.join(where)}" if where else ""
    columns = of_row(table.columns)
    return f"SELECT {columns} FROM {quoted(table.name)} AS s{only} LIMIT {limit}", params


def many_ranges(table: Table, asked: list[tuple[int, Bounds]], limit: int) -> Statement:
    """The rows of many ranges that bound the same columns, each with its number last (PostgreSQL).

    Columns that are the same in all rows of a range are left out.
    A row for each range drives a nested loop over an index.
    """
    sample = asked[0][1]
    arrays, names, where = ["%s::int[]"], ["n"], []
    params: list[Any] = [[number for number, _ in asked]]

    def bound(column: str, operator: str, name: str, cells: list[Any]) -> None:
        is_number = table.kinds[column] == NUMBER
        arrays.append("%s::bigint[]" if is_number else "%s::text[]")
        names.append(name)
        params.append(cells)
        order = "" if is_number or operator == "=" else ' COLLATE "C"'
        where.append(f"s.{quoted(column)}{order} {operator} r.{name}")

    for place, column in enumerate(table.key_columns[: len(sample.equal)]):
        bound(column, "=", f"e{place}", [bounds.equal[place] for _, bounds in asked])
    if sample.least is not None:
        column = table.key_columns[len(sample.equal)]
        bound(column, ">=", "least", [bounds.least for _, bounds in asked])
    if sample.most is not None:
        column = table.key_columns[len(sample.equal)]
        bound(column, "<=", "most", [bounds.most for _, bounds in asked])
    only = f" WHERE {' AND '.join(where)}" if where else ""
    columns = of_row(table.columns[len(sample.equal) :])
    return (
        f"SELECT t.*, r.n FROM unnest({', '.join(arrays)}) AS r({', '.join(names)}) "
        f"CROSS JOIN LATERAL (SELECT {columns} FROM {quoted(table.name)} AS s{only} "
        f"LIMIT {limit}) AS t",
        params,
    )
