"""A progress bar for whoever waits: on a terminal a bar that fills, elsewhere nothing."""

import sys
from collections.abc import Iterator
from time import monotonic

WIDTH = 30


class Bar:
    """Counts from 0 up to `total` and shows how far it has come, on standard error.

    >>> list(Bar(3, "turns"))
    [0, 1, 2]
    """

    def __init__(self, total: int, what: str) -> None:
        self._total = total
        self._what = what

    def __iter__(self) -> Iterator[int]:
        begun = monotonic()
        for done in range(self._total):
            self._show(done, monotonic() - begun)
            yield done
        self._show(self._total, monotonic() - begun)
        if sys.stderr.isatty():
            sys.stderr.write("\n")

    def _show(self, done: int, seconds: float) -> None:
        if not sys.stderr.isatty():
            return
        full = WIDTH * done // max(1, self._total)
        left = f", {seconds / done * (self._total - done):.0f} s left" if done else ""
        bar = "#" * full + "." * (WIDTH - full)
        sys.stderr.write(f"\r{bar} {done}/{self._total} {self._what}{left}   ")
        sys.stderr.flush()
