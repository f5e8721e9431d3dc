"""What a change of a source does to the outputs: eager updates, and logs for later.

For one change, what must wait is logged first. Then the joins downstream run before those they
read, and within a join the later sources: a source is thus always combined with the earlier
ones as they were and the later ones as they are, and no pair of changes is counted twice.
"""

from pequod.engine.execution import Derivation, Enter, Execution, Slots, as_it_is
from pequod.engine.outputs import Outputs
from pequod.engine.plan import Step
from pequod.engine.status import Links, StatusRange, same
from pequod.engine.store import Store, Table
from pequod.engine.updaters import Context, Updater
from pequod.engine.weights import ROW_BYTES, row_bytes
from pequod.keys import KeyRange, Value

LOG_LIMIT = 10_000  # waiting changes of one context; beyond it computing anew is cheaper


class Updating:
    """Carries changes of sources to the computed rows that depend on them."""

    def __init__(self, store: Store, execution: Execution, links: Links) -> None:
        self._store = store
        self._execution = execution
        self._links = links
        self.outputs = Outputs(execution, self.notify)

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
        remote, or snapshots that compete cannot be read in the middle of a change."""
        view = step.plan.view
        assert view is not None, "a pull join has no updaters"
        return (
            step.lazy
            or view.recomputes
            or any(
                later.feeders or self._store.is_remote(self._store.table(later.table).keys)
                for later in step.deeper
            )
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
        template, names = step.fan_output.template(slots), step.fan_output.names
        view = step.plan.view
        assert view is not None, "a pull join has no updaters"
        if value is None or not step.fills_exactly or view.table.updaters:
            for context in list(updater.contexts):
                output_key = template % context.values[: len(names)]
                if context.status.first <= output_key < context.status.last:
                    self.outputs.write(context.status, output_key, value)
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
                if status.watches is not None:
                    status.wake()
        view.account(rows, rows * ROW_BYTES + size)

    def _log(
        self, context: Context, slots: Slots, key: str, old: Value | None, new: Value | None
    ) -> None:
        status, step = context.status, context.step
        if status.overflown:
            return
        if old is None:
            bound = step.context_slots(context.values) | slots
            first, last = step.output_range(bound)
            if (first < status.first or status.last < last) and not status.keys.overlaps(
                step.plan.join.output.containing_range(bound)
            ):
                return
        if status.view.recomputes:
            status.overflown = True
        else:
            status.log(context, key, old, new)
            status.overflown = context.log is not None and len(context.log) > LOG_LIMIT
        self.soil(status)

    def soil(self, status: StatusRange) -> None:
        """Note that a range waits for something; whatever was computed from it waits too."""
        if not status.fresh:
            return
        status.fresh = False
        status.suspend()
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
        bound = step.context_slots(context.values) | slots
        if step.gives_value:
            value_key, before, after = key, old, new
        else:
            value_key, value = self._value_above(step, status, bound, key, old)
            if value is None:
                return True
            before, after = (None if old is None else value), (None if new is None else value)
        if old is None:
            found = self._derive(context, bound, value_key, after, enter)
            if found is None:
                self._derive(context, bound, value_key, after, self._unlink_from(status))
                return False
        elif new is None:
            found = self._derive(context, bound, value_key, before, self._unlink_from(status))
        else:
            found = self._derive(context, bound, value_key, after, as_it_is)
        for output_key, _, value in found or ():
            if step.gives_value:
                self.outputs.change(step.plan, status, output_key, before, after)
            elif old is None:
                self.outputs.change(step.plan, status, output_key, None, value)
            else:
                self.outputs.change(step.plan, status, output_key, value, None)
        return True

    def _derive(
        self, context: Context, bound: Slots, value_key: str, value: Value | None, enter: Enter
    ) -> list[Derivation] | None:
        """The derivations by way of one source row; None if `enter` skipped a source."""
        step, status = context.step, context.status
        derivations: list[Derivation] = []
        entered = self._execution.derive(
            step.plan,
            step.deeper,
            bound,
            status.keys,
            enter,
            derivations,
            value_key,
            "" if value is None else value,
        )
        return derivations if entered else None

    def _unlink_from(self, status: StatusRange) -> Enter:
        def enter(step: Step, slots: Slots, source: KeyRange, ranges: list[KeyRange]) -> bool:
            self._links.unlink(status, step, slots, source)
            return True

        return enter

    def _value_above(
        self, step: Step, status: StatusRange, bound: Slots, key: str, old: Value | None
    ) -> tuple[str, Value | None]:
        """The value source's key and value if it stands before this source.

        The value is the one that the outputs reflect: if a change of it waits, the one before.
        If it stands after this source there is no key yet, and any value will do.
        """
        level = step.plan.join.value_level
        if level > step.level:
            return "", ""
        value_step = step.all[level]
        value_key = value_step.pattern.fill(bound)
        context = status.contexts.get((value_step, value_step.context_values(bound)))
        if context is not None and context.log and value_key in context.log:
            return value_key, context.log[value_key]
        # In a join of a table with itself this very row may be the value source too, and its
        # turn as such comes after.
        return value_key, old if value_key == key else self._store.get(value_key)
