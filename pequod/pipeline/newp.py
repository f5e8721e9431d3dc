"""A Newp world: articles, comments and votes, as rows of a cache in key order.

    article|u0000007|0000000012                       = its title
    comment|u0000007|0000000012|0000000345|u0000001   = a text; 345 is the number of the comment
    vote|u0000007|0000000012|u0000001                 = 1

The default sizes are those of the paper's section 5.4. Comments and votes fall on articles at
random, and nobody votes twice on one article.
"""

from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pequod.errors import BadRequest
from pequod.pipeline.chance import Integers, below, permuted, stream, words
from pequod.pipeline.files import Manifest, job_name, rows_are_whole, text_rows, write_rows
from pequod.pipeline.graph import user_width
from pequod.pipeline.jobs import Engine, Facts, Told, cut, files_of, quiet, wrote
from pequod.pipeline.texts import digits, joined, letters

ID_DIGITS = 10
KINDS = ("article", "comment", "vote")  # in key order

_AUTHORS, _TITLES, _COMMENTED, _COMMENTERS, _VOTED, _VOTERS, _COMMENTS = range(31, 38)


@dataclass(frozen=True)
class NewpSpec:
    """A Newp world; equal specs are equal worlds."""

    articles: int = 100_000
    users: int = 50_000
    comments: int = 1_000_000
    votes: int = 2_000_000
    seed: int = 1
    text_bytes: int = 100

    def __post_init__(self) -> None:
        if min(self.articles, self.users, self.text_bytes) < 1:
            raise BadRequest("a Newp world has an article, a user, and texts of a letter or more")
        if min(self.comments, self.votes) < 0:
            raise BadRequest("there are no negative numbers of comments and votes")
        if self.votes and int(_votes_of_each(self).max()) > self.users:
            raise BadRequest(f"{self.users:,} users are too few for {self.votes:,} votes")


def write_newp(
    spec: NewpSpec, out: Path, engine: Engine, parts: int, told: Told = quiet
) -> Manifest:
    """Write the world into the folder `out`, unless it is there; its rows are in `out/kv`."""
    done = Manifest.done(out, "newp", asdict(spec))
    if done is not None and rows_are_whole(out / "kv"):
        return done
    found = engine.run(partial(_write_part, spec, out, parts), parts, told)
    files = tuple(file for kind in KINDS for file in files_of(found, kind))
    Manifest("rows", asdict(spec), files).save(out / "kv")
    manifest = Manifest("newp", asdict(spec))
    manifest.save(out)
    return manifest


@lru_cache(maxsize=2)
def _votes_of_each(spec: NewpSpec) -> Integers:
    """How many votes each article has."""
    voted = below(words(stream(spec.seed, _VOTED), np.arange(spec.votes)), spec.articles)
    return np.bincount(voted, minlength=spec.articles)


def _write_part(spec: NewpSpec, out: Path, parts: int, part: int) -> Facts:
    """The rows of the authors of one part, in three files, one for each kind of row."""
    first, last = cut(spec.users, part, parts)
    articles = np.arange(spec.articles)
    authors = below(words(stream(spec.seed, _AUTHORS), articles), spec.users)
    mine = np.flatnonzero((first <= authors) & (authors < last))
    mine = mine[np.lexsort((mine, authors[mine]))]  # by author, then by id: the order of keys
    place = np.full(spec.articles, -1)
    place[mine] = np.arange(len(mine))
    job = job_name("newp", asdict(spec)) + f" {part}/{parts}"

    def write(kind: str, table: pa.Table) -> Any:
        return write_rows(out / "kv", f"{kind}-{part:05}.parquet", job, [table])

    def key(kind: bytes, of: Integers, *more: Any) -> pa.Array:
        width = user_width(spec.users)
        id_ = digits(of, ID_DIGITS)
        return joined(len(of), kind + b"|u", digits(authors[of], width), b"|", id_, *more)

    def user(numbers: Integers) -> Any:
        return digits(numbers, user_width(spec.users))

    titles = letters(stream(spec.seed, _TITLES), mine, spec.text_bytes)
    article = write("article", text_rows(key(b"article", mine), titles))

    comments = np.arange(spec.comments)
    about = below(words(stream(spec.seed, _COMMENTED), comments), spec.articles)
    comments = comments[place[about] >= 0]
    comments = comments[np.lexsort((comments, place[about[comments]]))]
    who = user(below(words(stream(spec.seed, _COMMENTERS), comments), spec.users))
    number = digits(comments, ID_DIGITS)
    keys = key(b"comment", about[comments], b"|", number, b"|u", who)
    said = letters(stream(spec.seed, _COMMENTS), comments, spec.text_bytes)
    comment = write("comment", text_rows(keys, said))

    counts = _votes_of_each(spec)[mine]
    voted = np.repeat(mine, counts)
    ordinals = np.arange(len(voted)) - np.repeat(np.cumsum(counts) - counts, counts)
    # A bijection of the users for each article, so that nobody votes twice.
    voters = permuted(ordinals, spec.users, words(stream(spec.seed, _VOTERS), voted))
    order = np.lexsort((voters, np.repeat(np.arange(len(mine)), counts)))
    keys = key(b"vote", voted[order], b"|u", user(voters[order]))
    vote = write("vote", text_rows(keys, joined(len(order), b"1")))
    return wrote(article=article, comment=comment, vote=vote)
