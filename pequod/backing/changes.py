"""From PostgreSQL's changes to those of the cache, a transaction at a time."""

from collections.abc import Callable, Sequence
from typing import Any

from pequod.backing.base import Database, Sink
from pequod.backing.mapping import BYTES, Table
from pequod.backing.pgoutput import UNCHANGED, Message, Relation, Row, Truncate, Tuple
from pequod.errors import PequodError
from pequod.keys import KeyRange, Value, point

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


def _decoder(table: Table, relation: Relation) -> _Decoder | None:
    """None if the changes do not tell what is needed: a column, or the key of the old row."""
    told = {name for name, _, is_identity in relation.columns if is_identity}
    names = {name for name, _, _ in relation.columns}
    if names.issuperset(table.columns) and told.issuperset(table.key_columns):
        return _Decoder(table, relation)
    return None


class Changes:
    """The changes of the transaction that is being received."""

    def __init__(self, database: Database, sink: Sink, altered: Callable[[], None]) -> None:
        """`altered` is told when a table is not what it was."""
        self._database = database
        self._sink = sink
        self._altered = altered
        self._places: dict[int, int] = {}  # of the tables, by their numbers in the database
        self._relations: dict[int, Relation] = {}
        self._decoders: dict[int, _Decoder | None] = {}
        self._noted: list[tuple[Any, Any]] = []  # a key and its value, or a range and its fate

    def bind(self, oids: Sequence[int]) -> None:
        """The tables of the database have these numbers now."""
        self._places = {oid: place for place, oid in enumerate(oids)}
        self._decoders = {}
        for relation in self._relations.values():
            self._describe(relation)

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
            elif message.oid in self._places:
                self._note_wrong(message.oid)
        elif isinstance(message, Relation):
            known, self._relations[message.oid] = self._relations.get(message.oid), message
            self._describe(message)
            if known is not None and known != message and message.oid in self._places:
                self._note_wrong(message.oid)
                self._altered()
        elif isinstance(message, Truncate):
            for oid in message.oids:
                if oid in self._places:
                    self._noted.append((self._table(oid).keys, _GONE))

    def _describe(self, relation: Relation) -> None:
        """A table is described before its first change, and after it was altered."""
        if relation.oid in self._places:
            self._decoders[relation.oid] = _decoder(self._table(relation.oid), relation)

    def _table(self, oid: int) -> Table:
        return self._database.tables[self._places[oid]]

    def _note_wrong(self, oid: int) -> None:
        """It is not known what became of a row: the whole table is loaded anew."""
        wrong = (self._table(oid).keys, _WRONG)
        if self._noted[-1:] != [wrong]:
            self._noted.append(wrong)

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
