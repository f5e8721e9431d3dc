"""Which source keys can matter for an output range: the paper's slot sets and containing ranges.

Both functions are correct for every key. They are tight for slots of fixed width; for a
slot that runs to the next literal, `|` sorts above digits and letters, so that keys do not
sort like their slots: `t|ann|10|bob` > `t|ann|100|bob` although `p|bob|10` < `p|bob|100`.
There the range between the bounds is joined by the few keys whose slot is a proper prefix
of a bound.
"""

from pequod.joins.pattern import Part, Pattern, Slot, SlotSet
from pequod.keys import KeyRange, point, prefix, successor


def slots_of_range(pattern: Pattern, keys: KeyRange) -> dict[str, str] | None:
    """The slots that have one value in all matching keys of the range; None if none matches.

    >>> slots_of_range(Pattern.parse("t|<user>|<time>"), KeyRange("t|ann|1", "t|ann|3"))
    {'user': 'ann'}
    """
    if keys == point(keys.first):
        return pattern.match(keys.first)
    shared = _shared_text(keys)
    slots: dict[str, str] = {}
    place = 0
    for number, part in enumerate(pattern.parts):
        if isinstance(part, str):
            text = shared[place : place + len(part)]
            if not part.startswith(text):
                return None
            place += len(part)
            if place > len(shared):
                break
            continue
        value = _slot_value(part, shared[place:])
        if value is None:
            break
        following = pattern.parts[number + 1] if number + 1 < len(pattern.parts) else None
        if not value or (part.width is None and following is None):
            return None
        if slots.setdefault(part.name, value) != value:
            return None
        place += len(value)
    else:
        if place < len(shared):
            return None
    return slots


def containing_ranges(
    output: Pattern, source: Pattern, slots: SlotSet, keys: KeyRange
) -> list[KeyRange]:
    """The source ranges that hold every source key which, under `slots`, may give one of `keys`.

    >>> output, source = Pattern.parse("t|<user>|<time:3>"), Pattern.parse("p|<time:3>")
    >>> containing_ranges(output, source, {"user": "ann"}, KeyRange("t|ann|100", "t|ann|200"))
    [KeyRange(first='p|100', last='p|200')]
    """
    known_output = output.containing_range(slots)
    if not keys.overlaps(known_output):
        return []
    whole = source.containing_range(slots)
    if keys.first <= known_output.first and known_output.last <= keys.last:
        return [whole]
    output_head, source_head = output.head(slots), source.head(slots)
    cut = _part(output, len(output_head))
    if not isinstance(cut, Slot) or _part(source, len(source_head)) != cut:
        return [whole]
    known, base = known_output.first, whole.first
    lower = keys.first[len(known) :] if keys.first.startswith(known) else ""
    upper = keys.last[len(known) :] if keys.last.startswith(known) else None
    if cut.width is not None:
        first = base + lower[: cut.width]
        if upper is None:
            return [KeyRange(first, whole.last)]
        short = len(upper) <= cut.width
        return [KeyRange(first, base + upper if short else successor(base + upper[: cut.width]))]
    after_output = _part(output, len(output_head) + 1)
    after_source = _part(source, len(source_head) + 1)
    lower = _until_stop(cut, lower)
    ranges = [KeyRange(base + lower, whole.last)]
    bounds = [lower]
    if upper is not None:
        bounds.append(_until_stop(cut, upper))
        ranges = [KeyRange(base + lower, base + upper[: len(bounds[1]) + 1])]
    for value in {bound[:length] for bound in bounds for length in range(1, len(bound) + 1)}:
        if keys.overlaps(_with_value(known, value, after_output)):
            ranges.append(_with_value(base, value, after_source))
    return _united(ranges)


def _shared_text(keys: KeyRange) -> str:
    """The longest text that every key of the range starts with."""
    length = 0
    for ours, theirs in zip(keys.first, keys.last, strict=False):
        if ours != theirs:
            break
        length += 1
    shared = keys.first[:length]
    beyond = keys.first[len(shared) : len(shared) + 1]
    if beyond and keys.last == successor(shared + beyond):
        return shared + beyond
    return shared


def _slot_value(slot: Slot, text: str) -> str | None:
    """The value of a slot at the start of `text`; None if the text may end within it."""
    if slot.width is not None:
        return text[: slot.width] if len(text) >= slot.width else None
    value = _until_stop(slot, text)
    return value if len(value) < len(text) else None


def _until_stop(slot: Slot, text: str) -> str:
    places = [place for stop in slot.stops if (place := text.find(stop)) >= 0]
    return text[: min(places)] if places else text


def _part(pattern: Pattern, number: int) -> Part | None:
    return pattern.parts[number] if number < len(pattern.parts) else None


def _with_value(base: str, value: str, following: Part | None) -> KeyRange:
    """The keys that start with `base` and whose next slot has exactly this value."""
    return point(base + value) if following is None else prefix(f"{base}{value}{following}")


def _united(ranges: list[KeyRange]) -> list[KeyRange]:
    """The same keys as disjoint ranges in order."""
    united: list[KeyRange] = []
    for keys in sorted(keys for keys in ranges if keys):
        if united and keys.first <= united[-1].last:
            united[-1] = KeyRange(united[-1].first, max(united[-1].last, keys.last))
        else:
            united.append(keys)
    return united
