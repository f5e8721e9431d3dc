"""Pequod: an application cache whose views keep themselves fresh."""

from pequod.client import AsyncClient, Client
from pequod.engine.cache import Cache
from pequod.errors import (
    AccessDenied,
    BadKey,
    BadRequest,
    BadValue,
    ComputedKey,
    Forbidden,
    JoinError,
    JoinSyntaxError,
    MissingData,
    OversizedKey,
    PequodError,
    ProtocolError,
    ServerFault,
    TimedOut,
    TooLarge,
    Unauthorized,
    Unavailable,
    UnknownJoin,
    UnknownMethod,
)
from pequod.keys import KeyRange, prefix

__all__ = [
    "AccessDenied",
    "AsyncClient",
    "BadKey",
    "BadRequest",
    "BadValue",
    "Cache",
    "Client",
    "ComputedKey",
    "Forbidden",
    "JoinError",
    "JoinSyntaxError",
    "KeyRange",
    "MissingData",
    "OversizedKey",
    "PequodError",
    "ProtocolError",
    "ServerFault",
    "TimedOut",
    "TooLarge",
    "Unauthorized",
    "Unavailable",
    "UnknownJoin",
    "UnknownMethod",
    "prefix",
]
