"""Which source keys can matter for an output range: the paper's slot sets and containing ranges.

Both functions are correct for every key. They are tight for slots of fixed width; for a
slot that runs to the next literal, `|` sorts above digits and letters, so that keys do not
sort like their slots: `t|ann|10|bob` > `t|ann|100|bob` although `p|bob|10` < `p|bob|100`.
There the range between the bounds is joined by the few keys whose slot is a proper prefix
of a bound.
"""

from pequod.joins.pattern import Part, Pattern, Slot
from pequod.keys import KeyRange, point, prefix, successor

# Longer bounds have so many prefixes that reading all of a source is no worse.
_MAX_PREFIXES = 256


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
    for part in pattern.parts:
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
        if not value or slots.setdefault(part.name, value) != value:
            return None
        place += len(value)
    else:
        if place < len(shared):
            return None
    return slots


class Containment:
    """Which keys of a source can matter for an output range, once slots of these names are bound.

    >>> output, source = Pattern.parse("t|<user>|<time:3>"), Pattern.parse("p|<time:3>")
    >>> containment = Containment(output, source, frozenset({"user"}))
    >>> containment.ranges(prefix("t|ann|"), prefix("p|"), KeyRange("t|ann|100", "t|ann|200"))
    [KeyRange(first='p|100', last='p|200')]
    """

    def __init__(self, output: Pattern, source: Pattern, bound: frozenset[str]) -> None:
        output_tail = output.parts[len(output.head(bound)) :]
        source_tail = source.parts[len(source.head(bound)) :]
        self._shares = bool(output_tail and source_tail) and output_tail[0] == source_tail[0]
        # If all that follows is the same text in both keys, they sort alike.
        self._sorts_alike = output_tail == source_tail
        self._width = _shared_width(output_tail, source_tail)
        self._cut = output_tail[0] if self._shares else None
        self._after_output, self._after_source = _second(output_tail), _second(source_tail)

    def ranges(self, known: KeyRange, whole: KeyRange, keys: KeyRange) -> list[KeyRange]:
        """The source ranges that hold every source key which may give one of `keys`.

        `known` and `whole` hold all keys of the output and of the source under the slots.
        """
        if keys.last <= known.first or known.last <= keys.first:
            return []
        if not self._shares or (keys.first <= known.first and known.last <= keys.last):
            return [whole]
        start, base = known.first, whole.first
        lower = keys.first[len(start) :] if keys.first.startswith(start) else ""
        upper = keys.last[len(start) :] if keys.last.startswith(start) else None
        if self._sorts_alike:
            return [KeyRange(base + lower, whole.last if upper is None else base + upper)]
        if width := self._width:
            first = base + lower[:width]
            if upper is None:
                return [KeyRange(first, whole.last)]
            short = len(upper) <= width
            return [KeyRange(first, base + upper if short else successor(base + upper[:width]))]
        return self._around_prefixes(start, whole, keys, lower, upper)

    def _around_prefixes(
        self, start: str, whole: KeyRange, keys: KeyRange, lower: str, upper: str | None
    ) -> list[KeyRange]:
        """The range between the bounds, and the keys whose slot is a proper prefix of one."""
        cut, base = self._cut, whole.first
        assert isinstance(cut, Slot), f"an unknown part of an output is no slot: {cut}"
        lower = _until_stop(cut, lower)
        ranges = [KeyRange(base + lower, whole.last)]
        bounds = [lower]
        if upper is not None:
            bounds.append(_until_stop(cut, upper))
            ranges = [KeyRange(base + lower, base + upper[: len(bounds[1]) + 1])]
        if max(map(len, bounds)) > _MAX_PREFIXES:
            return [whole]
        for value in {bound[:length] for bound in bounds for length in range(1, len(bound) + 1)}:
            if keys.overlaps(_with_value(start, value, self._after_output)):
                ranges.append(_with_value(base, value, self._after_source))
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


def _shared_width(output_tail: tuple[Part, ...], source_tail: tuple[Part, ...]) -> int:
    """How many characters at the start of both tails are the same text, whatever the slots are."""
    width = 0
    for ours, theirs in zip(output_tail, source_tail, strict=False):
        length = len(ours) if isinstance(ours, str) else ours.width
        if ours != theirs or length is None:
            break
        width += length
    return width


def _second(parts: tuple[Part, ...]) -> Part | None:
    return parts[1] if len(parts) > 1 else None


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
