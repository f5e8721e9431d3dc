"""Processes of their own for measurements, and what the operating system says of their memory."""

import gc
import os
import resource
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


def in_fresh_process(
    function: Callable[Parameters, Returned], *args: Parameters.args, **kwargs: Parameters.kwargs
) -> Returned:
    """Call `function` in a new interpreter, whose heap no earlier measurement has used."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *args, **kwargs).result()


def resident_bytes() -> int:
    """The memory of this process, free of garbage; where /proc is missing, its peak.

    >>> resident_bytes() > 1_000_000
    True
    """
    gc.collect()
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
