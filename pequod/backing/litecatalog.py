"""What SQLite must have for Pequod: columns, indexes, a table of changes and triggers."""

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pequod.backing.mapping import BYTES, DECIMAL, NUMBER, TEXT, THROUGH, TRUTH, Table
from pequod.backing.sql import listed, quoted
from pequod.errors import BadRequest

CHANGES = "pequod_changes"
SEQUENCE = f"SELECT seq FROM sqlite_sequence WHERE name = '{CHANGES}'"
MAX_KEY_COLUMNS = 8
NO_TRIGGERS = "its triggers are gone, and are made anew"

_EVENTS = {"insert": ("NEW",), "update": ("OLD", "NEW"), "delete": ("OLD",)}


def init(connection: sqlite3.Connection, tables: Sequence[Table]) -> list[Table]:
    """Make the table of changes and the triggers; gives the tables with what columns hold."""
    connection.execute("PRAGMA journal_mode = WAL")
    found = [bound(connection, table) for table in tables]
    connection.execute("BEGIN IMMEDIATE")
    _make_triggers(connection, found)
    connection.execute("COMMIT")
    return found


def mend(connection: sqlite3.Connection, tables: Sequence[Table]) -> None:
    """Make triggers anew that are gone, as after DROP TABLE; leaves out what cannot be served."""
    connection.execute("BEGIN IMMEDIATE")
    found = []
    for table in tables:
        with suppress(BadRequest):
            found.append(bound(connection, table))
    _make_triggers(connection, found)
    connection.execute("COMMIT")


def _make_triggers(connection: sqlite3.Connection, tables: Sequence[Table]) -> None:
    names = ", ".join(f"k{place}" for place in range(MAX_KEY_COLUMNS))
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS {CHANGES} "
        f"(id INTEGER PRIMARY KEY AUTOINCREMENT, tbl TEXT NOT NULL, {names})"
    )
    wanted = {name: text for table in tables for name, text in _triggers(table)}
    there = _our_triggers(connection)
    for name in there.keys() - wanted.keys():
        if any(name.startswith(f"pequod_{table.name}_") for table in tables):
            connection.execute(f"DROP TRIGGER {quoted(name)}")
    for name, text in wanted.items():
        if there.get(name) != text:
            connection.execute(f"DROP TRIGGER IF EXISTS {quoted(name)}")
            connection.execute(text)


def look(connection: sqlite3.Connection, table: Table) -> tuple[str, Table | str]:
    """A text that changes when a table is altered, and what it is bound to or why it is not."""
    row = connection.execute(
        "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE",
        [table.name],
    ).fetchone()
    try:
        found = bound(connection, table)
    except BadRequest as error:
        return str(row), str(error)
    there = _our_triggers(connection)
    if any(there.get(name) != text for name, text in _triggers(found)):
        return str(row), NO_TRIGGERS
    return str(row), found


def drop(connection: sqlite3.Connection) -> list[str]:
    """Take triggers and changes away; gives what was done."""
    names = list(_our_triggers(connection))
    for name in names:
        connection.execute(f"DROP TRIGGER {quoted(name)}")
    connection.execute(f"DROP TABLE IF EXISTS {CHANGES}")
    return [f"{len(names)} triggers dropped", f"table {CHANGES}: dropped"]


def status(connection: sqlite3.Connection) -> dict[str, Any]:
    """How many changes are kept, and their last number."""
    names = list(_our_triggers(connection))
    if not names:
        return {"triggers": 0}
    (kept,) = connection.execute(f"SELECT count(*) FROM {CHANGES}").fetchone()
    row = connection.execute(SEQUENCE).fetchone()
    return {"triggers": len(names), "kept_changes": kept, "last_change": row[0] if row else 0}


def _our_triggers(connection: sqlite3.Connection) -> dict[str, str]:
    return dict(
        connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND name GLOB 'pequod_*'"
        ).fetchall()
    )


def _triggers(table: Table) -> list[tuple[str, str]]:
    """Name and text of the triggers that note the keys that change."""
    names = ", ".join(f"k{place}" for place in range(len(table.slots)))
    found = []
    for event, rows in _EVENTS.items():
        name = f"pequod_{table.name}_{event}"
        notes = " ".join(
            f"INSERT INTO {CHANGES} (tbl, {names}) VALUES ({_literal(table.name)}, "
            + ", ".join(f"{row}.{quoted(column)}" for column in table.key_columns)
            + ");"
            for row in rows
        )
        found.append(
            (
                name,
                f"CREATE TRIGGER {quoted(name)} AFTER {event.upper()} ON {quoted(table.name)} "
                f"BEGIN {notes} END",
            )
        )
    return found


def bound(connection: sqlite3.Connection, table: Table) -> Table:
    rows = connection.execute(f"PRAGMA table_info({quoted(table.name)})").fetchall()
    types = {row[1]: (row[2] or "").upper() for row in rows}
    if not types:
        raise BadRequest(f"the database has no table {table.name}; create it, or mend the mapping")
    for column in table.columns:
        if column not in types:
            raise BadRequest(
                f"table {table.name} has no column {column}; it has {', '.join(types)}"
            )
    kinds = {column: _kind(said) for column, said in types.items()}
    for column in table.key_columns:
        if kinds[column] not in (NUMBER, TEXT):
            raise BadRequest(
                f"column {column} of {table.name} is {types[column] or 'of no type'}; keys are "
                "made of INTEGER and TEXT: add a column of such a type"
            )
    if len(table.slots) > MAX_KEY_COLUMNS:
        raise BadRequest(f"{table.name}: a key has at most {MAX_KEY_COLUMNS} columns")
    _check_indexes(
        connection, table, [row[1] for row in sorted(rows, key=lambda one: one[5]) if row[5]]
    )
    return replace(table, kinds=kinds)


def _check_indexes(connection: sqlite3.Connection, table: Table, primary: list[str]) -> None:
    indexes = [(True, primary)] if primary else []
    for row in connection.execute(f"PRAGMA index_list({quoted(table.name)})").fetchall():
        names = [
            found[2]
            for found in connection.execute(f"PRAGMA index_info({quoted(row[1])})").fetchall()
        ]
        if not row[4]:  # not partial
            indexes.append((bool(row[2]), names))
    columns = listed(table.key_columns)
    if not any(names[:1] == [table.key_columns[0]] for _, names in indexes):
        raise BadRequest(
            f"no index of {table.name} serves {table.text}; create one: "
            f"CREATE INDEX {table.name}_key ON {quoted(table.name)} ({columns})"
        )
    ours = set(table.key_columns)
    uniques = [set(names) for unique, names in indexes if unique]
    if ours not in uniques and (table.mode == THROUGH or not any(one <= ours for one in uniques)):
        raise BadRequest(
            f"two rows of {table.name} may have one key; create an index: "
            f"CREATE UNIQUE INDEX {table.name}_key ON {quoted(table.name)} ({columns})"
        )


def _kind(said: str) -> str:
    """What a column holds, by the rules of SQLite for declared types."""
    if "INT" in said:
        return NUMBER
    if any(word in said for word in ("CHAR", "CLOB", "TEXT")):
        return TEXT
    if "BOOL" in said:
        return TRUTH
    return BYTES if "BLOB" in said else DECIMAL


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
