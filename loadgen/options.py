"""What options of the benchmarks may be: a mistake is told before the minutes of measuring."""

import os
from argparse import ArgumentTypeError
from pathlib import Path


def positive(text: str) -> int:
    """
    >>> positive("20000")
    20000
    """
    if not text.isdecimal() or int(text) == 0:
        raise ArgumentTypeError(f"a whole number above 0 is wanted, not {text!r}")
    return int(text)


def rate(text: str) -> float:
    """
    >>> rate("2500")
    2500.0
    """
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise ArgumentTypeError(f"a number above 0 is wanted, not {text!r}")
    return found


def percents(text: str) -> list[int]:
    """
    >>> percents("1,50,100")
    [1, 50, 100]
    """
    found = [positive(one.strip()) for one in text.split(",")]
    if found != sorted(set(found)) or found[-1] > 100:
        raise ArgumentTypeError(f"percents from 1 to 100 are wanted, rising, not {text!r}")
    return found


def new_file(text: str) -> Path:
    """A file that can be written."""
    path = Path(text)
    if path.is_dir() or not os.access(path.absolute().parent, os.W_OK):
        raise ArgumentTypeError(f"cannot write {text}")
    return path
