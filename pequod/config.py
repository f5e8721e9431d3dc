"""The settings of a server: one list, from which come its flags, variables and file keys.

A setting is a field with its default and, in its metadata, a sentence of help, what kind of value
it takes, and its bounds. Whoever starts a server hands in a finished `ServerConfig`; only the
command line reads files and variables.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any

from pequod.errors import BadRequest
from pequod.wire import DEFAULT_PORT

MIN_TOKEN = 16  # characters
ALIASES = {"memory": "memory_limit"}  # shorter names of settings

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE | re.ASCII)
_SLOT = re.compile(r"[a-z0-9_]{1,63}", re.ASCII)
_SCALE = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_DAY = 86_400

# What a kind of setting must be, and how to say it.
_KINDS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "text": (str, "a text"),
    "secret": (str, "a text"),
    "address": (str, "an address"),  # which may have a password in it
    "file": (str, "the path of a file"),
    "count": (int, "a whole number"),
    "size": (int, "a size like 64MB"),
    "seconds": ((int, float), "a number of seconds"),
    "flag": (bool, "true or false"),
    "texts": (tuple, "a list of texts"),
    "files": (tuple, "a list of paths"),
    "counts": (Mapping, "a table of whole numbers"),
}


def _setting(
    kind: str,
    default: Any,
    help_text: str,
    least: float = 1,
    most: float = float("inf"),
    choices: tuple[str, ...] = (),
) -> Any:
    metadata = {
        "kind": kind,
        "help": help_text,
        "least": least,
        "most": most,
        "choices": choices or None,
    }
    if kind == "counts":
        return field(default_factory=dict, metadata=metadata)
    # A secret is not for logs, where a configuration may be shown.
    return field(default=default, metadata=metadata, repr=kind not in ("secret", "address"))


@dataclass(frozen=True)
class ServerConfig:
    """How a server listens, whom it lets in, and what it takes at most."""

    host: str = _setting("text", "127.0.0.1", "address to listen on")
    port: int = _setting("count", DEFAULT_PORT, "port to listen on; 0 is a free one", 0, 65535)
    joins: tuple[str, ...] = _setting("files", (), "file with cache joins to install")
    memory_limit: int | None = _setting(
        "size", None, "evict computed ranges, and those of a database, beyond this"
    )
    db: str | None = _setting(
        "address", None, "database behind the cache: sqlite:///file.db or postgresql://..."
    )
    tables: str | None = _setting("file", None, "file that says which rows are which keys")
    db_slot: str = _setting("text", "pequod", "replication slot and publication (PostgreSQL)")
    db_connections: int = _setting("count", 4, "connections for loads and writes", 1, 1000)
    db_seconds: float = _setting(
        "seconds", 5.0, "time for a load, a write, and to catch up with a token", 0.01, _DAY
    )
    db_max_rows: int = _setting("count", 1_000_000, "rows of one load")
    db_wal_budget: int = _setting(
        "size", 1 << 30, "log that the database may keep for us before we drop all and begin anew"
    )
    cluster: str | None = _setting("file", None, "map of the cluster that this server is part of")
    node: str | None = _setting("text", None, "name of this server in the cluster's map")
    cluster_log: int = _setting(
        "size", 64 << 20, "changes that a home keeps for servers that were away or are slow"
    )
    insecure: bool = _setting("flag", False, "listen beyond this machine without tokens")
    token: str | None = _setting("secret", None, "a token that may do everything")
    tokens: str | None = _setting("file", None, "file of tokens with roles and prefixes")
    tls_cert: str | None = _setting("file", None, "certificate chain (PEM); turns TLS on")
    tls_key: str | None = _setting("file", None, "its private key (PEM), if in another file")
    allowed_hosts: tuple[str, ...] = _setting(
        "texts", (), "host name under which web pages may reach the server"
    )
    max_connections: int = _setting("count", 15_000, "connections at a time")
    max_frame: int = _setting("size", 16 << 20, "bytes of a request", 1024, 1 << 30)
    max_reply: int = _setting("size", 64 << 20, "bytes of an answer", 1024, 1 << 30)
    max_pending: int = _setting(
        "size", 1 << 30, "bytes that all clients together have not read, or not sent to the end"
    )
    max_rows: int = _setting("count", 100_000, "rows of a scan")
    max_batch: int = _setting("count", 100_000, "rows of one put_many or remove_range")
    max_key: int = _setting("count", 4096, "characters of a key", 1, 4096)
    max_value: int = _setting("size", 1 << 20, "characters or bytes of a value")
    max_join: int = _setting("size", 64 << 10, "bytes of a text of joins", 1, 64 << 10)
    request_seconds: float = _setting(
        "seconds", 10.0, "time for a request to arrive, and for the first to begin", 0.01, _DAY
    )
    stall_seconds: float = _setting(
        "seconds", 10.0, "time for a client to go on reading its answers", 0.01, _DAY
    )
    notice_seconds: float = _setting(
        "seconds",
        0.0,
        "time to go on after SIGTERM, with /readyz saying no, so that nobody is sent here any more",
        0,
        _DAY,
    )
    drain_seconds: float = _setting(
        "seconds", 3.0, "time for answers on their way when the server stops", 0, _DAY
    )
    log_level: str = _setting(
        "text", "info", "log this and worse", choices=("debug", "info", "warning", "error")
    )
    log_format: str = _setting("text", "text", "how to log", choices=("text", "json"))
    subtables: Mapping[str, int] = _setting(
        "counts", {}, "for a table, the bars up to which keys share a subtable", 0
    )

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if value != one.default:
                _check(one.name, one.metadata, value)
        if (self.db is None) != (self.tables is None):
            raise BadRequest("db, tables: a database needs both, its address and its mapping")
        if (self.cluster is None) != (self.node is None):
            raise BadRequest(
                "cluster, node: a server of a cluster needs both, the map and its name"
            )
        if not _SLOT.fullmatch(self.db_slot):
            raise BadRequest(f"db_slot: {self.db_slot!r:.60} is not of a-z, 0-9 and _")
        if self.tls_key and not self.tls_cert:
            raise BadRequest("tls_key: a key without a certificate; give tls_cert too")
        if self.token is not None and len(self.token) < MIN_TOKEN:
            raise BadRequest(
                f"token: it has fewer than {MIN_TOKEN} characters; `pequod token` makes a good one"
            )
        if not (self.is_loopback or self.insecure or self.token or self.tokens):
            raise BadRequest(
                f"host: {self.host} can be reached from other machines, and nobody needs a token; "
                "give token or tokens, or say insecure if that is meant"
            )

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can connect."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @classmethod
    def settings(cls, written: Mapping[str, Any]) -> dict[str, Any]:
        """What to make a configuration with, from settings as they are written in a file."""
        known = {one.name: one.metadata["kind"] for one in fields(cls)}
        found: dict[str, Any] = {}
        for name, value in written.items():
            name = ALIASES.get(name, name)
            if name not in known:
                near = get_close_matches(name, known, 1)
                hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
                raise BadRequest(f"no setting is named {name!r}; {hint}")
            if known[name] == "size" and isinstance(value, str):
                value = size_of(value, name)
            found[name] = tuple(value) if isinstance(value, list) else value
        return found


def _check(name: str, metadata: Mapping[str, Any], value: Any) -> None:
    kind, spoken = _KINDS[metadata["kind"]]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise BadRequest(f"{name}: {value!r:.60} is not {spoken}")
    if metadata["choices"] and value not in metadata["choices"]:
        raise BadRequest(f"{name}: {value!r:.60} is none of {', '.join(metadata['choices'])}")
    if isinstance(value, tuple):
        for item in value:
            if not isinstance(item, str):
                raise BadRequest(f"{name}: {item!r:.60} is not a text")
    numbers = value.values() if isinstance(value, Mapping) else [value]
    for number in numbers:
        if isinstance(value, Mapping) and type(number) is not int:
            raise BadRequest(f"{name}: {number!r:.60} is not a whole number")
        if not isinstance(number, int | float) or isinstance(number, bool):
            continue
        if not metadata["least"] <= number <= metadata["most"]:
            upto = "" if metadata["most"] == float("inf") else f" and at most {metadata['most']}"
            raise BadRequest(f"{name}: {number} is not at least {metadata['least']}{upto}")


def size_of(text: str, name: str = "size") -> int:
    """A number of bytes from its text; a kilobyte has 1024.

    >>> size_of("2GB"), size_of("64 KiB"), size_of("1.5m"), size_of("100")
    (2147483648, 65536, 1572864, 100)
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise BadRequest(f"{name}: {text!r:.60} is not a size like 64MB, or a number of bytes")
    return int(float(match[1]) * 1024 ** _SCALE[match[2].lower()])
