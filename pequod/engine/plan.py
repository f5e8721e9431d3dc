"""A join made ready to run: for each source, what is known when the nested loop gets there.

Which slots are bound at a source follows from the slots the output range binds and from the
sources before it, so everything about names and places is worked out once and kept.
"""

import re
from typing import TYPE_CHECKING

from pequod.engine.weights import PLAN_BYTES, SOURCE_BYTES, STEP_BYTES, Account
from pequod.joins.containing import Containment
from pequod.joins.join import SNAPSHOT, CacheJoin
from pequod.joins.pattern import Pattern, Slot, SlotSet
from pequod.keys import KeyRange, point, prefix, table_of

if TYPE_CHECKING:
    from pequod.engine.status import View


class Counters:
    """What a join has done so far."""

    __slots__ = ("computes", "evictions", "invalidations", "skipped", "updater_runs")

    def __init__(self) -> None:
        self.computes = 0
        self.updater_runs = 0
        self.invalidations = 0
        self.evictions = 0
        self.skipped = 0


class Plan:
    """An installed join with its steps."""

    def __init__(self, join: CacheJoin, order: int, account: Account) -> None:
        self.join = join
        self.bytes = PLAN_BYTES + SOURCE_BYTES * len(join.sources)
        self._account = account
        self.order = order  # joins installed earlier win ties
        self.rank = 0  # a join ranks above every join whose output it reads
        self.counters = Counters()
        self.output_keys = prefix(join.output.literal_head)
        self.view: View | None = None  # a pull join has none
        self.feeders: list[list[View]] = []  # for each source, the views that may write it
        self.pulls: list[list[Plan]] = []  # and the pull joins
        self.writes_directly = False  # its rows need neither folding nor comparing
        self.source_tables = {table_of(source.pattern.literal_head) for source in join.sources}
        self.watches = join.maintenance != SNAPSHOT
        self._steps: dict[frozenset[str], tuple[Step, ...]] = {}

    def forget(self) -> None:
        """Let go of all that knows this plan, now that it is not installed any more."""
        for steps in self._steps.values():
            for step in steps:
                step.all = ()
        self._steps.clear()
        self.view = None
        self.feeders, self.pulls = [], []

    def steps(self, slots: SlotSet) -> tuple["Step", ...]:
        """The nested loop for an output range that binds these slots."""
        bound = frozenset(slots)
        steps = self._steps.get(bound)
        if steps is None:
            made: list[Step] = []
            known = bound
            for level, source in enumerate(self.join.sources):
                made.append(Step(self, level, known))
                known |= source.pattern.names
            steps = self._steps[bound] = tuple(made)
            for step in steps:
                step.all = steps
            self.bytes += STEP_BYTES * len(steps)
            self._account.bytes += STEP_BYTES * len(steps)
        return steps


class Step:
    """One source of a plan, given the names of the slots bound before it."""

    def __init__(self, plan: Plan, level: int, bound: frozenset[str]) -> None:
        join = plan.join
        source = join.sources[level]
        pattern = source.pattern
        self.plan = plan
        self.level = level
        self.pattern = pattern
        self.bound = bound
        self.all: tuple[Step, ...] = ()
        self.is_last = level == len(join.sources) - 1
        self.gives_value = level == join.value_level
        self.lazy = source.lazy
        self.table = table_of(pattern.literal_head)

        head = pattern.head(bound)
        self.head_names, self._head = _template(head)
        self.is_point = len(head) == len(pattern.parts)
        self.tail = re.compile(pattern.tail_regex(len(head)), re.DOTALL)
        tail_names = [part.name for part in pattern.parts[len(head) :] if isinstance(part, Slot)]
        self.new_names = tuple(dict.fromkeys(name for name in tail_names if name not in bound))
        self.tested = tuple(dict.fromkeys(name for name in tail_names if name in bound))

        # A key that ends in one open slot of fixed width needs no matching but of its length.
        final = pattern.parts[len(head) :]
        self.final_width = (
            final[0].width if len(final) == 1 and isinstance(final[0], Slot) else None
        )

        # A context's values: those the output needs come first and in its order, so that a
        # change turns into output keys by one `%` per context.
        fixed = pattern.names
        self.fill_names = [
            part.name
            for part in join.output.parts
            if isinstance(part, Slot) and part.name in bound - fixed
        ]
        others = sorted(bound - fixed - set(self.fill_names))
        self.context_names = (*self.fill_names, *others)
        self.fills_exactly = not others

        output_head = join.output.head(bound)
        self.output_names, self._output_head = _template(output_head)
        self._is_one_output = len(output_head) == len(join.output.parts)
        self.containment = Containment(join.output, pattern, bound)
        self.output = OpenOutput(join.output, bound)  # as it is when the loop gets here
        self.fan_output = OpenOutput(join.output, fixed)  # as a key of this source alone tells it

    @property
    def feeders(self) -> list["View"]:
        """The views whose rows this source may read."""
        return self.plan.feeders[self.level]

    @property
    def pulls(self) -> list[Plan]:
        """The pull joins whose rows this source may read."""
        return self.plan.pulls[self.level]

    @property
    def deeper(self) -> tuple["Step", ...]:
        """The steps of the sources after this one."""
        return self.all[self.level + 1 :]

    def source_range(self, slots: SlotSet) -> KeyRange:
        """Everything that can match here under `slots`."""
        text = self._head % tuple([slots[name] for name in self.head_names])
        return point(text) if self.is_point else prefix(text)

    def output_range(self, slots: SlotSet) -> KeyRange:
        """All output keys there can be under `slots`."""
        text = self._output_head % tuple([slots[name] for name in self.output_names])
        return point(text) if self._is_one_output else prefix(text)

    def tested_values(self, slots: SlotSet) -> tuple[str, ...]:
        return tuple([slots[name] for name in self.tested]) if self.tested else ()

    def context_values(self, slots: SlotSet) -> tuple[str, ...]:
        return tuple([slots[name] for name in self.context_names])

    def context_slots(self, values: tuple[str, ...]) -> dict[str, str]:
        return dict(zip(self.context_names, values, strict=True))


class OpenOutput:
    """An output pattern of which some slots are known: the texts around those left open.

    >>> output = OpenOutput(Pattern.parse("t|<user>|<time>|<poster>"), frozenset({"user"}))
    >>> output.names, output.pieces({"user": "ann"}), output.template({"user": "ann"})
    (['time', 'poster'], ['t|ann|', '|', ''], 't|ann|%s|%s')
    """

    def __init__(self, pattern: Pattern, bound: frozenset[str]) -> None:
        self.names: list[str] = []  # of the slots left open
        around: list[list[str | Slot]] = [[]]
        for part in pattern.parts:
            if isinstance(part, str) or part.name in bound:
                around[-1].append(part)
            else:
                self.names.append(part.name)
                around.append([])
        self._around = [_template(tuple(parts)) for parts in around]

    def pieces(self, slots: SlotSet) -> list[str]:
        """The texts around the slots left open."""
        return [
            text % tuple([slots[name] for name in names]) if names else text % ()
            for names, text in self._around
        ]

    def template(self, slots: SlotSet) -> str:
        """The pattern with what is known filled in, and `%s` for each slot left open."""
        return "%s".join(map(_escaped, self.pieces(slots)))


def _template(parts: tuple[str | Slot, ...]) -> tuple[list[str], str]:
    names = [part.name for part in parts if isinstance(part, Slot)]
    return names, "".join(_escaped(part) if isinstance(part, str) else "%s" for part in parts)


def _escaped(text: str) -> str:
    return text.replace("%", "%%")
