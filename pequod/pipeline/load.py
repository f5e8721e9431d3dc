"""Load: the rows of folders into a server, in key order and at the pace it takes.

Base rows are put. Computed rows are not sent at all: the server computes them from the base rows,
timeline by timeline, so that their ranges are fresh, have their updaters, and share their values
with the base rows; then a digest tells that they are the rows of the manifest. Sending them would
take longer than computing them, and each value would be one more copy.

Nothing is noted down: digests tell what the server has already, so a load that broke off goes on
where it was, and one that is complete does nothing.
"""

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from pequod.client import AsyncClient
from pequod.digests import RowsDigest
from pequod.errors import BadData, BadRequest, PequodError, TooLarge, Unavailable
from pequod.keys import BAR, KeyRange, Pair, point, prefix
from pequod.pipeline.files import Group, Manifest, open_rows, pairs_of, read_groups, read_rows
from pequod.pipeline.jobs import Told, quiet

BATCH = 4096  # rows in a request
WINDOW = 4  # requests on their way at a time; one is too few to keep both ends busy
VIEWS_WINDOW = 64  # ranges to compute that are asked for at a time

Run = tuple[KeyRange, list[Pair]]
Asked = tuple[list[Run], Awaitable[list[tuple[int, str]]]]


def load(
    folders: Sequence[Path], addresses: Sequence[str], told: Told = quiet, timeout: float = 60.0
) -> int:
    """Bring the rows of all folders into the server; answers with how many it has of them."""
    if len(addresses) != 1:
        raise BadRequest("rows are loaded into one server; give one address")
    manifests = [(folder, Manifest.load(folder, "rows")) for folder in folders]
    manifests.sort(key=lambda pair: "joins" in pair[1].spec)  # what is computed needs its base
    return asyncio.run(_load(manifests, addresses[0], told, timeout))


async def _load(
    manifests: Sequence[tuple[Path, Manifest]], address: str, told: Told, timeout: float
) -> int:
    total = sum(manifest.rows for _, manifest in manifests)
    done = 0
    async with AsyncClient(address, timeout=timeout) as client:
        try:
            for folder, manifest in manifests:
                loaded = _compute if "joins" in manifest.spec else _put
                async for rows in loaded(client, folder, manifest):
                    done += rows
                    told(done, total)
        except Unavailable as error:
            raise Unavailable(
                f"{error}; {done:,} of {total:,} rows were loaded: give the same command again, "
                "and it goes on from there"
            ) from error
    return done


async def _put(client: AsyncClient, folder: Path, manifest: Manifest) -> AsyncIterator[int]:
    """Put the row groups that the server has not; yields the rows of each."""
    for file in manifest.files:
        groups = read_groups(folder, file)
        with open_rows(folder, file) as source:
            for number, group in enumerate(groups):
                found = await _digest(client, group)
                if found != (group.rows, group.digest):
                    rows = pairs_of(source.read_row_group(number))
                    batches = (rows[at : at + BATCH] for at in range(0, len(rows), BATCH))
                    await _all(WINDOW, (client.put_many(batch) for batch in batches))
                    if found is None or found[0]:  # there were some rows before
                        await _check_group(client, group)
                yield group.rows


async def _digest(client: AsyncClient, group: Group) -> tuple[int, str] | None:
    """What the server has where a group lies; None if it has far too many rows there."""
    try:
        rows, digest = await client.digest(group.first, group.last + "\0")
    except TooLarge:
        return None
    return rows, digest


async def _check_group(client: AsyncClient, group: Group) -> None:
    if await _digest(client, group) != (group.rows, group.digest):
        raise BadData(
            f"the server has other rows than those of the manifest between {group.first!r} and "
            f"{group.last!r}; remove them there with `pequod removerange`, and load again"
        )


async def _compute(client: AsyncClient, folder: Path, manifest: Manifest) -> AsyncIterator[int]:
    """Let the server compute all ranges of some views; yields how many rows it has computed."""
    await client.add_join("\n".join(manifest.spec["joins"]))
    tables = (table for file in manifest.files for table in read_rows(folder, file))
    runs = natural_runs(pairs_of(table) for table in tables)
    asked: Asked | None = None
    while some := list(islice(runs, VIEWS_WINDOW)):
        digests = asyncio.gather(*(client.digest(*keys) for keys, _ in some))
        await asyncio.sleep(0)  # they are sent, and the server works while this side checks
        if asked is not None:
            yield _checked(asked[0], await asked[1])
        asked = some, digests
    if asked is not None:
        yield _checked(asked[0], await asked[1])


def _checked(some: Sequence[Run], digests: Sequence[tuple[int, str]]) -> int:
    """The number of rows in some ranges, if the server has computed the same ones."""
    for (keys, rows), found in zip(some, digests):
        expected = RowsDigest()
        expected.add(rows)
        if tuple(found) != (expected.rows, expected.hexdigest()):
            raise BadData(
                "the server computes other rows than those of the manifest from "
                f"{keys.first!r} to {keys.last!r}; has it the same base rows? "
                "`pequod pipeline verify` tells which rows differ"
            )
    return sum(len(rows) for _, rows in some)


def natural_runs(lists: Iterable[list[Pair]]) -> Iterator[Run]:
    """The rows, which come in key order, by the ranges that applications read at a time.

    Such a range, one timeline for instance, is all keys that are alike up to their second bar.

    >>> rows = [("t|ann|1|bob", "hi"), ("t|ann|2|bob", "ho"), ("lone", "1")]
    >>> for keys, some in natural_runs([rows[2:], rows[:1], rows[1:2]]):
    ...     print(keys, len(some))
    KeyRange(first='lone', last='lone\\x00') 1
    KeyRange(first='t|ann|', last='t|ann}') 2
    """
    keys, run = KeyRange("", ""), list[Pair]()
    for rows in lists:
        at = 0
        while at < len(rows):
            if rows[at][0] not in keys:
                if run:
                    yield keys, run
                key = rows[at][0]
                head = key[: key.find(BAR, key.find(BAR) + 1) + 1]
                keys, run = prefix(head) if head else point(key), []
            end = bisect_left(rows, keys.last, at, key=itemgetter(0))
            run += rows[at:end]
            at = end
    if run:
        yield keys, run


async def _all(window: int, calls: Iterable[Any]) -> None:
    """Make all calls in order, at most so many of them at a time."""
    waiting: deque[asyncio.Task[Any]] = deque()
    try:
        for call in calls:
            waiting.append(asyncio.ensure_future(call))
            if len(waiting) >= window:
                await waiting.popleft()
        while waiting:
            await waiting.popleft()
    except PequodError:
        await asyncio.gather(*waiting, return_exceptions=True)
        raise
