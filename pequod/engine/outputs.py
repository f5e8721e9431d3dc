"""Computed rows: what becomes of an output key when one of its derivations changes.

Most rows have one derivation and are simply written. A row of an aggregate changes by
difference. Where several derivations may meet on one key, the key is worked out anew.
"""

from collections.abc import Callable

from pequod.engine.execution import Execution, as_it_is
from pequod.engine.plan import Plan
from pequod.engine.status import StatusRange
from pequod.engine.store import Table
from pequod.keys import Value, point

Notify = Callable[[Table, str, Value | None, Value | None], None]


class Outputs:
    """Writes computed rows, and tells who depends on them."""

    def __init__(self, execution: Execution, notify: Notify) -> None:
        self._execution = execution
        self._notify = notify

    def write(self, status: StatusRange, output_key: str, value: Value | None) -> None:
        """Set a computed row, or remove it if the value is None."""
        view = status.view
        table = view.table
        subtable = status.subtable or table.place(output_key)
        if value is None:
            old = subtable.rows.pop(output_key)
            if old is not None:
                view.account(-1, -view.row_bytes(output_key))
        else:
            old = subtable.rows.put(output_key, value)
            if old is None:
                view.account(1, view.row_bytes(output_key))
        if old != value:
            if status.watches is not None:
                status.wake()
            if table.updaters:
                self._notify(table, output_key, old, value)
        if value is None:
            table.prune(subtable)

    def change(
        self,
        plan: Plan,
        status: StatusRange,
        output_key: str,
        old: Value | None,
        new: Value | None,
    ) -> None:
        """One derivation of an output key had the value `old` and now has `new`."""
        if status.view.contested:
            self._work_out(status, output_key)
        elif status.view.folds:
            self._change_fold(plan, status, output_key, old, new)
        else:
            self.write(status, output_key, new)

    def redo(self, status: StatusRange) -> None:
        """Work out the keys that had to wait."""
        keys, status.redo = status.redo or (), None
        for output_key in keys:
            self._work_out(status, output_key)

    def _change_fold(
        self,
        plan: Plan,
        status: StatusRange,
        output_key: str,
        old: Value | None,
        new: Value | None,
    ) -> None:
        fold = status.folds.get(output_key)
        if fold is not None and old is not None and not fold.remove(old):
            self._work_out(status, output_key)
            return
        if new is not None:
            if fold is None:
                fold = status.folds[output_key] = self._execution.new_fold(plan)
            if not fold.add(new):
                plan.counters.skipped += 1
        self._write_fold(status, output_key)

    def _write_fold(self, status: StatusRange, output_key: str) -> None:
        fold = status.folds.get(output_key)
        result = fold.result() if fold is not None else None
        if result is None:
            status.folds.pop(output_key, None)
        self.write(status, output_key, result)

    def _work_out(self, status: StatusRange, output_key: str) -> None:
        """Look at all derivations of a key anew: a lost extreme, or a contest."""
        if status.pending:
            # The sources are ahead of the outputs while changes wait, and a change that is
            # taken back before it is settled would leave its trace here.
            if status.redo is None:
                status.redo = set()
            status.redo.add(output_key)
            return
        view = status.view
        if view.folds:
            derivations = self._execution.derive_range(view.plans[0], point(output_key), as_it_is)
            status.folds.pop(output_key, None)
            status.folds.update(self._execution.fold(view.plans[0], derivations))
            self._write_fold(status, output_key)
        else:
            self.write(status, output_key, self._execution.winner(view.plans, output_key, as_it_is))
