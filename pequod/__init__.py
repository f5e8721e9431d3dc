"""Pequod: an application cache whose views keep themselves fresh."""

from pequod.engine.cache import Cache
from pequod.errors import (
    BadKey,
    BadRequest,
    BadValue,
    ComputedKey,
    JoinError,
    JoinSyntaxError,
    MissingData,
    PequodError,
    UnknownJoin,
)
from pequod.keys import KeyRange, prefix

__all__ = [
    "BadKey",
    "BadRequest",
    "BadValue",
    "Cache",
    "ComputedKey",
    "JoinError",
    "JoinSyntaxError",
    "KeyRange",
    "MissingData",
    "PequodError",
    "UnknownJoin",
    "prefix",
]
