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

    def __str__(self) -> str:
        """The address without its token."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'pequods' if self.tls else 'pequod'}://{host}:{self.port}"


def address_of(url: str | None, token: str | None, tls: ssl.SSLContext | None) -> Address:
    """The address of a URL; without one, of `PEQUOD_URL`, or of a server on this machine.

    >>> address_of("pequod://cache:7000", None, None)
    Address(host='cache', port=7000, tls=None, token=None)
    """
    if url is None:
        url = os.environ.get("PEQUOD_URL") or DEFAULT_URL
    if token is None:
        token = os.environ.get("PEQUOD_TOKEN") or None
    try:
        parts = urlsplit(url if "://" in url else f"pequod://{url}")
        port = parts.port or DEFAULT_PORT
    except (ValueError, TypeError) as error:
        raise BadRequest(f"{url!r:.80} is no address: {error}") from error
    if parts.scheme not in ("pequod", "pequods") or not parts.hostname or parts.path.strip("/"):
        raise BadRequest(f"{url!r:.80} is no address; write pequod://host:port, or pequods for TLS")
    if parts.scheme == "pequods" and tls is None:
        tls = ssl.create_default_context()
    if parts.password or parts.username:
        token = unquote(parts.password or parts.username or "")
    return Address(parts.hostname, port, tls, token)
