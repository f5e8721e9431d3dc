"""Cache joins as Spark plans: all rows that the joins compute from base rows.

Each source is a set of rows with its slots as columns; sources are joined on the slots they share;
the output key is put together from slots, and values are folded by it. A join may read what others
compute, so joins come in the order of reading; joins whose outputs overlap form a node, in
which the greatest value-source key wins. How a join is maintained does not matter here.
"""

from collections.abc import Callable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from os.path import commonprefix

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pequod.errors import BadData, JoinError
from pequod.joins.join import CacheJoin
from pequod.joins.pattern import Pattern
from pequod.keys import EVERYTHING, KeyRange, prefix
from pequod.pipeline.folding import contested, folded
from pequod.pipeline.matching import filled, java_regex, matched, slot_columns

BaseRows = Callable[[KeyRange], DataFrame]  # key, value, bytes of a range of base data

_ROW = ("key", "value", "bytes")


class Compiler:
    """Plans for the rows of some joins over some base rows."""

    def __init__(self, joins: Sequence[CacheJoin], base: BaseRows) -> None:
        self._base = base
        self._nodes = _nodes(joins)
        self._sources = {
            number: [other for other, node in enumerate(self._nodes) if _feeds(node, reader)]
            for number, reader in enumerate(self._nodes)
        }
        try:
            self._order = list(TopologicalSorter(self._sources).static_order())
        except CycleError as error:
            cycle = " -> ".join(self._nodes[number][0].output.text for number in error.args[1])
            raise JoinError(
                f"recursion: {cycle}; a join may not read what it writes, directly or through "
                "others; write into another table"
            ) from error
        self._computed: dict[int, DataFrame] = {}

    def rows(self, keys: KeyRange = EVERYTHING) -> DataFrame:
        """All computed rows in a range, in no order; each key is there once."""
        wanted = [
            number
            for number, node in enumerate(self._nodes)
            if any(prefix(join.output.literal_head).overlaps(keys) for join in node)
        ]
        if not wanted:
            outputs = ", ".join(join.output.text for node in self._nodes for join in node)
            raise BadData(
                f"no join writes into {keys.first!r} to {keys.last!r}; they are {outputs}"
            )
        found = [self._rows_of(number) for number in wanted]
        return within(_united(found), keys)

    def head(self) -> str:
        """The text that all computed keys start with."""
        heads = [join.output.literal_head for node in self._nodes for join in node]
        return commonprefix(heads)  # noqa: RUF071 - by characters is what is wanted

    def check_base(self, holds: Callable[[KeyRange], bool] = bool) -> None:
        """Raise if base rows stand where a join would write; a cache would refuse them.

        `holds` tells, without asking Spark, if there can be any in a range.
        """
        for join in (join for node in self._nodes for join in node):
            keys = prefix(join.output.literal_head)
            if not holds(keys):
                continue
            rows = self._base(keys)
            found = rows.where(F.col("key").rlike(java_regex(join.output))).take(1)
            if found:
                raise BadData(
                    f"the base data holds {found[0]['key']!r}, which {join.output.text} computes; "
                    "remove it there, or write elsewhere"
                )

    def unmatched(self) -> Iterator[str]:
        """A sentence for each source that matches no base row and no other join's output."""
        for join in (join for node in self._nodes for join in node):
            for source in join.sources:
                pattern = source.pattern
                fed = any(_overlaps(one.output, pattern) for node in self._nodes for one in node)
                rows = self._base(prefix(pattern.literal_head))
                if not fed and not rows.where(F.col("key").rlike(java_regex(pattern))).take(1):
                    yield f"no key of the base data matches {source.text}"

    def _rows_of(self, number: int) -> DataFrame:
        if number not in self._computed:
            node = self._nodes[number]
            if len(node) == 1:
                rows = self._evaluated(node[0], contest=False)
            else:
                rows = contested([self._evaluated(join, contest=True) for join in node])
            self._computed[number] = rows.select(*_ROW)
        return self._computed[number]

    def _evaluated(self, join: CacheJoin, contest: bool) -> DataFrame:
        """The outputs of one join: key, value, bytes, and value_key for those that need it."""
        names = slot_columns([source.pattern for source in join.sources])
        folds = join.aggregates or not join.determined
        tuples = None
        for level, source in enumerate(join.sources):
            kept = []
            if level == join.value_level:
                kept = [F.col("value"), F.col("bytes")]
                if folds or contest:
                    kept.append(F.col("key").alias("value_key"))
            rows = matched(self._read(source.pattern), source.pattern, names, kept)
            if tuples is None:
                tuples = rows
                continue
            shared = [column for column in names.values() if {column} <= {*tuples.columns}]
            shared = [column for column in shared if column in rows.columns]
            tuples = tuples.join(rows, on=shared) if shared else tuples.crossJoin(rows)
        assert tuples is not None, f"{join.text} has no sources"
        more = ["value_key"] if folds or contest else []
        outputs = tuples.select(filled(join.output, names).alias("key"), "value", "bytes", *more)
        return folded(outputs, join.operator) if folds else outputs

    def _read(self, pattern: Pattern) -> DataFrame:
        """All rows that may match a source: base rows, and what other joins write there."""
        base = self._base(prefix(pattern.literal_head))
        feeding = [
            self._rows_of(number)
            for number, node in enumerate(self._nodes)
            if any(_overlaps(join.output, pattern) for join in node)
        ]
        return _united([base, *feeding])


def within(rows: DataFrame, keys: KeyRange) -> DataFrame:
    """The rows of a range."""
    if keys == EVERYTHING:
        return rows  # no condition: Spark would make each key twice, to test it
    return rows.where((F.col("key") >= keys.first) & (F.col("key") < keys.last))


def _united(parts: Sequence[DataFrame]) -> DataFrame:
    united = parts[0]
    for part in parts[1:]:
        united = united.unionAll(part)
    return united


def _nodes(joins: Sequence[CacheJoin]) -> list[list[CacheJoin]]:
    """The joins in groups that may write the same keys, each in the order of the text."""
    nodes: list[list[CacheJoin]] = []
    for join in joins:
        touching = [n for n in nodes if any(_overlaps(one.output, join.output) for one in n)]
        merged = [one for node in touching for one in node]
        nodes = [node for node in nodes if node not in touching] + [[*merged, join]]
    return [sorted(node, key=joins.index) for node in nodes]


def _feeds(node: Sequence[CacheJoin], reader: Sequence[CacheJoin]) -> bool:
    return any(
        _overlaps(one.output, source.pattern)
        for one in node
        for join in reader
        for source in join.sources
    )


def _overlaps(one: Pattern, other: Pattern) -> bool:
    # Different heads part most patterns at once.
    head = min(len(one.literal_head), len(other.literal_head))
    return one.literal_head[:head] == other.literal_head[:head] and one.overlaps(other)
