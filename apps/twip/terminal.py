"""A narrated session in the terminal: each call, its answer, and what it means.

The text is plain; colours and pauses are added only for somebody who sits and watches.
"""

import textwrap
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from apps.twip.outline import outline
from pequod import Cache, PequodError

BOLD, DIM, GREEN, CYAN = 1, 2, 32, 36


class Narrator:
    """Makes calls on a cache and tells about them on standard output."""

    def __init__(
        self, cache: Cache, *, width: int, colour: bool, pause: Callable[[], None]
    ) -> None:
        self._cache = cache
        self._width = width
        self._colour = colour
        self._pause = pause

    def title(self, text: str) -> None:
        """Open a new part of the session."""
        print(f"\n{self._paint(BOLD, text)}\n")

    def text(self, text: str) -> None:
        """Show a text as it is, set in."""
        for line in text.strip().splitlines():
            print(f"    {self._paint(DIM, line)}" if line else "")
        print()

    def call(self, method: str, *args: Any, **options: Any) -> None:
        """Show the call, make it, and show its answer and how long it took."""
        start = time.perf_counter()
        answer = getattr(self._cache, method)(*args, **options)
        micros = (time.perf_counter() - start) * 1e6
        took = f"{micros:,.0f} us"
        shown = call_text(method, args, options)
        gap = " " * max(2, self._width - len(shown) - len(took))
        print(self._paint(CYAN, shown) + gap + self._paint(DIM, took))
        self._set_in([] if answer is None else outline(answer, self._width - 4))

    def refused(self, method: str, *args: Any) -> None:
        """Show a call that must fail, and its error."""
        print(self._paint(CYAN, call_text(method, args, {})))
        try:
            getattr(self._cache, method)(*args)
        except PequodError as error:
            name = type(error).__name__
            self._set_in(textwrap.wrap(f"{name}: {error}", self._width - 4))
        else:
            raise AssertionError(f"{method}{args} was not refused")

    def say(self, text: str) -> None:
        """Say what Pequod did, and wait a moment."""
        print()
        for line in textwrap.wrap(text, self._width):
            print(self._paint(GREEN, line))
        print()
        self._pause()

    def _set_in(self, lines: Iterable[str]) -> None:
        for line in lines:
            print(f"    {line}")

    def _paint(self, style: int, text: str) -> str:
        return f"\033[{style}m{text}\033[0m" if self._colour else text


def call_text(method: str, args: tuple[Any, ...], options: Mapping[str, Any]) -> str:
    """The call as one would write it; a text of many lines becomes dots.

    >>> call_text("scan", ("t|ann|", "t|ann}"), {"limit": 2})
    "cache.scan('t|ann|', 't|ann}', limit=2)"
    """
    words = ["'...'" if isinstance(arg, str) and "\n" in arg else repr(arg) for arg in args]
    words += [f"{name}={option!r}" for name, option in options.items()]
    return f"cache.{method}({', '.join(words)})"
