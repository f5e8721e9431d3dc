"""Load: the rows of folders into a server or a cluster, in key order, at the pace they take.

Base rows are put, in a cluster at their homes. Computed rows are not sent at all: the server that
clients read them from computes them from the base rows, timeline by timeline, so that their ranges
are fresh, have their updaters, and share their values with the base rows; then a digest tells that
they are the rows of the manifest. Sending them would take longer than computing them, and each
value would be one more copy.

Nothing is noted down: digests tell what the servers have already, so a load that broke off goes on
where it was, and one that is complete does nothing.
"""

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from pathlib import Path
from ssl import SSLContext
from typing import Any, NamedTuple

from pequod.client import AsyncClient
from pequod.cluster.client import ClusterClient
from pequod.digests import RowsDigest
from pequod.errors import BadData, PequodError, SourceDown, TooLarge, Unavailable
from pequod.keys import BAR, KeyRange, Pair, point, prefix
from pequod.pipeline.files import Manifest, open_rows, pairs_of, read_groups, read_rows
from pequod.pipeline.jobs import Told, quiet

BATCH = 4096  # rows in a request
WINDOW = 4  # requests on their way at a time; one is too few to keep both ends busy
VIEWS_WINDOW = 64  # ranges to compute that are asked for at a time

_LOOK_SECONDS = 0.05

Run = tuple[KeyRange, list[Pair]]
Found = tuple[int, str] | None  # what a server says of a range; None: it has far too many rows
Asked = tuple[list[Run], Awaitable[list[tuple[int, str]]]]


class Piece(NamedTuple):
    """Base rows of one range, which all go to one server, and what it then says of the range."""

    home: AsyncClient
    keys: KeyRange
    rows: list[Pair]
    expected: tuple[int, str]


def load(
    folders: Sequence[Path],
    address: str,
    told: Told = quiet,
    *,
    timeout: float = 60.0,
    tls: SSLContext | None = None,
) -> int:
    """Bring the rows of all folders there; answers with how many of them there are.

    The address is that of a server, or the path of a cluster's map.
    """
    manifests = [(folder, Manifest.load(folder, "rows")) for folder in folders]
    manifests.sort(key=lambda pair: "joins" in pair[1].spec)  # what is computed needs its base
    client = AsyncClient(address, timeout=timeout, tls=tls)
    return asyncio.run(_load(manifests, client, told, timeout))


async def _load(
    manifests: Sequence[tuple[Path, Manifest]], client: AsyncClient, told: Told, timeout: float
) -> int:
    total = sum(manifest.rows for _, manifest in manifests)
    done = 0
    async with client:
        try:
            for folder, manifest in manifests:
                if "joins" in manifest.spec:
                    await _add_joins(client, "\n".join(manifest.spec["joins"]), timeout)
                    steps = _compute(client, folder, manifest)
                else:
                    steps = _put(client, folder, manifest)
                async for rows in steps:
                    done += rows
                    told(done, total)
        except (SourceDown, Unavailable) as error:
            raise Unavailable(
                f"{error}; {done:,} of {total:,} rows were loaded: give the same command again, "
                "and it goes on from there"
            ) from error
    return done


# Base rows.


async def _put(client: AsyncClient, folder: Path, manifest: Manifest) -> AsyncIterator[int]:
    """Put what the servers have not, row group by row group; yields the rows of each."""
    for keys, rows, digest in _groups(folder, manifest):
        pieces = list(_pieces(client, keys, rows, digest))
        found = await _together(map(_digest, pieces))
        lacking = [piece for piece, one in zip(pieces, found) if one != piece.expected]
        await _all(WINDOW, _puts(lacking))
        # Of what was empty before, the server's word that it took it is enough.
        doubtful = [
            piece
            for piece, one in zip(pieces, found)
            if one != piece.expected and (one is None or one[0])
        ]
        for piece, one in zip(doubtful, await _together(map(_digest, doubtful))):
            if one != piece.expected:
                raise BadData(
                    "the server has other rows than those of the manifest from "
                    f"{piece.keys.first!r} to {piece.keys.last!r}; remove them there with "
                    "`pequod removerange`, and load again"
                )
        yield len(rows)


def _groups(folder: Path, manifest: Manifest) -> Iterator[tuple[KeyRange, list[Pair], str]]:
    """The row groups in key order: range, rows and digest. They cover their tables with no gaps."""
    groups = [
        (file, number, group)
        for file in manifest.files
        for number, group in enumerate(read_groups(folder, file))
    ]
    tables = [(_head(g.first, 1), _head(g.last, 1)) for _, _, g in groups]
    for at, (file, number, group) in enumerate(groups):
        first, last = tables[at][0].first, tables[at][1].last
        if at and tables[at - 1][1] == tables[at][0]:
            first = group.first
        if at + 1 < len(groups) and tables[at + 1][0] == tables[at][1]:
            last = groups[at + 1][2].first
        with open_rows(folder, file) as source:
            rows = pairs_of(source.read_row_group(number))
        yield KeyRange(first, last), rows, group.digest


def _pieces(client: AsyncClient, keys: KeyRange, rows: list[Pair], digest: str) -> Iterator[Piece]:
    """The rows of a range by their homes; a range that is no one's home's is cut."""
    if not isinstance(client, ClusterClient):
        yield Piece(client, keys, rows, (len(rows), digest))
        return
    at = 0
    while at < len(rows):
        key = rows[at][0]
        span = client.map.span(key).clip(keys)
        end = bisect_left(rows, span.last, at, key=itemgetter(0))
        some = rows[at:end]
        yield Piece(client.at(client.map.home_of(key)), span, some, _digest_of(some))
        at = end


def _puts(pieces: Iterable[Piece]) -> Iterator[Awaitable[Any]]:
    """Requests that put the rows, in key order, as many in each as there may be."""
    waiting: dict[AsyncClient, list[Pair]] = {}
    for piece in pieces:
        rows = waiting.setdefault(piece.home, [])
        rows += piece.rows
        while len(rows) >= BATCH:
            yield piece.home.put_many(rows[:BATCH])
            del rows[:BATCH]
    for home, rows in waiting.items():
        if rows:
            yield home.put_many(rows)


async def _digest(piece: Piece) -> Found:
    try:
        rows, digest = await piece.home.digest(*piece.keys)
    except TooLarge:
        return None
    return rows, digest


def _digest_of(rows: list[Pair]) -> tuple[int, str]:
    digest = RowsDigest()
    digest.add(rows)
    return digest.rows, digest.hexdigest()


# Computed rows.


async def _add_joins(client: AsyncClient, text: str, timeout: float) -> None:
    """Install joins; in a cluster, also wait until the servers that compute know them."""
    names = {join["name"] for join in await client.add_join(text)}
    if not isinstance(client, ClusterClient):
        return
    try:
        async with asyncio.timeout(timeout):
            for node in client.map.compute:
                while not names <= {join["name"] for join in await client.at(node).joins()}:
                    await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError as error:
        raise Unavailable(f"node {node} does not learn of the joins") from error


async def _compute(client: AsyncClient, folder: Path, manifest: Manifest) -> AsyncIterator[int]:
    """Let servers compute all ranges of some views; yields how many rows they have computed."""
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
        if tuple(found) != _digest_of(rows):
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
                keys, run = _head(rows[at][0], 2), []
            end = bisect_left(rows, keys.last, at, key=itemgetter(0))
            run += rows[at:end]
            at = end
    if run:
        yield keys, run


def _head(key: str, bars: int) -> KeyRange:
    """The range of all keys that are alike up to so many bars; that of the key if it has fewer."""
    end = 0
    for _ in range(bars):
        end = key.find(BAR, end) + 1
        if not end:
            return point(key)
    return prefix(key[:end])


async def _together(calls: Iterable[Awaitable[Any]]) -> list[Any]:
    """The results of all calls; the first error is raised when none of them is under way."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


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
