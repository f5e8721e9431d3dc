"""The server: one event loop around one cache, and one port for msgpack and HTTP."""

from pequod.server.server import Server

__all__ = ["Server"]
