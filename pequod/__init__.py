"""Pequod: an application cache whose views keep themselves fresh."""

from pequod.engine.cache import Cache
from pequod.errors import PequodError
from pequod.keys import KeyRange, prefix

__all__ = ["Cache", "KeyRange", "PequodError", "prefix"]
