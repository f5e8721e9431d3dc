"""Figure 9: Newp with interleaved cache joins, without, and on Redis, over the vote rate.

Interleaved, a page is one scan; every vote is copied into all pages that show the karma of the
author. Separate, a page takes three reads and then one for each commenter's karma. On Redis, whose
clients count for themselves, it takes three reads and an MGET. The paper's section 5.4.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from loadgen.newp_world import COMMENT, READ, NewpWorld, Session
from loadgen.progress import Bar
from loadgen.replay.loop import closed_loop
from loadgen.report import Findings, Ratio, progress
from loadgen.servers import CLIENT_CORE, ServerProcess, pin, start_pequod
from loadgen.systems.base import Missing, batched
from loadgen.systems.pequod_system import BATCH, PequodRequests
from loadgen.systems.redis_system import Redis, RedisRequests
from pequod import Client
from pequod.pipeline.newp import NewpSpec

COUNTS = """
karma|<author> = count vote|<author>|<id>|<voter>;
rank|<author>|<id:10> = count vote|<author>|<id>|<voter>;
"""
PAGES = """
page|<author>|<id:10>|a = copy article|<author>|<id>;
page|<author>|<id:10>|r = copy rank|<author>|<id>;
page|<author>|<id:10>|c|<cid:10>|<commenter> = copy comment|<author>|<id>|<cid>|<commenter>;
page|<author>|<id:10>|k|<cid:10>|<commenter> =
    check comment|<author>|<id>|<cid>|<commenter> copy karma|<commenter>;
"""
INTERLEAVED, SEPARATE, REDIS = "interleaved", "separate", "redis"
WINDOW = 128
SAMPLE = 200  # pages that are compared


class Interleaved(PequodRequests):
    """A page is one scan."""

    def begin(self, number: int, operation: Session) -> None:
        kind, (author, id_), who, comment = operation
        if kind == READ:
            self.ask(number, "scan", f"page|{author}|{id_}|", f"page|{author}|{id_}}}")
        elif kind == COMMENT:
            self.ask(number, "put", f"comment|{author}|{id_}|{comment}|{who}", "I see")
        else:
            self.ask(number, "put", f"vote|{author}|{id_}|{who}", "1")

    def finish(self, number: int, reply: Any) -> None:
        self.ended.append(number)
        if reply:
            self.rows += len(reply)
            if self.answers is not None:
                self.answers[number] = _page_of_scan(reply)


def _page_of_scan(rows: Any) -> "Page":
    title = rank = ""
    comments, karmas = {}, {}
    for key, value in rows:
        _, _, _, kind, *rest = key.split("|")
        if kind == "a":
            title = value
        elif kind == "r":
            rank = value
        elif kind == "c":
            comments[rest[0], rest[1]] = value
        else:
            karmas[rest[1]] = value
    return title, rank, comments, karmas


Page = tuple[str, str, dict[tuple[str, str], str], dict[str, str]]


class Separate(Interleaved):
    """A page is three reads, and then one for each commenter."""

    def begin(self, number: int, operation: Session) -> None:
        kind, (author, id_), _, _ = operation
        if kind != READ:
            super().begin(number, operation)
            return
        found: list[Any] = []
        self.ask(found.append, "get", f"article|{author}|{id_}")
        self.ask(found.append, "get", f"rank|{author}|{id_}")

        def karmas(comments: Any) -> None:
            parsed = {tuple(key.split("|")[3:]): text for key, text in comments}
            commenters = list({commenter for _, commenter in parsed})
            if not commenters:
                self._finish_page(number, found, parsed, [], [])
                return
            counts: list[Any] = []

            def last(count: Any) -> None:
                counts.append(count)
                self._finish_page(number, found, parsed, commenters, counts)

            for commenter in commenters[:-1]:
                self.ask(counts.append, "get", f"karma|{commenter}")
            self.ask(last, "get", f"karma|{commenters[-1]}")

        self.ask(karmas, "scan", f"comment|{author}|{id_}|", f"comment|{author}|{id_}}}")

    def _finish_page(
        self, number: int, found: list[Any], comments: Any, who: list[str], counts: list[Any]
    ) -> None:
        self.ended.append(number)
        self.rows += len(comments) + len(counts) + 2
        if self.answers is not None:
            karmas = {name: count for name, count in zip(who, counts) if count is not None}
            self.answers[number] = (found[0] or "", found[1] or "", comments, karmas)


class OnRedis(RedisRequests):
    """Strings for articles and counts, a hash of comments for each article."""

    def begin(self, number: int, operation: Session) -> None:
        kind, (author, id_), who, comment = operation
        if kind == READ:
            self._read(number, id_)
        elif kind == COMMENT:
            self.ask(number, "HSET", f"c|{id_}", f"{comment}|{who}", "I see")
        else:

            def counted(is_new: int) -> None:
                if is_new:
                    self.ask(None, "INCR", f"r|{id_}")
                    self.ask(number, "INCR", f"k|{author}")
                else:
                    self.ended.append(number)

            self.ask(counted, "SADD", f"v|{id_}", who)

    def _read(self, number: int, id_: str) -> None:
        found: list[Any] = []
        self.ask(found.append, "GET", f"a|{id_}")
        self.ask(found.append, "GET", f"r|{id_}")

        def karmas(fields: Any) -> None:
            commenters = list({name.partition(b"|")[2] for name in fields[::2]})
            if not commenters:
                self._finish_page(number, found, fields, [], [])
                return

            def last(counts: list[Any]) -> None:
                self._finish_page(number, found, fields, commenters, counts)

            self.ask(last, "MGET", *[b"k|" + name for name in commenters])

        self.ask(karmas, "HGETALL", f"c|{id_}")

    def _finish_page(
        self, number: int, found: list[Any], fields: Any, who: list[bytes], counts: list[Any]
    ) -> None:
        self.ended.append(number)
        self.rows += len(fields) // 2 + len(counts) + 2
        if self.answers is not None:
            comments = {
                tuple(name.decode().split("|")): text.decode()
                for name, text in zip(fields[::2], fields[1::2])
            }
            karmas = {n.decode(): c.decode() for n, c in zip(who, counts) if c is not None}
            title, rank = ((one or b"").decode() for one in found)
            self.answers[number] = (title, rank, comments, karmas)

    def finish(self, number: int, reply: Any) -> None:
        self.ended.append(number)


SPEC = NewpSpec(articles=20_000, users=10_000, comments=200_000, votes=400_000)


@dataclass(frozen=True)
class Votes:
    """The sizes, and the vote rates in percent."""

    spec: NewpSpec = SPEC
    sessions: int = 40_000
    rates: Sequence[int] = (1, 10, 25, 50, 75, 100)
    turns: int = 3


QUICK_VOTES = Votes(
    spec=NewpSpec(articles=5_000, users=2_500, comments=50_000, votes=100_000),
    sessions=5_000,
    rates=(1, 10, 30, 50, 75, 100),
    turns=3,
)


def measure_newp(votes: Votes) -> Findings:
    """Sessions per second of each way at each vote rate."""
    pin(0, CLIENT_CORE)
    findings = Findings(
        facts={
            "articles": votes.spec.articles,
            "users": votes.spec.users,
            "comments": votes.spec.comments,
            "votes": votes.spec.votes,
            "sessions_per_point": votes.sessions * votes.turns,
        }
    )
    speeds: dict[tuple[str, int], list[float]] = {}
    with TemporaryDirectory() as directory, ExitStack() as stack:
        world = NewpWorld(votes.spec, Path(directory))
        talks = _start_all(world, stack)
        points = [(rate, turn) for rate in votes.rates for turn in range(votes.turns)]
        for at in Bar(len(points), "vote rates and turns"):
            rate, turn = points[at]
            operations = world.operations(votes.sessions, rate, at)
            for way in list(talks)[:: 1 if turn % 2 else -1]:
                talk, server = talks[way]
                before = server.cpu_seconds()
                stint = closed_loop(talk, operations, WINDOW)
                speeds.setdefault((way, rate), []).append(
                    votes.sessions / (stint.ended - stint.started)
                )
                findings.results.append(
                    {
                        "way": way,
                        "vote_percent": rate,
                        "turn": turn,
                        "sessions_per_second": speeds[way, rate][-1],
                        "server_cpu_microseconds": (server.cpu_seconds() - before)
                        / votes.sessions
                        * 1e6,
                        "client_cpu_microseconds": stint.cpu_seconds / votes.sessions * 1e6,
                    }
                )
        _compare_pages(talks, world)
        findings.facts["pages_compared"] = SAMPLE
        findings.facts["server_memory_bytes"] = {
            way: server.memory_bytes() for way, (_, server) in talks.items()
        }
    findings.ratios += _ratios(speeds, votes.rates)
    return findings


Talks = dict[str, tuple[Any, ServerProcess]]


def _start_all(world: NewpWorld, stack: ExitStack) -> Talks:
    """A server for each way, with the world in it and every page read once."""
    talks: Talks = {}
    for way, make, joins in (
        (INTERLEAVED, Interleaved, COUNTS + PAGES),
        (SEPARATE, Separate, COUNTS),
    ):
        progress(f"{way}: filling")
        server = stack.enter_context(start_pequod())
        with Client(f"pequod://127.0.0.1:{server.port}", timeout=120) as client:
            client.add_join(joins)
            for pairs in batched(world.pairs(), BATCH):
                client.put_many(pairs)
        talks[way] = make(server.port), server
    try:
        server = stack.enter_context(Redis().start())
    except Missing as missing:
        progress(f"without redis: {missing}")
    else:
        progress("redis: filling")
        talk = OnRedis(server.port)
        _fill_redis(talk, world)
        talks[REDIS] = talk, server
    for way, (talk, _) in talks.items():
        stack.callback(talk.close)
        progress(f"{way}: reading all pages once")
        closed_loop(talk, [(READ, article, "", "") for article in world.articles], WINDOW)
    return talks


def _fill_redis(talk: OnRedis, world: NewpWorld) -> None:
    asked = 0
    for key, value in world.pairs():
        kind, author, id_, *rest = key.split("|")
        if kind == "article":
            talk.ask(asked, "SET", f"a|{id_}", value)
        elif kind == "comment":
            talk.ask(asked, "HSET", f"c|{id_}", "|".join(rest), value)
        else:
            talk.ask(None, "SADD", f"v|{id_}", rest[0])
            talk.ask(None, "INCR", f"r|{id_}")
            talk.ask(asked, "INCR", f"k|{author}")
        asked += 1
        if asked % 500 == 0:
            talk.settle(asked - 250)
    talk.settle(asked)


def _compare_pages(talks: Talks, world: NewpWorld) -> None:
    """Read some pages in every way; a difference ends the run."""
    step = max(1, len(world.articles) // SAMPLE)
    reads = [(READ, article, "", "") for article in world.articles[::step][:SAMPLE]]
    pages = {}
    for way, (talk, _) in talks.items():
        talk.answers = {}
        closed_loop(talk, reads, WINDOW)
        pages[way], talk.answers = talk.answers, None
    for way, found in pages.items():
        wrong = [at for at in range(len(reads)) if found[at] != pages[SEPARATE][at]]
        if wrong:
            raise SystemExit(
                f"{way} and {SEPARATE} differ on {len(wrong)} pages, {reads[wrong[0]][1]} for one: "
                f"{found[wrong[0]]} and {pages[SEPARATE][wrong[0]]}"
            )


def _ratios(speeds: dict[tuple[str, int], list[float]], rates: Sequence[int]) -> list[Ratio]:
    gains = {
        rate: [a / b for a, b in zip(speeds[INTERLEAVED, rate], speeds[SEPARATE, rate])]
        for rate in rates
    }
    medians = [(rate, median(gains[rate])) for rate in rates]
    first = rates[0]
    crossover = crossover_rate(medians)
    return [
        Ratio(
            f"interleaved_gain_at_{first}",
            medians[0][1],
            1.0,
            f"{median(speeds[INTERLEAVED, first]):,.0f} sessions/s, "
            f"separate {median(speeds[SEPARATE, first]):,.0f}",
            at_least=True,
            spread=(min(gains[first]), max(gains[first])),
        ),
        Ratio(
            "crossover_vote_rate",
            crossover,
            30,
            f"interleaved is faster up to {crossover:.0f}% votes (the paper: 90%)",
            at_least=True,
        ),
    ]


def crossover_rate(gains: Sequence[tuple[int, float]]) -> float:
    """The vote rate up to which interleaving gains, on straight lines between the points.

    >>> crossover_rate([(1, 2.0), (50, 1.5), (100, 0.5)])
    75.0
    """
    rate_before, gain_before = gains[0]
    if gain_before < 1:
        return 0.0
    for rate, gain in gains[1:]:
        if gain < 1:
            return rate_before + (rate - rate_before) * (gain_before - 1) / (gain_before - gain)
        rate_before, gain_before = rate, gain
    return float(rate_before)


def ways_table(findings: Findings) -> str:
    """Sessions per second, a row for each vote rate: the median of the turns."""
    by: dict[tuple[Any, Any], list[Any]] = {}
    for result in findings.results:
        at = (result["way"], result["vote_percent"])
        by.setdefault(at, []).append(result["sessions_per_second"])
    ways = list(dict.fromkeys(way for way, _ in by))
    lines = [f"{'votes':>5}" + "".join(f"{way:>14}" for way in ways) + "   sessions/s"]
    for rate in dict.fromkeys(rate for _, rate in by):
        lines.append(f"{rate:>4}%" + "".join(f"{median(by[way, rate]):>14,.0f}" for way in ways))
    return "\n".join(lines)
