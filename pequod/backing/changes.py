"""From PostgreSQL's changes to those of the cache, a transaction at a time."""

import logging
from dataclasses import replace
from typing import Any

from pequod.backing.base import Database, Sink
from pequod.backing.mapping import BYTES, Table
from pequod.backing.pgoutput import UNCHANGED, Message, Relation, Row, Truncate, Tuple
from pequod.errors import PequodError
from pequod.keys import KeyRange, Value, point

log = logging.getLogger("pequod.backing")

_GONE, _WRONG = object(), object()  # all rows of a range are gone; all that is known of it is wrong


class _Decoder:
    """Makes keys and values of the rows of one table, as it looks now."""

    def __init__(self, table: Table, relation: Relation) -> None:
        self.table = table
        names = [name for name, _, _ in relation.columns]
        self._keys = [names.index(column) for column in table.key_columns]
        self._values = [
            (names.index(column), table.kinds.get(column) == BYTES)
            for column in table.value_columns
        ]
        self._key_of, self._value_of = table.key_maker(), table.value_maker()
        self._is_full = relation.identity == "f"
        self._width = len(names)

    def key(self, cells: Tuple) -> str | None:
        return self._key_of([cells[place] for place in self._keys])

    def value(self, cells: Tuple) -> Value | None:
        """The value of a row; None if a part of it was not sent."""
        found: list[Any] = []
        for place, is_bytes in self._values:
            cell = cells[place]
            if cell is UNCHANGED:
                return None
            if is_bytes and isinstance(cell, str):
                cell = bytes.fromhex(cell[2:])
            found.append(cell)
        return self._value_of(found)

    def complete(self, new: Tuple, old: Tuple | None) -> None:
        """Fill in what an update left alone, if the old row was sent whole."""
        if old is not None and self._is_full:
            for place, cell in enumerate(new):
                if cell is UNCHANGED:
                    new[place] = old[place]
        elif old is not None:
            for place in self._keys:
                if new[place] is UNCHANGED:
                    new[place] = old[place]

    def misses_key(self, cells: Tuple) -> bool:
        return any(cells[place] is UNCHANGED for place in self._keys)


class Changes:
    """The changes of the transaction that is being received."""

    def __init__(self, database: Database, sink: Sink) -> None:
        self._database = database
        self._sink = sink
        self._relations: dict[int, Relation] = {}
        self._decoders: dict[int, _Decoder | None] = {}
        self._noted: list[tuple[Any, Any]] = []  # a key and its value, or a range and its fate

    @property
    def is_open(self) -> bool:
        return bool(self._noted)

    def begin(self) -> None:
        """Forget what was not committed."""
        self._noted = []

    def note(self, message: Message) -> None:
        if isinstance(message, Row):
            decoder = self._decoders.get(message.oid)
            if decoder is not None:
                self._note_row(decoder, message.old, message.new)
        elif isinstance(message, Relation):
            self._note_relation(message)
        elif isinstance(message, Truncate):
            for oid in message.oids:
                decoder = self._decoders.get(oid)
                if decoder is not None:
                    self._noted.append((decoder.table.keys, _GONE))

    def _note_row(self, decoder: _Decoder, old: Tuple | None, new: Tuple | None) -> None:
        noted = self._noted
        before = decoder.key(old) if old is not None else None
        if new is None:
            if before is not None:
                noted.append((before, None))
            return
        decoder.complete(new, old)
        if decoder.misses_key(new):
            noted.append((decoder.table.keys, _WRONG))
            return
        key = decoder.key(new)
        if before is not None and before != key:
            noted.append((before, None))
        if key is None:
            self._database.note_unfit(decoder.table)
            return
        value = decoder.value(new)
        if value is not None:
            noted.append((key, value))
        elif (before is not None and before != key) or len(decoder.table.value_columns) > 1:
            noted.append((point(key), _WRONG))  # its value was not sent: it is loaded

    def _note_relation(self, relation: Relation) -> None:
        """A table is described before its first change, and after it was altered."""
        known, self._relations[relation.oid] = self._relations.get(relation.oid), relation
        place, table = self._table(relation)
        if table is None:
            return
        if known is not None and known != relation:
            self._database.warn(
                f"table {table.name} was altered; its ranges are loaded anew when they are read"
            )
            self._noted.append((table.keys, _WRONG))
        names = {name for name, _, _ in relation.columns}
        gone = [column for column in table.columns if column not in names]
        if gone:
            self._database.warn(
                f"table {table.name} has no column {', '.join(gone)} any more: it cannot be read "
                "until the mapping is mended and the server restarted"
            )
            self._noted.append((table.keys, _WRONG))
            self._decoders[relation.oid] = None
            return
        kinds = {name: kind for name, kind in table.kinds.items() if name in names}
        table = self._database.tables[place] = replace(table, kinds=kinds)
        self._decoders[relation.oid] = _Decoder(table, relation)

    def _table(self, relation: Relation) -> tuple[int, Table | None]:
        for place, table in enumerate(self._database.tables):
            if table.name in (relation.name, f"{relation.schema}.{relation.name}"):
                return place, table
        return 0, None

    def apply(self) -> None:
        """The transaction is committed: no reader sees a part of it."""
        noted, self._noted = self._noted, []
        put, remove = self._sink.put, self._sink.remove
        self._database.changes += len(noted)
        for key, value in noted:
            try:
                if key.__class__ is KeyRange:
                    if value is _GONE:
                        self._sink.remove_range(*key)
                    else:
                        self._sink.invalidate(key)
                elif value is None:
                    remove(key)
                else:
                    put(key, value)
            except PequodError as error:
                self._database.warn(f"a change cannot be followed: {error}")
                self._sink.invalidate(key if key.__class__ is KeyRange else point(key))
