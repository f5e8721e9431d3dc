"""The command line: `pequod serve`, and every method of a cache against a server."""

from pequod.cli.main import main

__all__ = ["main"]
