"""What visitors write, and what they read: names and texts that are checked, times, numbers."""

import re
import time
from datetime import UTC, datetime

NAME = re.compile(r"[a-z][a-z0-9_]{0,29}")
CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x9f]")
SHADES = 8  # colours of the signs that stand for users


class Mistake(Exception):
    """What the visitor did wrong, in a sentence, with a status."""

    def __init__(self, said: str, status: int = 400) -> None:
        super().__init__(said)
        self.said = said
        self.status = status


def ago(stamp: str | int) -> str:
    """How long ago a time in seconds was.

    >>> ago(int(time.time()) - 7300)
    '2 h ago'
    """
    seconds = max(0, int(time.time()) - int(stamp))
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return "just now"


def iso(stamp: str | int) -> str:
    """A time in seconds, as programs and people can read it.

    >>> iso(1_800_000_000)
    '2027-01-15T08:00:00+00:00'
    """
    return datetime.fromtimestamp(int(stamp), UTC).isoformat()


def valid_name(text: str) -> str:
    """A user name, or a `Mistake`."""
    name = text.strip().lower()
    if not NAME.fullmatch(name):
        raise Mistake("A name has up to 30 small letters, digits and _, and starts with a letter.")
    return name


def known_name(text: str) -> str:
    """A name in an address, which may be that of somebody, or a `Mistake`."""
    if not NAME.fullmatch(text):
        raise Mistake(f"There is no user {text[:30]}.", 404)
    return text


def valid_text(text: str, longest: int, what: str) -> str:
    """A text of some length, or a `Mistake`; lines stay lines, with at most one empty between two.

    >>> valid_text("so\\0  much\\r\\n\\n\\n\\n\\nspace ", 20, "A post")
    'so much\\n\\nspace'
    """
    lines = (" ".join(line.split()) for line in CONTROL.sub("", text).strip().splitlines())
    text = re.sub("\n{3,}", "\n\n", "\n".join(lines))
    if not any(sign.isprintable() and not sign.isspace() for sign in text):
        raise Mistake(f"{what} without words says too little.")
    if len(text) > longest:
        raise Mistake(f"{what} has at most {longest} characters; this has {len(text)}.")
    return text


def counted(number: int | str, noun: str) -> str:
    """A number of things.

    >>> counted(1, "row"), counted("2", "row")
    ('1 row', '2 rows')
    """
    return f"{number} {noun}" if int(number) == 1 else f"{number} {noun}s"


def shade(name: str) -> int:
    """The number of a colour for a user, always the same."""
    return sum(name.encode()) % SHADES
