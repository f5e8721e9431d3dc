"""A cache join that passed every check one can make without knowing the other joins."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from itertools import chain

from pequod.errors import JoinError
from pequod.joins.pattern import MAX_PATTERN, Pattern, Slot, clipped
from pequod.keys import BAR, END, table_of

CHECK, COPY = "check", "copy"
PUSH, PULL, SNAPSHOT = "push", "pull", "snapshot"

MAX_SOURCES = 16

_FOREIGN_SLOT = re.compile(r"\{(\w+)\}|\[(\w+)\]|\$(\w+)|:([^\W\d]\w*)")


@dataclass(frozen=True)
class Source:
    """One source: how its keys or values count, and whether its changes may wait."""

    operator: str
    pattern: Pattern
    lazy: bool

    @property
    def text(self) -> str:
        usual = self.lazy == (self.operator == CHECK)
        hurry = "" if usual else "lazy " if self.lazy else "eager "
        return f"{hurry}{self.operator} {self.pattern.text}"


@dataclass(frozen=True)
class CacheJoin:
    """`output = maintenance source...`, with slots that agree on widths and stops."""

    name: str
    output: Pattern
    sources: tuple[Source, ...]
    maintenance: str = PUSH
    seconds: float = 0.0
    line: int = field(default=1, compare=False)  # of the text it came from

    @property
    def text(self) -> str:
        """The join in the language, written one way, without its name."""
        how = {PUSH: "", PULL: "pull ", SNAPSHOT: f"snapshot {_seconds(self.seconds)} "}[
            self.maintenance
        ]
        return f"{self.output.text} = {how}{' '.join(source.text for source in self.sources)};"

    @property
    def table(self) -> str:
        return table_of(self.output.literal_head)

    @cached_property
    def value_level(self) -> int:
        """The number of the source whose values count."""
        return next(level for level, source in enumerate(self.sources) if source.operator != CHECK)

    @property
    def operator(self) -> str:
        return self.sources[self.value_level].operator

    @property
    def aggregates(self) -> bool:
        return self.operator != COPY

    @cached_property
    def determined(self) -> bool:
        """True if an output key tells all source keys, so that it has one derivation."""
        return all(source.pattern.names <= self.output.names for source in self.sources)

    @property
    def warnings(self) -> list[str]:
        """What a user should know although the join is fine."""
        found = []
        source = self.sources[self.value_level]
        free = sorted(source.pattern.names - self.output.names)
        if free and not self.aggregates:
            slots = ", ".join(f"<{name}>" for name in free)
            found.append(
                f"ambiguous: several keys of {source.pattern.text} may give one output key, "
                f"and the greatest of them wins; add {slots} to the output to keep all"
            )
        return [*found, *_misread(self)]


def _seconds(seconds: float) -> str:
    """Seconds as the language writes them, without an exponent."""
    text = f"{Decimal(repr(seconds)):f}"
    return text.removesuffix(".0")


def _misread(join: CacheJoin) -> Iterator[str]:
    """A warning for each literal that was probably meant otherwise."""
    name, _, table = join.table.partition(":")
    if name.isidentifier() and table:
        yield (
            f"{name}: is a part of the table's name in {join.output.text}; "
            f"if it names the join, write a space after its colon, as in {name}: {table}|"
        )
    for pattern in _patterns(join):
        for part in pattern.text.split(BAR):
            if foreign := _FOREIGN_SLOT.fullmatch(part):
                slot = foreign[foreign.lastindex or 0]
                yield f"{part} is literal in {pattern.text}; slots are written <{slot}>"


def checked(join: CacheJoin) -> CacheJoin:
    """The join with its slots agreed upon; raises `JoinError` if it makes no sense."""
    _check_sources(join)
    if not any(pattern.slots for pattern in _patterns(join)):
        raise JoinError(
            f"{join.output.text} has no slots, nor has a source; "
            "write what varies as a slot, like <user> or <time:10>"
        )
    for pattern in _patterns(join):
        _check_pattern(pattern)
    known = _agreed_slots(join)
    bound = set(chain.from_iterable(source.pattern.names for source in join.sources))
    for slot in join.output.slots:
        if slot.name not in bound:
            raise JoinError(
                f"output slot <{slot.name}> is unbound: no source has it; "
                f"add <{slot.name}> to a source or take it out of {join.output.text}"
            )
    return replace(
        join,
        output=join.output.with_slots(known),
        sources=tuple(
            replace(source, pattern=source.pattern.with_slots(known)) for source in join.sources
        ),
    )


def _patterns(join: CacheJoin) -> list[Pattern]:
    return [join.output, *(source.pattern for source in join.sources)]


def _check_sources(join: CacheJoin) -> None:
    if len(join.sources) > MAX_SOURCES:
        raise JoinError(
            f"{len(join.sources)} sources; a join has at most {MAX_SOURCES}: "
            "compute a part of it by a join of its own"
        )
    values = [source for source in join.sources if source.operator != CHECK]
    if not values:
        raise JoinError("no value source: make one `check` a copy, count, sum, min, max or avg")
    if len(values) > 1:
        raise JoinError(
            f"{len(values)} value sources ({clipped(', '.join(one.text for one in values), 200)}): "
            "only one may give the value, make the others `check`"
        )
    if join.maintenance == SNAPSHOT and not 0 < join.seconds < 1e9:
        raise JoinError(f"snapshot {join.seconds:g}: say seconds above 0 and below 1000000000")


def _check_pattern(pattern: Pattern) -> None:
    if BAR not in pattern.literal_head:
        raise JoinError(
            f"{pattern.text} names no table: a pattern starts with its table and a bar, "
            "as in p|<poster>|<time>"
        )
    if pattern.literal_head.startswith(END):
        raise JoinError(f"no key may start with {END!r}; give the table another name")
    for slot in pattern.slots:
        if slot.width == 0:
            raise JoinError(
                f"slot <{slot.name}:0> is empty, which no slot may be; write <{slot.name}:1>"
            )


def _agreed_slots(join: CacheJoin) -> dict[str, Slot]:
    """Each slot with the one width and the stops that hold in the whole join."""
    known: dict[str, Slot] = {}
    for pattern in _patterns(join):
        for slot, following in pattern.followers():
            before = known.get(slot.name, slot)
            width = before.width if slot.width is None else slot.width
            if before.width not in (None, width):
                raise JoinError(
                    f"slot <{slot.name}> has conflicting widths {before.width} and {width}; "
                    "give it one width"
                )
            stop = following[0] if isinstance(following, str) else ""
            stops = before.stops if stop in before.stops else before.stops + stop
            known[slot.name] = Slot(slot.name, width, stops)
    for pattern in _patterns(join):
        for slot, following in pattern.followers():
            if known[slot.name].width is None and isinstance(following, Slot):
                raise JoinError(
                    f"nothing parts <{slot.name}> from <{following.name}> in {pattern.text}; "
                    f"write a literal between them or give <{slot.name}:n> a width"
                )
        if sum(known[slot.name].width or 0 for slot, _ in pattern.followers()) > MAX_PATTERN:
            raise JoinError(
                f"the slots of {pattern.text} are wider than {MAX_PATTERN} characters in all; "
                "give them smaller widths"
            )
    return {
        name: slot if slot.width is None else Slot(name, slot.width) for name, slot in known.items()
    }
