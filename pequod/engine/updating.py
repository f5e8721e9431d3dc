"""What a change of a source does to the outputs: eager updates, and logs for later.

For one change, what must wait is logged first. Then the joins downstream run before those they
read, and within a join the later sources: a source is thus always combined with the earlier
ones as they were and the later ones as they are, and no pair of changes is counted twice.
"""

from pequod.engine.execution import Derivation, Enter, Execution, Slots, as_it_is
from pequod.engine.plan import Plan, Step, output_template
from pequod.engine.status import Links, StatusRange, same
from pequod.engine.store import ROW_BYTES, Store, Table, row_bytes
from pequod.engine.updaters import Context, Updater
from pequod.keys import KeyRange, Value

LOG_LIMIT = 10_000  # waiting changes of one context; beyond it computing anew is cheaper


class Updating:
    """Carries changes of sources to the computed rows that depend on them."""

    def __init__(self, store: Store, execution: Execution, links: Links) -> None:
        self._store = store
        self._execution = execution
        self._links = links

    def notify(self, table: Table, key: str, old: Value | None, new: Value | None) -> None:
        """Tell everybody who watches `key` that it changed."""
        watchers = table.updaters.watching(key)
        if not watchers:
            return
        steps = [found for watched in watchers for found in watched.items()]
        if len(steps) > 1:
            steps.sort(key=lambda found: self._turn(found[0]))
        for step, by_tested in steps:
            if same(step, old, new):
                continue
            slots = step.pattern.match(key)
            if slots is None:
                continue
            updater = by_tested.get(step.tested_values(slots))
            if updater is not None:
                step.plan.counters.updater_runs += len(updater.contexts)
                self._run(step, updater, slots, key, old, new)

    def _turn(self, step: Step) -> tuple[bool, int, int]:
        """Who comes first: what must wait is noted before anybody looks at the sources."""
        return not self._waits(step), -step.plan.rank, -step.level

    def _waits(self, step: Step) -> bool:
        """True if changes here go to the log: by wish, or because later sources, computed or
        remote, cannot be read in the middle of a change."""
        return step.lazy or any(
            later.feeders or self._store.is_remote(self._store.table(later.table).keys)
            for later in step.deeper
        )

    def _run(
        self,
        step: Step,
        updater: Updater,
        slots: Slots,
        key: str,
        old: Value | None,
        new: Value | None,
    ) -> None:
        if step.is_last and step.gives_value and not step.lazy and step.plan.writes_directly:
            self._fan_out(step, updater, slots, new)
            return
        waits = self._waits(step)
        for context in list(updater.contexts):
            status = context.status
            if waits or (status.pending and not step.is_last):
                self._log(context, slots, key, old, new)
            else:
                self.apply(context, slots, key, old, new, self._link_into(status))

    def _link_into(self, status: StatusRange) -> Enter:
        def enter(step: Step, slots: Slots, source: KeyRange, ranges: list[KeyRange]) -> bool:
            self._links.link(status, step, slots, source)
            return True

        return enter

    def _fan_out(self, step: Step, updater: Updater, slots: Slots, value: Value | None) -> None:
        """A new value for one row under each context: the hottest loop of all."""
        template, names = output_template(step.plan.join.output, slots)
        view = step.plan.view
        assert view is not None, "a pull join has no updaters"
        if value is None or not step.fills_exactly or view.table.updaters:
            for context in list(updater.contexts):
                output_key = template % context.values[: len(names)]
                if context.status.first <= output_key < context.status.last:
                    self.write(context.status, output_key, value)
            return
        place = view.table.place
        rows = size = 0
        for context in updater.contexts:
            output_key = template % context.values
            status = context.status
            if status.first <= output_key < status.last:
                subtable = status.subtable or place(output_key)
                if subtable.rows.put(output_key, value) is None:
                    rows += 1
                    size += (
                        len(output_key)
                        if output_key.isascii()
                        else row_bytes(output_key) - ROW_BYTES
                    )
        view.account(rows, rows * ROW_BYTES + size)

    def write(self, status: StatusRange, output_key: str, value: Value | None) -> None:
        """Set or remove a computed row, and tell who depends on it."""
        view = status.view
        if value is None:
            subtable = view.table.subtable_of(output_key)
            old = subtable.rows.pop(output_key) if subtable is not None else None
            if old is None:
                return
            view.account(-1, -view.row_bytes(output_key))
        else:
            old = (status.subtable or view.table.place(output_key)).rows.put(output_key, value)
            if old is None:
                view.account(1, view.row_bytes(output_key))
        if old != value and view.table.updaters:
            self.notify(view.table, output_key, old, value)
        if value is None and subtable is not None:
            view.table.prune(subtable)

    def _log(
        self, context: Context, slots: Slots, key: str, old: Value | None, new: Value | None
    ) -> None:
        status, step = context.status, context.step
        if status.overflown:
            return
        if old is None:
            bound = step.context_slots(context.values) | slots
            if not status.keys.overlaps(step.plan.join.output.containing_range(bound)):
                return
        status.log(context, key, old, new)
        self.soil(status)
        if context.log is not None and len(context.log) > LOG_LIMIT:
            status.overflown = True

    def soil(self, status: StatusRange) -> None:
        """Note that a range waits for something; whatever was computed from it waits too."""
        if not status.fresh:
            return
        status.fresh = False
        status.forget_hints()
        for dependent in status.view.table.updaters.statuses(status.keys, status.view):
            if dependent.waits_on is None:
                dependent.waits_on = {}
            dependent.waits_on[status] = None
            self.soil(dependent)

    def apply(
        self,
        context: Context,
        slots: Slots,
        key: str,
        old: Value | None,
        new: Value | None,
        enter: Enter,
    ) -> bool:
        """Bring the outputs up to date with one source change; False if `enter` skipped."""
        step, status = context.step, context.status
        plan = step.plan
        bound = step.context_slots(context.values) | slots
        value_key, before, after = "", old, new
        if step.gives_value:
            value_key = key
        elif plan.join.value_level < step.level:
            value_step = step.all[plan.join.value_level]
            value_key = value_step.pattern.fill(bound)
            # In a join of a table with itself this very row may be the value source too, and
            # its turn as such comes after.
            stored = old if value_key == key else self._store.get(value_key)
            before = after = self._applied_value(status, value_step, bound, value_key, stored)
            if before is None:
                return True
        derivations: list[Derivation] = []

        def derive(enter: Enter, value: Value | None) -> None:
            self._execution.derive(
                plan,
                step.deeper,
                bound,
                status.keys,
                enter,
                derivations,
                value_key,
                "" if value is None else value,
            )

        if old is None:
            skipped = False

            def entering(
                step: Step, slots: Slots, source: KeyRange, ranges: list[KeyRange]
            ) -> bool:
                nonlocal skipped
                entered = enter(step, slots, source, ranges)
                skipped = skipped or not entered
                return entered

            derive(entering, after)
            if skipped:
                derivations.clear()
                derive(self._unlink_from(status), after)
                return False
            for output_key, _, value in derivations:
                self._add(plan, status, output_key, value)
        elif new is None:
            derive(self._unlink_from(status), before)
            for output_key, _, value in derivations:
                self._remove(plan, status, output_key, value)
        else:
            derive(as_it_is, new)
            for output_key, _, value in derivations:
                self._replace(plan, status, output_key, old, value)
        return True

    def _unlink_from(self, status: StatusRange) -> Enter:
        def enter(step: Step, slots: Slots, source: KeyRange, ranges: list[KeyRange]) -> bool:
            self._links.unlink(status, step, slots, source)
            return True

        return enter

    def _applied_value(
        self, status: StatusRange, step: Step, bound: Slots, key: str, stored: Value | None
    ) -> Value | None:
        """The value that the outputs reflect: if a change of it waits, the one before."""
        context = status.contexts.get((step, step.context_values(bound)))
        if context is not None and context.log and key in context.log:
            return context.log[key]
        return stored

    def _add(self, plan: Plan, status: StatusRange, output_key: str, value: Value) -> None:
        view = status.view
        if view.folds:
            assert status.folds is not None, "an aggregate without groups"
            fold = status.folds.get(output_key)
            if fold is None:
                fold = status.folds[output_key] = self._execution.new_fold(plan)
            if not fold.add(value):
                plan.counters.skipped += 1
            self._write_fold(status, output_key)
        elif not view.contested:
            self.write(status, output_key, value)
        else:
            self._recompute(status, output_key)

    def _remove(self, plan: Plan, status: StatusRange, output_key: str, value: Value) -> None:
        view = status.view
        if view.folds:
            assert status.folds is not None, "an aggregate without groups"
            fold = status.folds.get(output_key)
            if fold is None:
                return  # none of its rows ever counted
            if not fold.remove(value):
                self._fold_anew(plan, status, output_key)
            self._write_fold(status, output_key)
        elif not view.contested:
            self.write(status, output_key, None)
        else:
            self._recompute(status, output_key)

    def _replace(
        self, plan: Plan, status: StatusRange, output_key: str, old: Value, new: Value
    ) -> None:
        view = status.view
        if view.folds:
            assert status.folds is not None, "an aggregate without groups"
            fold = status.folds.get(output_key)
            if fold is not None and not fold.remove(old):
                self._fold_anew(plan, status, output_key)
                self._write_fold(status, output_key)
            else:
                self._add(plan, status, output_key, new)
        elif not view.contested:
            self.write(status, output_key, new)
        else:
            self._recompute(status, output_key)

    def _fold_anew(self, plan: Plan, status: StatusRange, output_key: str) -> None:
        """Work out a group that lost its extreme from the rows there are."""
        assert status.folds is not None, "an aggregate without groups"
        if self._must_wait(status, output_key):
            return
        status.folds.pop(output_key, None)
        keys = KeyRange(output_key, output_key + "\0")
        derivations = self._execution.derive_range(plan, keys, as_it_is)
        status.folds.update(self._execution.fold(plan, derivations))

    def _must_wait(self, status: StatusRange, output_key: str) -> bool:
        """True while changes wait: the sources are ahead of the outputs, which a look at the
        sources would not know, so the key is noted and worked out when all is settled."""
        if status.pending:
            if status.redo is None:
                status.redo = set()
            status.redo.add(output_key)
            return True
        return False

    def redo(self, status: StatusRange) -> None:
        """Work out the keys that had to wait."""
        keys, status.redo = status.redo or (), None
        for output_key in keys:
            if status.view.folds:
                self._fold_anew(status.view.plans[0], status, output_key)
                self._write_fold(status, output_key)
            else:
                self._recompute(status, output_key)

    def _write_fold(self, status: StatusRange, output_key: str) -> None:
        assert status.folds is not None, "an aggregate without groups"
        fold = status.folds.get(output_key)
        result = fold.result() if fold is not None else None
        if result is None:
            status.folds.pop(output_key, None)
        self.write(status, output_key, result)

    def _recompute(self, status: StatusRange, output_key: str) -> None:
        """Let all derivations of a key compete anew."""
        if self._must_wait(status, output_key):
            return
        value = self._execution.winner(status.view.plans, output_key, as_it_is)
        self.write(status, output_key, value)
