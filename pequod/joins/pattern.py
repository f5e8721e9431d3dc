"""Key patterns: literals and slots, and what they say about keys.

`p|<poster>|<time:10>` is a pattern with two slots. A slot with a width holds exactly that
many characters, whatever they are; a slot without one holds one or more characters and runs
up to the literal after it, so it contains neither `|` nor any of its `stops`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Self

from pequod.errors import JoinSyntaxError
from pequod.keys import BAR, KeyRange, point, prefix

SlotSet = Mapping[str, str]

MAX_PATTERN = 512  # characters of text, and characters all fixed slots may add up to

_PIECE = re.compile(
    r"(?P<literal>[^<>]+)|<(?P<name>[^<>:]*)(?::(?P<width>[^<>]*))?(?P<end>>?)|(?P<stray>>)"
)


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
            raise JoinSyntaxError(
                f"a key pattern of {len(text)} characters; at most {MAX_PATTERN} fit", 1, 1
            )
        parts: list[Part] = []
        for piece in _PIECE.finditer(text):
            if piece["literal"]:
                parts.append(piece["literal"])
                continue
            if problem := _slot_problem(piece):
                raise JoinSyntaxError(problem, 1, piece.start() + 1)
            parts.append(Slot(piece["name"], int(piece["width"]) if piece["width"] else None))
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
        return self.parts[0] if self.parts and isinstance(self.parts[0], str) else ""

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
        # Both patterns are walked in step over the same imagined key. The bits of `reached` are
        # the places of this pattern where some text leads while it leads to `atom` in the other.
        walk = self._walk
        reached = 1
        for atom in other._walk.atoms:
            taking = walk.taking(atom)
            here = reached & taking
            if atom.repeats:
                # It may take many characters: the carry runs along all places that take them.
                here |= ((here + taking) ^ taking) & taking
            # After one shared character a repeating place may go on or be done.
            reached = here << 1 | here & walk.repeating
            if not reached:
                return False
        return bool(reached >> len(walk.atoms) & 1)

    @cached_property
    def _walk(self) -> "_Walk":
        return _Walk(self.parts)


class _Atom(NamedTuple):
    """One character of a pattern: a literal, or any character outside `stops`."""

    literal: str = ""
    stops: str = ""
    repeats: bool = False


class _Walk:
    """The atoms of a pattern, and sets of their places as bits: bit n is atom number n."""

    def __init__(self, parts: tuple[Part, ...]) -> None:
        self.atoms: list[_Atom] = []
        for part in parts:
            if isinstance(part, str):
                self.atoms.extend(_Atom(literal=character) for character in part)
            elif part.width is not None:
                self.atoms.extend([_Atom()] * part.width)
            else:
                self.atoms.append(_Atom(stops=part.stops, repeats=True))
        self.repeating = self._slots = 0
        self._literals: dict[str, int] = {}
        self._stopping: dict[str, int] = {}
        for place, atom in enumerate(self.atoms):
            if atom.literal:
                self._literals[atom.literal] = self._literals.get(atom.literal, 0) | 1 << place
                continue
            self._slots |= 1 << place
            self.repeating |= atom.repeats << place
            for stop in atom.stops:
                self._stopping[stop] = self._stopping.get(stop, 0) | 1 << place

    def taking(self, other: _Atom) -> int:
        """The places that take some character which `other` takes, too."""
        if other.literal:
            stopped = self._stopping.get(other.literal, 0)
            return self._literals.get(other.literal, 0) | self._slots & ~stopped
        places = (1 << len(self.atoms)) - 1
        for stop in other.stops:
            places &= ~self._literals.get(stop, 0)
        return places


def _slot_problem(piece: re.Match[str]) -> str | None:
    """What is wrong with a slot, and the cure; None if nothing is."""
    shown, width = clipped(piece[0]), piece["width"]
    if piece["stray"]:
        return "'>' closes no slot; slots are written <user> or <time:10>"
    if not piece["end"]:
        return f"{shown!r} is not closed by '>'; slots are written <user>, without spaces"
    if not piece["name"].isidentifier():
        return (
            f"{shown!r} is no slot: its name must be letters, digits and _, and start with no "
            "digit; slots are written <user> or <time:10>"
        )
    if width is None:
        return None
    if not (width.isascii() and width.isdigit()):
        return f"{shown!r} is no slot: a width is a number of characters, as in <time:10>"
    if int(width) == 0:
        return f"slot {shown} has no width; a slot is never empty"
    if int(width) > MAX_PATTERN:
        return f"slot {shown} is too wide: at most {MAX_PATTERN} characters fit"
    return None


def clipped(text: str, length: int = 30) -> str:
    """The text, or its beginning if it is too long for a sentence."""
    return text if len(text) <= length else f"{text[: length - 3]}..."
