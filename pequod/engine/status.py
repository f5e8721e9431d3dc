"""Views and their join status ranges: which pieces of output key space are computed and fresh.

A *view* is a set of joins that may write the same keys: most have one join, interleaved joins
with different patterns have a view each. Its join status ranges are disjoint. A status range
knows all its contexts, so dropping it looks at nothing else.
"""

from pequod.engine.operators import Fold
from pequod.engine.plan import Plan, Step
from pequod.engine.rangemap import RangeMap
from pequod.engine.store import Hint, Store, Subtable, Table
from pequod.engine.updaters import Context
from pequod.engine.watching import Watch
from pequod.engine.weights import (
    CONTEXT_BYTES,
    FOLD_BYTES,
    LINK_BYTES,
    LOG_BYTES,
    LOGGED_BYTES,
    STATUS_BYTES,
    row_bytes,
    rows_bytes,
)
from pequod.joins.containing import slots_of_range
from pequod.keys import BAR, KeyRange, Value

_NO_FOLDS: dict[str, Fold] = {}  # shared by all status ranges that fold nothing

Signature = tuple[tuple[tuple[str, str], ...] | None, ...]


class View:
    """The joins that may write one set of output keys, and what is computed of them."""

    def __init__(self, table: Table, plans: list[Plan]) -> None:
        self.table = table
        self.plans = plans
        self.keys = KeyRange(
            min(plan.output_keys.first for plan in plans),
            max(plan.output_keys.last for plan in plans),
        )
        self.in_main_part = table.bars < 2 or all(  # of its table: no subtable takes its rows in
            plan.join.output.text.count(BAR) < table.bars for plan in plans
        )
        self.statuses: RangeMap[StatusRange] = RangeMap()
        self.rows = 0
        self.bytes = 0
        self.contexts = 0
        self.links = 0
        self.logs = 0
        self.logged = 0
        seconds = [plan.join.seconds for plan in plans if not plan.watches]
        self.seconds = min(seconds) if seconds else None
        join = plans[0].join
        # Where several derivations may meet on one key, that key is worked out anew; a key
        # of one aggregate changes by difference; all others are simply written.
        self.folds = len(plans) == 1 and join.aggregates
        self._fold_bytes = FOLD_BYTES[join.operator] if self.folds else 0
        self.contested = len(plans) > 1 or not (join.aggregates or join.determined)
        # Nobody tells of changes under a snapshot, so that its part in a contest is known only
        # while the whole range is computed.
        self.recomputes = self.contested and self.seconds is not None
        for plan in plans:
            plan.view = self
            plan.writes_directly = not (self.folds or self.contested)

    @property
    def overhead_bytes(self) -> int:
        """The weight of the bookkeeping; the rows are in the account of the table."""
        return (
            STATUS_BYTES * len(self.statuses)
            + CONTEXT_BYTES * self.contexts
            + LINK_BYTES * self.links
            + LOG_BYTES * self.logs
            + LOGGED_BYTES * self.logged
        )

    def add(self, status: "StatusRange") -> None:
        self.statuses.add(status)
        self.table.total.bytes += STATUS_BYTES

    def remove(self, status: "StatusRange") -> None:
        self.statuses.remove(status)
        self.table.total.bytes -= STATUS_BYTES

    def weigh(self, contexts: int = 0, links: int = 0, logs: int = 0, logged: int = 0) -> None:
        """Count bookkeeping that came or went."""
        self.contexts += contexts
        self.links += links
        self.logs += logs
        self.logged += logged
        self.table.total.bytes += (
            CONTEXT_BYTES * contexts + LINK_BYTES * links + LOG_BYTES * logs + LOGGED_BYTES * logged
        )

    def row_bytes(self, key: str) -> int:
        """What a computed row weighs: copied values are shared, folded ones are its own."""
        return row_bytes(key) + self._fold_bytes

    def rows_bytes(self, keys: list[str]) -> int:
        return rows_bytes(keys) + self._fold_bytes * len(keys)

    def account(self, rows: int, size: int) -> None:
        """Count computed rows that came or went."""
        self.rows += rows
        self.bytes += size
        self.table.account(rows, size)

    def writes(self, key: str) -> bool:
        """True if one of the joins may write this key."""
        return any(plan.join.output.matches(key) for plan in self.plans)

    def signature(self, keys: KeyRange) -> Signature:
        """The slots that the range binds, for each join; ranges of one signature may be one."""
        found = (slots_of_range(plan.join.output, keys) for plan in self.plans)
        return tuple(None if slots is None else tuple(slots.items()) for slots in found)

    def _check(self) -> None:
        self.statuses._check()
        contexts = [c for status in self.statuses for c in status.contexts.values()]
        assert len(contexts) == self.contexts, f"{len(contexts)} contexts, not {self.contexts}"
        links = sum(len(context.links) for context in contexts)
        assert links == self.links, f"{links} links, not {self.links}"
        logs = [context.log for context in contexts if context.log is not None]
        assert len(logs) == self.logs, f"{len(logs)} logs, not {self.logs}"
        logged = sum(map(len, logs))
        assert logged == self.logged, f"{logged} changes wait, not {self.logged}"
        for status in self.statuses:
            assert not status.dropped, f"a dropped status range at {status.first!r}"
            assert not (status.fresh and status.pending), "fresh, and yet something waits"


class StatusRange:
    """A piece of output key space that was computed, and whether it is fresh."""

    __slots__ = (
        "contexts",
        "dropped",
        "expires",
        "expiring",
        "first",
        "folds",
        "fresh",
        "hints",
        "last",
        "overflown",
        "pending",
        "redo",
        "rows_read",
        "signature",
        "subtable",
        "used",
        "view",
        "waits_on",
        "watches",
    )

    def __init__(self, view: View, keys: KeyRange, signature: Signature, used: int) -> None:
        self.view = view
        self.first, self.last = keys
        self.signature = signature
        self.used = used
        self.contexts: dict[tuple[Step, tuple[str, ...]], Context] = {}
        self.pending: dict[Context, None] | None = None  # contexts with a log to settle
        self.waits_on: dict[StatusRange, None] | None = None  # stale ranges this one reads
        self.expiring: dict[StatusRange, None] | None = None  # snapshots this one reads
        self.expires: float | None = None
        self.redo: set[str] | None = None  # output keys to work out anew once the logs are settled
        self.folds: dict[str, Fold] = {} if view.folds else _NO_FOLDS
        self.hints: dict[Subtable, Hint] | None = None  # that rely on this range
        self.watches: dict[Watch, None] | None = None  # over rows of this range
        self.subtable: Subtable | None = None  # where all rows are, if in one subtable
        self.rows_read = 0  # source rows it took to compute this, those of inner ranges included
        self.fresh = True
        self.overflown = False  # too much waits: computing anew is cheaper
        self.dropped = False

    @property
    def keys(self) -> KeyRange:
        return KeyRange(self.first, self.last)

    @property
    def last_used(self) -> int:
        """The latest read, also of those that went by a hint."""
        if self.hints is None:
            return self.used
        return max(self.used, max([hint.used for hint in self.hints.values()]))

    def support(self, subtable: Subtable, hint: Hint) -> None:
        """Let a hint rely on this range; another one of that subtable is void."""
        if self.hints is None:
            self.hints = {}
        other = self.hints.get(subtable)
        if other is not None:
            self.used = max(self.used, other.used)
            other.void()
        self.hints[subtable] = hint

    def suspend(self) -> None:
        """The rows cannot be read before something is settled: a hint waits for that."""
        if self.hints is not None and len(self.hints) == 1:
            [hint] = self.hints.values()
            if hint.status is self:
                hint.suspend()
                self.wake()
                return
        self.disturb()

    def disturb(self) -> None:
        """The rows can no longer be read as they are: forget all hints, and wake all watches."""
        if self.hints is not None:
            self.used = self.last_used
            for hint in self.hints.values():
                hint.void()
            self.hints = None
        self.wake()

    def wake(self) -> None:
        for watch in list(self.watches or ()):
            watch.wake()

    def log(self, context: Context, key: str, old: Value | None, new: Value | None) -> None:
        """Note a change to settle later: one entry per key, with the value before the first."""
        if context.log is None or key not in context.log:
            context.note(key, old)
        elif same(context.step, context.log[key], new):
            context.take(key)
        if self.pending is None:
            self.pending = {}
        self.pending[context] = None


def same(step: Step, old: Value | None, new: Value | None) -> bool:
    """True if a source tells no difference: of a check source only the keys count."""
    return old == new if step.gives_value else (old is None) == (new is None)


class Links:
    """Ties the contexts of status ranges to updaters over their sources, and unties them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def link(
        self, status: StatusRange, step: Step, slots: dict[str, str], source: KeyRange
    ) -> None:
        """Let changes of this source reach the status range."""
        values = step.context_values(slots)
        context = status.contexts.get((step, values))
        is_new = context is None
        if context is None:
            context = status.contexts[step, values] = Context(step, values, status)
        updaters = self._store.table(step.table).updaters
        is_linked = updaters.link(source, step.tested_values(slots), context)
        status.view.weigh(contexts=is_new, links=is_linked)

    def unlink(
        self, status: StatusRange, step: Step, slots: dict[str, str], source: KeyRange
    ) -> None:
        """Undo one `link`."""
        context = status.contexts.get((step, step.context_values(slots)))
        if context is None:
            return
        updaters = self._store.table(step.table).updaters
        updater = updaters.find(source, step, step.tested_values(slots))
        if updater is None or context not in updater.contexts:
            return
        context.links.remove(updater)
        updaters.unlink(updater, context)
        status.view.weigh(links=-1)
        if context.log:
            # What waits under this link alone is void: the tuple it belongs to is gone.
            for key in [key for key in context.log if key in updater.keys]:
                if self._tested_here(step, key, updater.tested):
                    context.take(key)
        if not context.links:
            self._forget(context)

    def unlink_all(self, status: StatusRange) -> None:
        for context in list(status.contexts.values()):
            updaters = self._store.table(context.step.table).updaters
            for updater in context.links:
                updaters.unlink(updater, context)
            status.view.weigh(links=-len(context.links))
            context.links.clear()
            self._forget(context)

    def adopt(self, status: StatusRange, other: StatusRange) -> None:
        """Move all links of another status range of the same view to this one."""
        for (step, values), theirs in list(other.contexts.items()):
            ours = status.contexts.get((step, values))
            if ours is None:
                ours = status.contexts[step, values] = Context(step, values, status)
                status.view.weigh(contexts=1)
            updaters = self._store.table(step.table).updaters
            for updater in theirs.links:
                if updaters.link(updater.keys, updater.tested, ours):
                    status.view.weigh(links=1)
        self.unlink_all(other)

    def _tested_here(self, step: Step, key: str, tested: tuple[str, ...]) -> bool:
        slots = step.pattern.match(key)
        return slots is not None and step.tested_values(slots) == tested

    def _forget(self, context: Context) -> None:
        status = context.status
        del status.contexts[context.step, context.values]
        context.forget_log()
        status.view.weigh(contexts=-1)
        if status.pending is not None:
            status.pending.pop(context, None)
