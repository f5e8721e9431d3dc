"""Every error Pequod raises on purpose, in one tree.

    PequodError
    ├── BadRequest              the caller's fault: the request makes no sense
    │   ├── BadKey              a key that is no text, is empty or too long
    │   ├── BadValue            a value that is neither text nor bytes, or too long
    │   └── ComputedKey         a write into a range that a cache join computes
    ├── JoinError               a cache join that cannot be installed
    │   ├── JoinSyntaxError     it cannot even be parsed
    │   └── UnknownJoin         no join of that name is installed
    └── MissingData             base data that is not in memory yet

Each class has a short `code` for the wire; the sentence says what to do about it.
"""

from collections.abc import Sequence
from typing import ClassVar


class PequodError(Exception):
    """The root of all errors raised on purpose."""

    code: ClassVar[str] = "error"


class BadRequest(PequodError):
    """The request makes no sense; nothing was changed."""

    code = "bad_request"


class BadKey(BadRequest):
    """A key that is no text, is empty or too long."""

    code = "bad_key"


class BadValue(BadRequest):
    """A value that is neither text nor bytes, or too long."""

    code = "bad_value"


class ComputedKey(BadRequest):
    """A write into a range that a cache join computes."""

    code = "computed_key"


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
