"""The command line that runs many random scenarios: `python -m tests.scenarios --help`."""

import argparse
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import count, islice
from typing import NamedTuple

from tests.generator import Scenario, random_scenario
from tests.runner import run, smallest

BATCH = 200  # scenarios between two lines of progress


class Result(NamedTuple):
    """How the scenario of a seed went; `failure` is empty if it went well."""

    seed: int
    refusals: int
    failure: str


def result_of(seed: int, steps: int) -> Result:
    """Run the scenario of that seed."""
    try:
        return Result(seed, run(random_scenario(seed, steps)), "")
    except AssertionError as error:
        return Result(seed, 0, str(error))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives the exit status."""
    options = _options(arguments)
    started, done, failures, refused = time.monotonic(), 0, 0, 0
    with suppress(KeyboardInterrupt):
        for result in _results(options):
            done += 1
            refused += result.refusals > 0
            if result.failure:
                failures += 1
                if not options.keep_going:
                    print(result.failure, "and the same made smaller:", sep="\n\n")
                    print(_failure(smallest(random_scenario(result.seed, options.steps))))
                    break
                print("  ".join(result.failure.splitlines()[:2])[:200], flush=True)
            if done % BATCH == 0 or done == options.seeds:
                progress = f"{done} scenarios, {failures} failed, {refused} with a join refused"
                speed = done / (time.monotonic() - started)
                end = "\r" if sys.stderr.isatty() else "\n"
                print(f"{progress}, {speed:.0f}/s", end=end, file=sys.stderr, flush=True)
    return 1 if failures else 0


def _results(options: argparse.Namespace) -> Iterator[Result]:
    seeds: Iterator[int] = count(options.first)
    if not options.forever:
        seeds = islice(seeds, options.seeds)
    run_one = partial(result_of, steps=options.steps)
    if options.jobs == 1:
        yield from map(run_one, seeds)
        return
    # An interrupt is for the process that prints.
    with multiprocessing.Pool(options.jobs, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        while batch := list(islice(seeds, BATCH)):
            yield from pool.imap(run_one, batch, chunksize=5)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3000, help="how many scenarios")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first one")
    parser.add_argument("--steps", type=int, default=60, help="the length of each")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many processes")
    parser.add_argument("--forever", action="store_true", help="run until interrupted")
    parser.add_argument(
        "--keep-going", action="store_true", help="one line for each failure; do not stop"
    )
    return parser.parse_args(arguments)


def _failure(scenario: Scenario) -> str:
    try:
        run(scenario)
    except AssertionError as error:
        return str(error)
    raise AssertionError("a scenario that failed does not fail any more")


if __name__ == "__main__":
    sys.exit(main())
