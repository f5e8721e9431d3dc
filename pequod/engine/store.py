"""The ordered store: tables, their subtables, and rows in key order.

A key with two bars or more lives in the subtable of its text up to the second bar
(`t|ann|`), any other in the main part of its table; a table may be told another number of
bars. Subtables are an index, never a border: one dict lookup finds the rows of a timeline
among a million, and every scan sees one ordered key space.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol

from pequod.engine.rows import LargeRows, Rows, SortedKeys
from pequod.engine.updaters import UpdaterIndex, Watchers
from pequod.engine.watching import Watch, WatchIndex
from pequod.engine.weights import (
    LARGE_ROW_BYTES,
    SUBTABLE_BYTES,
    TABLE_BYTES,
    Account,
    row_bytes,
    rows_bytes,
    shared,
    value_bytes,
    values_bytes,
)
from pequod.keys import BAR, END, EVERYTHING, KeyRange, Pair, Value, prefix, table_of

if TYPE_CHECKING:
    from pequod.engine.status import StatusRange

DEFAULT_BARS = 2


class Tally(Protocol):
    """Where hits are counted: a table, or some of the views that write into it."""

    hits: int


class Hint:
    """A range known to be readable as it is, until something in it must be freshened.

    Then it is void, for good: it covers nothing. If it relies on a single status range it outlives
    changes that wait there: it is suspended until they are settled.
    """

    __slots__ = ("_covered", "first", "last", "status", "tally", "used")

    def __init__(
        self, first: str, last: str, used: int, tally: Tally, status: "StatusRange | None" = None
    ) -> None:
        self.first = self._covered = first
        self.last = last
        self.used = used
        self.tally = tally
        self.status = status

    @property
    def is_suspended(self) -> bool:
        return self.first != self._covered

    def suspend(self) -> None:
        self.first = END

    def void(self) -> None:
        self.first = self._covered = END
        self.status = None

    def would_cover(self, keys: KeyRange) -> bool:
        """True if it covers a range, but for being suspended."""
        return self._covered <= keys.first and keys.last <= self.last

    def resume(self) -> None:
        self.first = self._covered


class Subtable:
    """A part of a table with its rows, and what is known about exactly this range."""

    __slots__ = ("first", "hint", "last", "pins", "rows", "table", "watchers")

    def __init__(self, table: "Table", keys: KeyRange) -> None:
        self.table = table
        self.first, self.last = keys
        self.rows: Rows | LargeRows = Rows(self)
        self.watchers: Watchers | None = None
        self.hint: Hint | None = None
        self.pins = 0  # status ranges that lie within and keep it alive

    def make_large(self) -> LargeRows:
        assert isinstance(self.rows, Rows), "it is large already"
        self.rows = LargeRows(self.rows)
        return self.rows


class Table:
    """All keys with one text before the first bar."""

    def __init__(
        self, name: str, bars: int, jump: dict[str, Subtable], total: Account | None = None
    ) -> None:
        self.name = name
        self.total = total or Account()
        self.total.bytes += TABLE_BYTES
        self.bars = bars
        self.keys = prefix(name + BAR) if name else EVERYTHING
        self.main = Subtable(self, self.keys)
        self.updaters = UpdaterIndex(self)
        self.rows = 0
        self.large_rows = 0
        self.bytes = 0
        self.hits = 0  # but for those that a join has part in
        self.evictions = 0
        self.plain = True  # no join writes here and nothing here is remote
        self.watches: WatchIndex | None = None  # over base rows
        self._jump = jump
        self._prefixes: SortedKeys[str] = SortedKeys()

    def subtable_prefix(self, key: str) -> str:
        """The subtable a key belongs to, "" for the main part.

        >>> Table("t", 2, {}).subtable_prefix("t|ann|100|bob")
        't|ann|'
        """
        if self.bars == DEFAULT_BARS:
            return key[: key.find(BAR, key.find(BAR) + 1) + 1]
        place = -1
        for _ in range(self.bars):
            place = key.find(BAR, place + 1)
            if place < 0:
                return ""
        return key[: place + 1] if self.bars > 1 else ""

    def subtable_of(self, key: str) -> Subtable | None:
        found = self.subtable_prefix(key)
        return self._jump.get(found) if found else self.main

    def subtable_over(self, keys: KeyRange) -> Subtable | None:
        """The subtable whose range is exactly this, if there is one."""
        subtable = self._jump.get(keys.first)
        return subtable if subtable is not None and subtable.last == keys.last else None

    @property
    def is_bare(self) -> bool:
        """True if it has neither rows nor subtables."""
        return not self.rows and not self._prefixes

    def account(self, rows: int, size: int) -> None:
        """Count rows that came or went."""
        self.rows += rows
        self.bytes += size
        self.total.bytes += size

    def account_large(self, rows: int) -> None:
        """Count rows that came to those of a sorted dict, or went."""
        self.large_rows += rows
        self.total.bytes += LARGE_ROW_BYTES * rows

    def _holds(self, key: str) -> bool:
        return key.startswith(self.name + BAR)

    def place(self, key: str) -> Subtable:
        """The subtable for `key`, made if need be."""
        found = self.subtable_prefix(key)
        if not found:
            return self.main
        subtable = self._jump.get(found)
        if subtable is None:
            subtable = self._jump[found] = Subtable(self, prefix(found))
            self._prefixes.add(found)
            self.total.bytes += SUBTABLE_BYTES
        return subtable

    def is_subtable(self, keys: KeyRange) -> bool:
        """True if the range is exactly that of a subtable, be there one or not."""
        return (
            self.subtable_prefix(keys.first) == keys.first != ""
            and keys.last == prefix(keys.first).last
        )

    def prune(self, subtable: Subtable) -> None:
        """Forget a subtable that holds nothing any more."""
        if self._jump.get(subtable.first) is not subtable:  # the main part, or one forgotten before
            return
        if subtable.rows or subtable.watchers or subtable.pins:
            return
        del self._jump[subtable.first]
        self._prefixes.remove(subtable.first)
        self.total.bytes -= SUBTABLE_BYTES
        del subtable.rows  # they know each other, and would wait for a garbage collection

    def subtables_overlapping(self, keys: KeyRange) -> list[Subtable]:
        """The main part, and the subtables that share keys with a range, in order."""
        if (subtable := self.subtable_over(keys)) is not None:
            return [subtable]
        within = self.subtable_prefix(keys.first) if self._holds(keys.first) else ""
        if within and keys.last <= prefix(within).last:
            subtable = self._jump.get(within)
            return [subtable] if subtable else []
        return [self.main, *self._subtables(keys)]

    def _subtables(self, keys: KeyRange, reverse: bool = False) -> Iterator[Subtable]:
        texts: Iterable[str] = self._prefixes.irange(keys.first, keys.last, (True, False), reverse)
        within = self.subtable_prefix(keys.first) if self._holds(keys.first) else ""
        if within != keys.first and within in self._jump:
            texts = chain(texts, [within]) if reverse else chain([within], texts)
        return (self._jump[text] for text in texts)

    def __iter__(self) -> Iterator[Subtable]:
        yield self.main
        for text in self._prefixes:
            yield self._jump[text]

    @property
    def total_bytes(self) -> int:
        """Rows and bookkeeping; that of the joins which write here comes on top."""
        return (
            self.bytes
            + TABLE_BYTES
            + SUBTABLE_BYTES * len(self._prefixes)
            + LARGE_ROW_BYTES * self.large_rows
            + self.updaters.bytes
        )

    def page(self, first: str, last: str, limit: int, reverse: bool) -> list[Pair]:
        """At most `limit` rows from either end of a range."""
        subtables = self._subtables(KeyRange(first, last), reverse)
        return paged(self.main.rows, (one.rows for one in subtables), first, last, limit, reverse)

    def count(self, keys: KeyRange) -> int:
        return sum(one.rows.count(*keys) for one in self.subtables_overlapping(keys))

    def spans(self, keys: KeyRange) -> Iterator[tuple[list[str], list[Value]]]:
        """The rows of a range as parallel lists, each in order."""
        for subtable in self.subtables_overlapping(keys):
            if len(subtable.rows):
                yield subtable.rows.span(keys.first, keys.last)

    def cut(self, keys: KeyRange) -> Iterator[tuple[list[str], list[Value]]]:
        """Take out the rows of a range; the caller keeps the account."""
        for subtable in self.subtables_overlapping(keys):
            if len(subtable.rows):
                yield subtable.rows.cut(keys.first, keys.last)
                self.prune(subtable)

    def splice(self, keys: list[str], values: list[Value]) -> None:
        """Add rows that are new and in order; the caller keeps the account."""
        start = 0
        while start < len(keys):
            subtable = self.place(keys[start])
            end = start + 1
            if subtable is self.main:
                while end < len(keys) and not self.subtable_prefix(keys[end]):
                    end += 1
            else:
                end = bisect_left(keys, subtable.last, end)
            subtable.rows.splice(keys[start:end], values[start:end])
            start = end

    def _check(self) -> None:
        rows = 0
        for subtable in self:
            subtable.rows._check()
            rows += len(subtable.rows)
            for key, _ in subtable.rows.pairs("", EVERYTHING.last):
                assert self.subtable_of(key) is subtable, f"{key!r} is in the wrong subtable"
            assert subtable is self.main or subtable.rows or subtable.watchers or subtable.pins
        large = sum(len(one.rows) for one in self if isinstance(one.rows, LargeRows))
        assert large == self.large_rows, f"{large} rows are large, not {self.large_rows}"
        assert rows == self.rows, f"table {self.name!r}: {rows} rows, the account says {self.rows}"
        self.updaters._check()


class Store:
    """All tables: one ordered key space."""

    def __init__(self, bars: Mapping[str, int] | None = None) -> None:
        self.jump: dict[str, Subtable] = {}  # text up to the second bar -> its subtable
        self.tables: dict[str, Table] = {}
        self.account = Account()
        self.is_remote: Callable[[KeyRange], bool] = lambda keys: False
        self.watches: dict[Watch, None] = {}
        self._bars = dict(bars or {})

    def table(self, name: str) -> Table:
        """The table of that name, made on first use."""
        table = self.tables.get(name)
        if table is None:
            bars = self._bars.get(name, DEFAULT_BARS)
            table = self.tables[name] = Table(name, bars, self.jump, self.account)
            table.plain = not self.is_remote(table.keys)
            self.wake(table.keys)
        return table

    def prune(self, table: Table) -> None:
        """Forget a table that holds nothing any more and that nobody relies on."""
        if table.plain and not table.updaters and table.watches is None and table.is_bare:
            del self.tables[table.name]
            self.account.bytes -= TABLE_BYTES

    def wake(self, keys: KeyRange) -> None:
        """Wake whoever watches some of these keys, where no single row tells of a change."""
        for watch in list(self.watches):
            if watch.overlaps(keys):
                watch.wake()

    def tables_overlapping(self, keys: KeyRange) -> list[Table]:
        name = table_of(keys.first)
        if name and keys.last <= prefix(name + BAR).last:
            table = self.tables.get(name)
            return [table] if table else []
        return [table for table in self.tables.values() if table.keys.overlaps(keys)]

    def get(self, key: str) -> Value | None:
        table = self.tables.get(table_of(key))
        subtable = table.subtable_of(key) if table else None
        return subtable.rows.get(key) if subtable else None

    def put(self, table: Table, key: str, value: Value) -> Value | None:
        """Set a base row and give back its old value."""
        old = table.place(key).rows.put(key, shared(value))
        if old is None:
            table.account(1, row_bytes(key) + value_bytes(value))
        else:
            table.account(0, value_bytes(value) - value_bytes(old))
        if table.watches is not None and old != value:
            table.watches.wake(key)
        return old

    def splice(self, keys: list[str], values: list[Value]) -> None:
        """Add base rows that are new and in order."""
        start = 0
        while start < len(keys):
            name = table_of(keys[start])
            end = bisect_left(keys, prefix(name + BAR).last, start) if name else start + 1
            table, added = self.table(name), keys[start:end]
            of = values[start:end]
            if 1 in map(len, of):
                of = [shared(value) for value in of]
            table.splice(added, of)
            table.account(len(added), rows_bytes(added) + values_bytes(of))
            if table.watches is not None:
                for key in added:
                    table.watches.wake(key)
            start = end

    def remove(self, table: Table, key: str) -> Value | None:
        """Take a base row out and give back its value."""
        subtable = table.subtable_of(key)
        old = subtable.rows.pop(key) if subtable else None
        if subtable is not None and old is not None:
            table.account(-1, -row_bytes(key) - value_bytes(old))
            table.prune(subtable)
            if table.watches is not None:
                table.watches.wake(key)
        return old

    def scan(self, keys: KeyRange) -> list[Pair]:
        """All rows of a range, in order."""
        return merged(span for table in self.tables_overlapping(keys) for span in table.spans(keys))

    def page(self, keys: KeyRange, limit: int, reverse: bool) -> list[Pair]:
        """At most `limit` rows from either end of a range, looking at hardly any other."""
        tables = self.tables_overlapping(keys)
        if len(tables) == 1:
            return tables[0].page(*keys, limit, reverse)
        tables = [table for table in tables if table.name]
        tables.sort(key=lambda table: table.keys.first, reverse=reverse)
        return paged(self.tables.get(""), tables, *keys, limit, reverse)

    def count(self, keys: KeyRange) -> int:
        """The number of rows of a range."""
        return sum(table.count(keys) for table in self.tables_overlapping(keys))

    def _check(self) -> None:
        for table in self.tables.values():
            table._check()
        assert set(self.jump) == {
            subtable.first
            for table in self.tables.values()
            for subtable in table
            if subtable is not table.main
        }


class Paged(Protocol):
    """A part of the key space that can be read from either end."""

    def page(self, first: str, last: str, limit: int, reverse: bool) -> list[Pair]: ...


def paged(
    loose: Paged | None, parts: Iterable[Paged], first: str, last: str, limit: int, reverse: bool
) -> list[Pair]:
    """A page of parts in order, and of one whose rows lie between those of the others."""
    pairs: list[Pair] = []
    for part in parts:
        if len(pairs) >= limit:
            break
        pairs += part.page(first, last, limit - len(pairs), reverse)
    between = loose.page(first, last, limit, reverse) if loose is not None else []
    if not pairs or not between:
        return pairs or between
    return sorted(pairs + between, key=itemgetter(0), reverse=reverse)[:limit]


def merged(spans: Iterable[tuple[list[str], list[Value]]]) -> list[Pair]:
    """Rows of several spans as one list of pairs in order."""
    pairs: list[Pair] = []
    disordered = False
    for keys, values in spans:
        if keys and pairs and keys[0] < pairs[-1][0]:
            disordered = True
        pairs.extend(zip(keys, values, strict=True))
    if disordered:
        pairs.sort(key=lambda pair: pair[0])
    return pairs
