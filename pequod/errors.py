"""Every error Pequod raises on purpose, in one tree.

    PequodError
    ├── BadRequest              the caller's fault: the request makes no sense
    │   ├── BadKey              a key that is no text, is empty or too long
    │   │   └── OversizedKey    the last of these
    │   ├── BadValue            a value that is neither text nor bytes, or too long
    │   ├── ComputedKey         a write into a range that a cache join computes
    │   ├── TooLarge            a request or an answer over a limit of the server
    │   └── UnknownMethod       there is no method of that name
    ├── JoinError               a cache join that cannot be installed
    │   ├── JoinSyntaxError     it cannot even be parsed
    │   └── UnknownJoin         no join of that name is installed
    ├── MissingData             base data that is not in memory yet
    ├── SourceDown              what is behind the cache, a database for one, does not answer
    │   ├── SourceBehind        it does, but a write that was asked for is not in the cache yet
    │   ├── Moving              rows are on their way to another home; try again
    │   └── DataLost            a home without a database was started again; its rows are gone
    ├── AccessDenied            the server does not let this caller do that
    │   ├── Unauthorized        it came without a token, or with a wrong one
    │   └── Forbidden           its token does not go that far
    ├── Unavailable             the server cannot be reached, or was lost on the way
    │   └── TimedOut            it did not answer in time
    ├── BadData                 files that are missing, not whole, or of another job
    ├── ProtocolError           the other side does not speak Pequod's protocol
    └── ServerFault             a mistake of Pequod's own, logged at the server

Each class has a short `code` for the wire; the sentence says what to do about it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar


class PequodError(Exception):
    """The root of all errors raised on purpose."""

    code: ClassVar[str] = "error"

    def details(self) -> dict[str, Any]:
        """What the error tells beside its sentence, by name."""
        return {}

    @staticmethod
    def restored(code: str, message: str, details: Mapping[str, Any]) -> "PequodError":
        """The error that was sent as these three; an unknown code gives a plain `PequodError`."""
        kind = next((kind for kind in _all(PequodError) if kind.code == code), PequodError)
        error = kind.__new__(kind)
        Exception.__init__(error, message)
        error.__dict__.update(details)
        return error


class BadRequest(PequodError):
    """The request makes no sense; nothing was changed."""

    code = "bad_request"


class BadKey(BadRequest):
    """A key that is no text, is empty or too long."""

    code = "bad_key"


class OversizedKey(BadKey):
    """A key over the limit."""

    code = "oversized_key"


class BadValue(BadRequest):
    """A value that is neither text nor bytes, or too long."""

    code = "bad_value"


class ComputedKey(BadRequest):
    """A write into a range that a cache join computes."""

    code = "computed_key"


class TooLarge(BadRequest):
    """A request or an answer over a limit of the server."""

    code = "too_large"


class UnknownMethod(BadRequest):
    """There is no method of that name."""

    code = "unknown_method"


class JoinError(PequodError):
    """A cache join that cannot be installed; nothing was changed."""

    code = "join"


class JoinSyntaxError(JoinError):
    """A cache join that cannot be parsed, with the place in its text."""

    code = "join_syntax"

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.line = line
        self.column = column

    def details(self) -> dict[str, Any]:
        return {"line": self.line, "column": self.column}


class UnknownJoin(JoinError):
    """No join of that name is installed."""

    code = "unknown_join"


class MissingData(PequodError):
    """Base data that is not in memory yet: load the ranges in `missing` and ask again."""

    code = "missing_data"

    def __init__(self, missing: Sequence[tuple[str, str]]) -> None:
        ranges = ", ".join(f"[{first!r}, {last!r})" for first, last in missing[:3])
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        super().__init__(f"not in memory yet: {ranges}{more}; load them with loading(keys)")
        self.missing = missing

    def details(self) -> dict[str, Any]:
        return {"missing": [list(keys) for keys in self.missing]}


class SourceDown(PequodError):
    """What is behind the cache does not answer; what is in memory is served all the same."""

    code = "source_down"


class SourceBehind(SourceDown):
    """The cache does not have a write yet that was asked for."""

    code = "source_behind"


class Moving(SourceDown):
    """Rows are on their way to another home, or are there already; nothing was changed."""

    code = "moving"


class DataLost(SourceDown):
    """What a token stands for is gone: its home has no database, and was started again."""

    code = "data_lost"


class AccessDenied(PequodError):
    """The server does not let this caller do that; nothing was changed."""

    code = "access_denied"


class Unauthorized(AccessDenied):
    """The call came without a token, or with a wrong one."""

    code = "unauthorized"


class Forbidden(AccessDenied):
    """The token of the caller does not go that far."""

    code = "forbidden"


class Unavailable(PequodError):
    """The server cannot be reached, or was lost on the way; a write may have happened."""

    code = "unavailable"


class TimedOut(Unavailable):
    """The server did not answer in time."""

    code = "timed_out"


class BadData(PequodError):
    """Files that are missing, not whole, or of another job; they were left as they are."""

    code = "bad_data"


class ProtocolError(PequodError):
    """The other side does not speak Pequod's protocol."""

    code = "protocol"


class ServerFault(PequodError):
    """A mistake of Pequod's own; the server's log has it."""

    code = "server_fault"


def _all(kind: type[PequodError]) -> Iterator[type[PequodError]]:
    """A class of errors and all below it."""
    yield kind
    for below in kind.__subclasses__():
        yield from _all(below)
