"""Who may do what: tokens, their roles, and the key prefixes they are confined to.

A token file is TOML:

    [[token]]
    name = "web"
    sha256 = "..."                  # of the token, as `pequod token` prints it; or
    token = "..."                   # the token itself
    role = "write"                  # read, write (and read), or admin (everything)
    prefixes = ["t|", "p|"]         # all keys if left out

Tokens are kept as their hashes, so that looking one up tells nothing about it by its time.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from pequod.config import MIN_TOKEN
from pequod.errors import BadRequest, Forbidden, Unauthorized
from pequod.keys import EVERYTHING, KeyRange, prefix

ROLES = ("read", "write", "admin")  # each may do what those before it may
READ, WRITE, ADMIN = ROLES


@dataclass(frozen=True)
class Principal:
    """A caller: its role, and the ranges of keys it may touch."""

    name: str
    role: str
    ranges: tuple[KeyRange, ...] = (EVERYTHING,)

    @property
    def is_confined(self) -> bool:
        return EVERYTHING not in self.ranges

    def has_role(self, role: str) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)

    def check_reach(self, method: str, reach: Iterable[KeyRange]) -> None:
        """Raise `Forbidden` unless every range lies within one of ours."""
        for first, last in reach:
            if not any(mine.first <= first and last <= mine.last for mine in self.ranges):
                raise Forbidden(
                    f"{method}: token {self.name} is confined to keys that start with "
                    f"{' or '.join(repr(mine.first) for mine in self.ranges)}"
                )


ANYBODY = Principal("anybody", ADMIN)


class Access:
    """All tokens; if there are none, anybody may do everything."""

    def __init__(self, principals: Mapping[str, Principal]) -> None:
        self._by_hash = dict(principals)
        self.is_open = not self._by_hash

    @property
    def newcomer(self) -> Principal | None:
        """Whom a caller without a token is taken for."""
        return ANYBODY if self.is_open else None

    def principal(self, token: object) -> Principal:
        """Whose token this is."""
        if self.is_open:
            return ANYBODY
        found = self._by_hash.get(hash_of(token)) if isinstance(token, str) else None
        if found is None:
            raise Unauthorized("a wrong token; the server knows no such token")
        return found


def hash_of(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def read_tokens(text: str) -> dict[str, Principal]:
    """The principals of a token file by the hashes of their tokens."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadRequest(f"not TOML: {error}") from error
    entries = content.get("token", [])
    if set(content) - {"token"} or not isinstance(entries, list) or not entries:
        raise BadRequest("a token file has a [[token]] for each token and nothing else")
    principals = {}
    for number, entry in enumerate(entries, 1):
        try:
            hashed, principal = _principal(entry)
        except BadRequest as error:
            raise BadRequest(f"token {number}: {error}") from error
        if hashed in principals:
            raise BadRequest(f"token {number}: the same token is there twice")
        principals[hashed] = principal
    return principals


def _principal(entry: Any) -> tuple[str, Principal]:
    if not isinstance(entry, Mapping):
        raise BadRequest("it is not a table")
    if unknown := set(entry) - {"name", "token", "sha256", "role", "prefixes"}:
        raise BadRequest(f"{min(unknown)!r} is no part of a token")
    name, role, prefixes = entry.get("name"), entry.get("role"), entry.get("prefixes", [""])
    if not isinstance(name, str) or not name:
        raise BadRequest("it has no name")
    if role not in ROLES:
        raise BadRequest(f"role {role!r} is not one of {', '.join(ROLES)}")
    if not isinstance(prefixes, list) or not all(isinstance(one, str) for one in prefixes):
        raise BadRequest("prefixes is a list of texts")
    if not prefixes:
        raise BadRequest("prefixes is empty; leave it out if all keys are meant")
    return _hash_in(entry), Principal(name, role, tuple(prefix(one) for one in prefixes))


def _hash_in(entry: Mapping[str, Any]) -> str:
    token, hashed = entry.get("token"), entry.get("sha256")
    if (token is None) == (hashed is None):
        raise BadRequest("it has either token or sha256")
    if isinstance(token, str) and len(token) >= MIN_TOKEN:
        return hash_of(token)
    if token is not None:
        raise BadRequest(f"a token is a text of {MIN_TOKEN} characters or more")
    if not isinstance(hashed, str) or len(hashed) != 64 or set(hashed) - set("0123456789abcdef"):
        raise BadRequest("sha256 has 64 hexadecimal digits, as `pequod token` prints them")
    return hashed
