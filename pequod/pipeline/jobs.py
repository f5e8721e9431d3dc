"""Jobs that are cut into parts, and the plain engine that does one part after the other.

A part is a pure function of its number that writes one file or a few and answers with their facts.
So an engine may do the parts in any order, at once, or twice; `spark.SparkEngine` does them there.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, Protocol

from pequod.pipeline.files import FileFacts

Facts = dict[str, Any]
Part = Callable[[int], Facts]
Told = Callable[[int, int], None]  # parts done, parts in all


def quiet(done: int, parts: int) -> None:
    """Tell nobody."""


class Engine(Protocol):
    """Does all parts of a job, and answers with their facts in the order of the parts."""

    def run(self, part: Part, parts: int, told: Told = quiet) -> list[Facts]: ...


class PlainEngine:
    """One part after the other, in this process."""

    def run(self, part: Part, parts: int, told: Told = quiet) -> list[Facts]:
        return list(self._run(part, parts, told))

    def _run(self, part: Part, parts: int, told: Told) -> Iterator[Facts]:
        for number in range(parts):
            yield part(number)
            told(number + 1, parts)


def files_of(found: list[Facts], name: str = "file") -> tuple[FileFacts, ...]:
    """The facts of the files that all parts wrote under this name; empty files are left out."""
    files = (FileFacts(**facts[name]) for facts in found)
    return tuple(file for file in files if file.rows)


def wrote(**files: FileFacts) -> Facts:
    """Facts of files, in the form that a part answers with."""
    return {name: asdict(file) for name, file in files.items()}


def cut(size: int, part: int, parts: int, step: int = 1) -> tuple[int, int]:
    """The bounds of a part of 0..size, at multiples of `step`.

    >>> cut(10, 0, 3), cut(10, 1, 3), cut(10, 2, 3)
    ((0, 3), (3, 6), (6, 10))
    """
    steps = -(-size // step)
    first, last = (steps * at // parts * step for at in (part, part + 1))
    return min(first, size), min(last, size)
