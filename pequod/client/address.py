"""Where a server is: `pequod://host:port`, with `pequods` for TLS."""

import os
import ssl
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from pequod.errors import BadRequest
from pequod.wire import DEFAULT_PORT

DEFAULT_URL = f"pequod://127.0.0.1:{DEFAULT_PORT}"


class Address(NamedTuple):
    """A parsed address."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    token: str | None

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        """The address without its token."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'pequods' if self.tls else 'pequod'}://{host}:{self.port}"


def address_of(url: str | None, token: str | None, tls: ssl.SSLContext | None) -> Address:
    """The address of a URL; without one, of `PEQUOD_URL`, or of a server on this machine.

    >>> address_of("pequod://cache:7000", None, None)
    <pequod://cache:7000>
    """
    if url is None:
        url = os.environ.get("PEQUOD_URL") or DEFAULT_URL
    try:
        parts = urlsplit(url if "://" in url else f"pequod://{url}")
        port = DEFAULT_PORT if parts.port is None else parts.port
    except (ValueError, TypeError) as error:
        raise BadRequest(f"{_shown(url)} is no address: {error}") from error
    rest = parts.path.strip("/") or parts.query or parts.fragment
    if parts.scheme not in ("pequod", "pequods") or not parts.hostname or not port or rest:
        raise BadRequest(
            f"{_shown(url)} is no address; write pequod://host:port, or pequods for TLS"
        )
    if parts.scheme == "pequods" and tls is None:
        tls = ssl.create_default_context()
    if token is None:
        written = unquote(parts.password or parts.username or "")
        token = written or os.environ.get("PEQUOD_TOKEN") or None
    return Address(parts.hostname, port, tls, token)


def is_map(url: object) -> bool:
    """True if this is the path of a cluster's map, and no address.

    >>> is_map("cluster.toml"), is_map("pequod://cache.toml")
    (True, False)
    """
    return isinstance(url, str) and url.endswith(".toml") and "://" not in url


def _shown(url: object) -> str:
    """An address for an error: a token in it is for nobody's eyes."""
    text = str(url)
    before, mark, after = text.partition("://")
    return repr(f"{before}{mark}{after.rpartition('@')[2]}" if mark else text.rpartition("@")[2])[
        :80
    ]
