"""The server: one event loop around one cache, and one port for msgpack and HTTP."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pequod.server.server import Server

__all__ = ["Server"]


def __getattr__(name: str) -> Any:
    """`Server`, when somebody asks for it: aiohttp takes longer to import than a command to run."""
    if name != "Server":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pequod.server.server import Server

    return Server
