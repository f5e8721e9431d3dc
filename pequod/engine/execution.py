"""Forward execution: the paper's nested loop over sources, in source order.

A *derivation* is one way to an output key: the key, the value source's key, and its value.
The loop itself neither freshens nor links anything: before it reads a source it calls
`enter`, and what that does is the business of its caller.
"""

from collections.abc import Callable, Iterable

from pequod.engine.operators import FOLDS, Fold
from pequod.engine.plan import Plan, Step
from pequod.joins.containing import slots_of_range
from pequod.keys import KeyRange, Value, point

Derivation = tuple[str, str, Value]
Slots = dict[str, str]
# Called before a source is read, with the slots so far, all that can match under them, and the
# ranges to read; False skips it.
Enter = Callable[[Step, Slots, KeyRange, list[KeyRange]], bool]
# The rows of a range of a source, as parallel lists of keys and values.
Spans = Callable[[Step, KeyRange], Iterable[tuple[list[str], list[Value]]]]


def as_it_is(step: Step, slots: Slots, source: KeyRange, ranges: list[KeyRange]) -> bool:
    """The `enter` that reads what the store holds."""
    return True


class Execution:
    """Runs plans over the store."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self.rows_read = 0

    def derive_range(self, plan: Plan, keys: KeyRange, enter: Enter) -> list[Derivation]:
        """All derivations of a plan into an output range."""
        slots = slots_of_range(plan.join.output, keys)
        derivations: list[Derivation] = []
        if slots is not None:
            self.derive(plan, plan.steps(slots), slots, keys, enter, derivations)
        return derivations

    def derive(
        self,
        plan: Plan,
        steps: tuple[Step, ...],
        slots: Slots,
        keys: KeyRange | None,
        enter: Enter,
        derivations: list[Derivation],
        value_key: str = "",
        value: Value = "",
    ) -> bool:
        """Add the derivations of the remaining `steps` under `slots` whose output is in `keys`.

        None for `keys` says that all of them are, which then holds for all further steps too.
        False if `enter` skipped a source.
        """
        if not steps:
            output_key = plan.join.output.fill(slots)
            if keys is None or keys.first <= output_key < keys.last:
                derivations.append((output_key, value_key, value))
            return True
        step = steps[0]
        source = step.source_range(slots)
        ranges = [source]
        if keys is not None:
            known = step.output_range(slots)
            if keys.first <= known.first and known.last <= keys.last:
                keys = None
            else:
                ranges = step.containment.ranges(known, source, keys)
        if not ranges:
            return True
        if not enter(step, slots, source, ranges):
            return False
        if step.is_last:
            given = None if step.gives_value else (value_key, value)
            self._innermost(step, slots, len(source.first), ranges, keys, given, derivations)
            return True
        entered = True
        match, skip = step.tail.fullmatch, len(source.first)
        rest, new, tested = steps[1:], step.new_names, step.tested
        for source_keys in ranges:
            for span_keys, span_values in self._spans(step, source_keys):
                self.rows_read += len(span_keys)
                for key, source_value in zip(span_keys, span_values, strict=True):
                    matched = match(key, skip)
                    if matched is None:
                        continue
                    if tested and any(matched[name] != slots[name] for name in tested):
                        continue
                    inner = slots.copy()
                    for name in new:
                        inner[name] = matched[name]
                    if step.gives_value:
                        value_key, value = key, source_value
                    entered &= self.derive(
                        plan, rest, inner, keys, enter, derivations, value_key, value
                    )
        return entered

    def _innermost(
        self,
        step: Step,
        slots: Slots,
        skip: int,
        ranges: list[KeyRange],
        keys: KeyRange | None,
        given: tuple[str, Value] | None,
        derivations: list[Derivation],
    ) -> None:
        """The last source: every matching row is one derivation."""
        names, match, tested = step.output.names, step.tail.fullmatch, step.tested
        length = 0
        if step.final_width and len(names) == 1 and not tested:
            length = skip + step.final_width
            before, after = step.output.pieces(slots)
        else:
            template = step.output.template(slots)
        for source_keys in ranges:
            for span_keys, span_values in self._spans(step, source_keys):
                self.rows_read += len(span_keys)
                if length:
                    found = [
                        (before + key[skip:] + after, key, value)
                        for key, value in zip(span_keys, span_values, strict=True)
                        if len(key) == length
                    ]
                elif names and not tested:
                    found = [
                        (template % matched.group(*names), key, value)
                        for key, value in zip(span_keys, span_values, strict=True)
                        if (matched := match(key, skip))
                    ]
                else:
                    found = [
                        (template % tuple([matched[name] for name in names]), key, value)
                        for key, value in zip(span_keys, span_values, strict=True)
                        if (matched := match(key, skip))
                        and all(matched[name] == slots[name] for name in tested)
                    ]
                if keys is not None:
                    found = [one for one in found if keys.first <= one[0] < keys.last]
                if given is not None:
                    found = [(output_key, *given) for output_key, _, _ in found]
                derivations += found

    def winner(self, plans: Iterable[Plan], output_key: str, enter: Enter) -> Value | None:
        """The value of one output key: of all derivations, the greatest value-source key wins."""
        rows = self.combined(
            (plan, self.derive_range(plan, point(output_key), enter)) for plan in plans
        )
        return rows.get(output_key)

    def combined(self, found: Iterable[tuple[Plan, list[Derivation]]]) -> dict[str, Value]:
        """Derivations of several plans as rows, one for each output key."""
        best: dict[str, tuple[str, int, Value]] = {}
        for plan, derivations in found:
            if plan.join.aggregates:
                derivations = self._folded_with_key(plan, derivations)
            for output_key, value_key, value in derivations:
                candidate = (value_key, -plan.order, value)
                if output_key not in best or candidate[:2] > best[output_key][:2]:
                    best[output_key] = candidate
        return {output_key: value for output_key, (_, _, value) in best.items()}

    def new_fold(self, plan: Plan) -> Fold:
        return FOLDS[plan.join.operator]()

    def fold(self, plan: Plan, derivations: list[Derivation]) -> dict[str, Fold]:
        """The groups of an aggregate."""
        make = FOLDS[plan.join.operator]
        folds: dict[str, Fold] = {}
        for output_key, _, value in derivations:
            fold = folds.get(output_key)
            if fold is None:
                fold = folds[output_key] = make()
            if not fold.add(value):
                plan.counters.skipped += 1
        return folds

    def _folded_with_key(self, plan: Plan, derivations: list[Derivation]) -> list[Derivation]:
        """An aggregate's rows, each with the greatest value-source key that counts in it."""
        groups: dict[str, list[Derivation]] = {}
        for derivation in derivations:
            if FOLDS[plan.join.operator]().add(derivation[2]):
                groups.setdefault(derivation[0], []).append(derivation)
            else:
                plan.counters.skipped += 1
        rows: list[Derivation] = []
        for output_key, group in groups.items():
            result = self.fold(plan, group)[output_key].result()
            assert result is not None, f"a group without rows at {output_key!r}"
            rows.append((output_key, max(value_key for _, value_key, _ in group), result))
        return rows
