"""Key patterns: literals and slots, and what they say about keys.

`p|<poster>|<time:10>` is a pattern with two slots. A slot with a width holds exactly that
many characters, whatever they are; a slot without one holds one or more characters and runs
up to the literal after it, so it contains neither `|` nor any of its `stops`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

from pequod.errors import JoinError
from pequod.keys import BAR, KeyRange, point, prefix

SlotSet = Mapping[str, str]

MAX_PATTERN = 512  # characters of text, and characters all fixed slots may add up to

_PART = re.compile(r"<(?P<name>[^\W\d]\w*)(?::(?P<width>[0-9]{1,4}))?>|(?P<literal>[^<>]+)")


@dataclass(frozen=True, slots=True)
class Slot:
    """A named part of a key; `width` is None when it runs to the next literal."""

    name: str
    width: int | None = None
    stops: str = BAR

    @property
    def regex(self) -> str:
        """The regular expression of one value of this slot; it never backtracks."""
        if self.width is not None:
            return f".{{{self.width}}}"
        return f"[^{re.escape(self.stops)}]++"


Part = str | Slot


@dataclass(frozen=True)
class Pattern:
    """A key pattern: literals and slots in turn."""

    text: str = field(compare=False)
    parts: tuple[Part, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """The pattern written as `text`; its slots are not agreed upon with others yet.

        >>> Pattern.parse("p|<poster>|<time:10>").slots
        (Slot(name='poster', width=None, stops='|'), Slot(name='time', width=10, stops='|'))
        """
        if len(text) > MAX_PATTERN:
            raise JoinError(f"a key pattern of {len(text)} characters; at most {MAX_PATTERN} fit")
        parts: list[Part] = []
        place = 0
        while place < len(text):
            match = _PART.match(text, place)
            if match is None:
                raise JoinError(
                    f"{text[place:][:20]!r} is no slot; slots are written <user> or <time:10>"
                )
            parts.append(
                match["literal"]
                or Slot(match["name"], int(match["width"]) if match["width"] else None)
            )
            place = match.end()
        return cls(text, tuple(parts))

    def with_slots(self, known: Mapping[str, Slot]) -> Self:
        """This pattern with each slot replaced by the `known` one of its name."""
        parts = tuple(part if isinstance(part, str) else known[part.name] for part in self.parts)
        return type(self)(self.text, parts)

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """The slots in order of appearance, each once."""
        return tuple({part.name: part for part in self.parts if isinstance(part, Slot)}.values())

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(slot.name for slot in self.slots)

    @cached_property
    def literal_head(self) -> str:
        """The text every matching key starts with."""
        return self.parts[0] if isinstance(self.parts[0], str) else ""

    def followers(self) -> Iterator[tuple[Slot, Part | None]]:
        """Each slot with the part after it; None at the end of the pattern."""
        for part, following in zip(self.parts, (*self.parts[1:], None), strict=True):
            if isinstance(part, Slot):
                yield part, following

    def tail_regex(self, start: int = 0) -> str:
        """The regular expression of the parts from number `start` on, a group for each slot."""
        seen: set[str] = set()
        pieces = []
        for part in self.parts[start:]:
            if isinstance(part, str):
                pieces.append(re.escape(part))
            elif part.name in seen:
                pieces.append(f"(?P={part.name})")
            else:
                seen.add(part.name)
                pieces.append(f"(?P<{part.name}>{part.regex})")
        return "".join(pieces)

    @cached_property
    def regex(self) -> re.Pattern[str]:
        return re.compile(self.tail_regex(), re.DOTALL)

    def matches(self, key: str) -> bool:
        return self.regex.fullmatch(key) is not None

    def match(self, key: str) -> dict[str, str] | None:
        """The slot set under which this pattern is `key`, or None.

        >>> Pattern.parse("p|<poster>|<time>").match("p|bob|100")
        {'poster': 'bob', 'time': '100'}
        """
        match = self.regex.fullmatch(key)
        return match.groupdict() if match else None

    def fill(self, slots: SlotSet) -> str:
        """The key this pattern is under a full slot set."""
        return "".join(part if isinstance(part, str) else slots[part.name] for part in self.parts)

    def head(self, slots: SlotSet | frozenset[str]) -> tuple[Part, ...]:
        """The leading parts that are known under `slots`."""
        for number, part in enumerate(self.parts):
            if isinstance(part, Slot) and part.name not in slots:
                return self.parts[:number]
        return self.parts

    def containing_range(self, slots: SlotSet) -> KeyRange:
        """The tightest range that holds every key matching under `slots`.

        >>> Pattern.parse("p|<poster>|<time>").containing_range({"poster": "bob"})
        KeyRange(first='p|bob|', last='p|bob}')
        """
        head = self.head(slots)
        text = "".join(part if isinstance(part, str) else slots[part.name] for part in head)
        return point(text) if len(head) == len(self.parts) else prefix(text)

    def overlaps(self, other: "Pattern") -> bool:
        """True if some key matches both; exact but for slots that repeat within a pattern.

        >>> Pattern.parse("t|<a>|x").overlaps(Pattern.parse("t|b|<c>"))
        True
        """
        # Both patterns are walked in step over the same imagined key: a pair of places is
        # reached if some text leads there in both.
        ours, theirs = _atoms(self), _atoms(other)
        reached, frontier = {(0, 0)}, [(0, 0)]
        while frontier:
            i, j = frontier.pop()
            if i == len(ours) and j == len(theirs):
                return True
            if i == len(ours) or j == len(theirs) or not ours[i].meets(theirs[j]):
                continue
            # After one shared character a repeating atom may go on or be done.
            for step in (
                (i + 1, j + 1),
                (i, j + 1) if ours[i].repeats else None,
                (i + 1, j) if theirs[j].repeats else None,
            ):
                if step is not None and step not in reached:
                    reached.add(step)
                    frontier.append(step)
        return False


@dataclass(frozen=True, slots=True)
class _Atom:
    """One character of a pattern: a literal, or any character outside `stops`."""

    literal: str | None = None
    stops: str = ""
    repeats: bool = False

    def meets(self, other: "_Atom") -> bool:
        if self.literal is None:
            return other.literal is None or other.literal not in self.stops
        if other.literal is None:
            return self.literal not in other.stops
        return self.literal == other.literal


def _atoms(pattern: Pattern) -> list[_Atom]:
    atoms: list[_Atom] = []
    for part in pattern.parts:
        if isinstance(part, str):
            atoms.extend(_Atom(literal=character) for character in part)
        elif part.width is not None:
            atoms.extend([_Atom()] * part.width)
        else:
            atoms.append(_Atom(stops=part.stops, repeats=True))
    return atoms
