"""Key patterns on Spark: the slots of a column of keys, as expressions.

Most patterns are slots between bars, and splitting a key at its bars is several times faster than a
regular expression. A slot of fixed width may hold bars itself; keys with more of them than the
pattern, and patterns with other literals, are left to the regular expression.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pequod.joins.pattern import Pattern, Slot
from pequod.keys import BAR

Names = Mapping[str, str]  # slot -> column; Spark takes <a> and <A> for the same name


def slot_columns(patterns: Sequence[Pattern]) -> dict[str, str]:
    """A column for each slot of some patterns."""
    slots = {slot.name: None for pattern in patterns for slot in pattern.slots}
    return {name: f"slot{number}" for number, name in enumerate(slots)}


def matched(rows: DataFrame, pattern: Pattern, names: Names, kept: Sequence[Column]) -> DataFrame:
    """The slots of the rows whose keys match, under their columns, and the `kept` columns."""
    rows = rows.where(F.col("key").startswith(pattern.literal_head))
    components = _components(pattern)
    if components is None:
        condition = F.col("key").rlike(java_regex(pattern))
        slots = [_by_regex(pattern, slot) for slot in pattern.slots]
    else:
        condition, slots = _by_split(pattern, components)
    columns = [value.alias(names[slot.name]) for slot, value in zip(pattern.slots, slots)]
    return rows.where(condition).select(*columns, *kept)


def filled(pattern: Pattern, names: Names) -> Column:
    """The key that the pattern is, from the columns of its slots."""
    return F.concat(
        *(
            F.lit(part) if isinstance(part, str) else F.col(names[part.name])
            for part in pattern.parts
        )
    )


def java_regex(pattern: Pattern) -> str:
    """The pattern for Java: a group for each slot, in order; the whole key must match.

    >>> java_regex(Pattern.parse("p|<poster>|<time:10>"))
    '(?s)\\\\Ap\\\\|([^\\\\|]++)\\\\|(.{10})\\\\z'
    """
    numbers = {slot.name: number for number, slot in enumerate(pattern.slots, start=1)}
    seen: set[str] = set()
    pieces = []
    for part in pattern.parts:
        if isinstance(part, str):
            pieces.append(_quoted(part))
        elif part.name in seen:
            pieces.append(f"(?:\\{numbers[part.name]})")
        else:
            seen.add(part.name)
            inner = f".{{{part.width}}}" if part.width else f"[^{_quoted(part.stops)}]++"
            pieces.append(f"({inner})")
    return f"(?s)\\A{''.join(pieces)}\\z"


def _quoted(text: str) -> str:
    """Text that stands for itself in a regular expression."""
    return "".join(c if c.isalnum() or not c.isascii() else "\\" + c for c in text)


def _components(pattern: Pattern) -> list[str | Slot] | None:
    """What stands between the bars, if it is always one literal or one slot."""
    components: list[list[str | Slot]] = [[]]
    for part in pattern.parts:
        if isinstance(part, Slot):
            components[-1].append(part)
            continue
        head, *rest = part.split(BAR)
        components[-1] += [head] if head else []
        components += [[text] if text else [] for text in rest]
    if any(len(component) > 1 for component in components):
        return None
    return [component[0] if component else "" for component in components]


def _by_split(pattern: Pattern, components: Sequence[str | Slot]) -> tuple[Column, list[Column]]:
    """Whether a key matches, and its slots in order."""
    pieces = F.split("key", "\\|")
    size = F.size(pieces)
    condition = size == len(components)
    found: dict[str, Column] = {}
    for number, component in enumerate(components):
        piece = F.get(pieces, F.lit(number))
        if isinstance(component, str):
            condition &= piece == component
        elif component.name in found:
            condition &= piece == found[component.name]
        else:
            found[component.name] = piece
            if component.width is not None:
                condition &= F.length(piece) == component.width
                continue
            condition &= piece != ""
            for stop in component.stops.replace(BAR, ""):
                condition &= ~F.contains(piece, F.lit(stop))
    if all(slot.width is None for slot in pattern.slots):
        return condition, [found[slot.name] for slot in pattern.slots]
    condition |= (size > len(components)) & F.col("key").rlike(java_regex(pattern))
    plain = size == len(components)
    return condition, [
        F.when(plain, found[slot.name]).otherwise(_by_regex(pattern, slot))
        for slot in pattern.slots
    ]


def _by_regex(pattern: Pattern, slot: Slot) -> Column:
    return F.regexp_extract("key", java_regex(pattern), pattern.slots.index(slot) + 1)
