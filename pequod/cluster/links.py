"""Links: how one server calls another and hears from it, whatever carries the messages.

A link keeps the order of what goes through it, in each direction, or it is lost. Over the
network it is a connection of the binary protocol; a server and its own home have a link without
any; in the simulation one goes through a network that a seed makes worse.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

Message = tuple[Any, ...]


class Lost(Exception):
    """The link has gone, and with it the answer; what was asked for may have happened.

    Not one of our errors: those may come as answers, from a server that is well.
    """


class Link(Protocol):
    """A way to one other server."""

    bytes: int  # that went through it

    def call(self, method: str, *args: Any) -> Awaitable[Any]:
        """The answer of the other server, which may be an error; raises `Lost` without one."""
        ...

    def close(self) -> None:
        """Let it go; whatever waits for an answer gets `Lost`."""
        ...


# To a home: its address, what to do with messages that nobody asked for, and once it is lost.
Connect = Callable[[str, Callable[[Message], None], Callable[[], None]], Awaitable[Link]]
