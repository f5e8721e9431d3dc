"""docs/benchmarks.md, written from the benchmark files: only its words are typed by hand.

Whoever wants other figures runs the benchmarks again, and then this.
"""

import json
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from statistics import median
from typing import Any

File = dict[str, Any]
PARTS = {"benchmark", "machine", "results", "ratios", "command", "facts", "limits", "spreads"}

ORDER = (
    *("twip", "twip_sockets", "newp", "materialization", "ablations"),
    *("rpc", "engine", "pauses", "backing", "scale", "pipeline"),
)
INTRODUCTION = """\
# Benchmarks

Why not Redis? This page answers with measurements. It is written by `python -m loadgen report`
from the files in [{folder}]({folder}); `make bench` measures all of it anew, in under 10 minutes,
and writes it again. The experiments are those of the paper's section 5, and its numbers stand
beside ours.

"""
WORDS = {
    "twip": """\
## Twip, as an application in Python gets it

The paper's Figure 7: one microblog on each system, with exactly the same operations: 5% logins
with a long scan, 9% new follows, 85% checks for what is new, 1% posts, by the 70% of the users who
are active. {users:,} users follow 40 others on average, by a power law; whoever has more followers
posts more; there was one post per user before, and a post has 100 characters.

Here each of {outstanding} simulated users at once awaits its own calls, in asyncio and uvloop, by
the client library of its system. Servers have one core and the {clients} client processes the
other. Systems take turns, so that a slow minute of the machine is slow for all. All of them gave
the right answer on {timelines_compared:,} timelines, worked out from the files of the trace.

Most of what *redis* takes is redis-py, which has a connection for each call in flight: it costs
the server, too, a system call for each command. *redis-batched* puts a few lines around it that
gather the calls of all users into pipelines, as Pequod's client does; who compares servers should
look there, and at the next table.

""",
    "twip_sockets": """\
## Twip, the servers alone

The same world and operations, but all systems are driven by one thin loop over sockets that keeps
{outstanding} operations outstanding and sends them in batches. This takes the client libraries
out of the comparison: it is the most that any client could get out of a server. Redis and
memcached are written in C, Pequod's server in Python, and here it shows; what Pequod saves is in
the number of requests, and in the code that an application needs not have.

""",
    "newp": """\
## Newp: interleaved joins or separate reads

The paper's Figure 9. A session reads an article page with its votes, comments and the karma of
each commenter, sometimes votes, and in 1% of all cases comments. *Interleaved*, six cache joins
keep the whole page in one range: one scan. *Separate*, only the counts are joins, and a page
takes three reads and then one per commenter. On Redis the application keeps the counts: three
reads, then an MGET. In the paper interleaving is faster up to 90% votes; the C++ code of its
authors, on a machine like this one, up to between 10 and 25%.

""",
    "materialization": """\
## Materialization: none, dynamic, full

The paper's Figure 8. Only checks and posts; the posts are the same everywhere, and more users are
active from row to row. *None* computes every check, *dynamic* is Pequod as it is, started cold,
*full* has computed all timelines before the clock starts. In the paper dynamic is the fastest up
to 90% active users, and 1.08 times slower than full at 100%.

""",
    "ablations": """\
## Without subtables, output hints, value sharing

The optimizations of the paper's section 4, each taken out, in one process without a network: CPU
per operation of the Twip trace, and growth of memory. The paper's factors are of its C++ code.

""",
    "rpc": """\
## One request over the network

The two newest rows of a timeline of 40, beside Redis and redis-py with the same rows, and beside a
bare aiohttp handler that returns the same bytes.

""",
    "engine": """\
## The engine in one process

Against bare loops over sorted lists and dicts that do only that job.

""",
    "pauses": """\
## Pauses

How long a busy server with 10 million rows stands still for Python's garbage collector
([server.md](server.md#the-garbage-collector)).

""",
    "backing": """\
## Over a database

PostgreSQL behind a server: how fast its log is followed, beside triggers with NOTIFY; how soon a
commit is seen; and a timeline of 200 followees, cold and warm, beside the SQL of the same join
([databases.md](databases.md)).

""",
    "scale": """\
## In a cluster

The paper's Figure 10, as far as two cores go: Twip on 1, 2 and 4 compute servers with all base rows
on one home. Cores are few, so the figure is the CPU per timeline check ([cluster.md](cluster.md)).

""",
    "pipeline": """\
## The data pipeline

Whole commands of `pequod pipeline`, the start of Spark included ([pipeline.md](pipeline.md)).

""",
}


def write_document(folder: Path, output: Path) -> None:
    """Write the page from all benchmark files of a folder."""
    files = {file["benchmark"]: file for file in map(_read, sorted(folder.glob("*.json")))}
    if not files:
        raise SystemExit(f"{folder} has no benchmark files: run `python -m loadgen all` first")
    shown = folder.name if folder.parent == output.parent else folder.as_posix()
    parts = [INTRODUCTION.format(folder=shown), _machines(files.values())]
    for name in ORDER:
        if name in files:
            parts.append(_section(files[name], shown, folder))
    parts.append(_tuning(files))
    output.write_text("\n".join(part.rstrip() + "\n" for part in parts), "utf-8")
    print(f"wrote {output} from {', '.join(files)}")


def _read(path: Path) -> File:
    try:
        file: File = json.loads(path.read_text("utf-8"))
        if missing := PARTS - file.keys():
            raise ValueError(f"it lacks {', '.join(sorted(missing))}")
    except ValueError as error:
        raise SystemExit(f"{path} is no benchmark file: {error}") from error
    return file


def _machines(files: Collection[File]) -> str:
    machines = {
        f"{m['cores']} cores of {m['processor']}, {m['memory_bytes'] / 2**30:.0f} GB, "
        f"{m['system']}, {m['implementation']} {m['python']}"
        for m in (file["machine"] for file in files)
    }
    days = sorted({str(file["machine"]["measured_at"])[:10] for file in files})
    versions = {v for file in files for v in file["facts"].get("versions", {}).values()}
    busiest = max((file["machine"].get("load_average", 0.0) for file in files), default=0.0)
    return (
        f"Measured on {', '.join(days)}: {'; '.join(sorted(machines))}. "
        f"Versions: {', '.join(sorted(versions))}. The load average was at most {busiest:.1f}; "
        "servers and clients alone make about 2 of it.\n"
    )


def _section(file: File, shown: str, folder: Path) -> str:
    name = file["benchmark"]
    text = WORDS[name].format(**file["facts"])
    text += TABLES.get(name, _no_table)(file)
    text += _ratios(file)
    if (folder / f"{name}.png").exists():
        text += f"\n![{name}]({shown}/{name}.png)\n"
    return f"{text}\n`{file['command']}`\n"


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    """
    >>> print(_table(["system", "s"], [["redis", "1.0"]]).strip())
    | system | s |
    |---|---|
    | redis | 1.0 |
    """
    lines = [head, ["---"] * len(head), *rows]
    made = ["| " + " | ".join(line) + " |" for line in lines]
    made[1] = made[1].replace(" ", "")
    return "\n".join(made) + "\n\n"


def _no_table(file: File) -> str:
    return ""


def _twip(file: File) -> str:
    head = ["system", "runtime", "to Pequod's", "paper", "operations/s", "server CPU", "client CPU"]
    head += ["p50", "p99", "memory", "with all timelines"]
    return _table(
        head,
        [
            [
                one["system"],
                f"{one['runtime_seconds']:.2f} s",
                f"{one['runtime_ratio']:.2f}",
                f"{one['paper_ratio']:.2f}" if one["paper_ratio"] else "",
                f"{one['operations_per_second']:,.0f}",
                f"{one['server_cpu_microseconds']:.1f} us",
                f"{one['client_cpu_microseconds']:.1f} us",
                f"{one['p50_milliseconds']:.1f} ms",
                f"{one['p99_milliseconds']:.1f} ms",
                f"{one['server_memory_bytes'] / 1e6:.0f} MB",
                f"{one['server_memory_all_timelines_bytes'] / 1e6:.0f} MB",
            ]
            for one in file["results"]
        ],
    )


def _newp(file: File) -> str:
    results = file["results"]
    ways = list(dict.fromkeys(one["way"] for one in results))
    rates = list(dict.fromkeys(one["vote_percent"] for one in results))

    def cell(way: str, rate: int) -> str:
        some = [one for one in results if (one["way"], one["vote_percent"]) == (way, rate)]
        speed = median(one["sessions_per_second"] for one in some)
        cpu = median(one["server_cpu_microseconds"] for one in some)
        return f"{speed:,.0f} ({cpu:.0f} us)"

    head = ["votes", *(f"{way}: sessions/s (server CPU)" for way in sorted(ways))]
    return _table(head, [[f"{rate}%", *(cell(w, rate) for w in sorted(ways))] for rate in rates])


def _materialization(file: File) -> str:
    by = {(one["strategy"], one["active_percent"]): one for one in file["results"]}
    strategies = list(dict.fromkeys(strategy for strategy, _ in by))
    shares = list(dict.fromkeys(share for _, share in by))
    return _table(
        ["active", "operations", *strategies],
        [
            [f"{share}%", f"{by[strategies[0], share]['operations']:,}"]
            + [f"{by[strategy, share]['runtime_seconds']:.2f} s" for strategy in strategies]
            for share in shares
        ],
    )


def _ablations(file: File) -> str:
    head = ["without", "CPU", "to all on", "paper", "memory", "to all on", "paper"]
    return _table(
        head,
        [
            [
                one["without"],
                f"{one['microseconds']:.2f} us",
                f"{one['time_ratio']:.2f}",
                f"{one['paper_time_ratio']:.2f}",
                f"{one['growth_bytes'] / 1e6:.0f} MB",
                f"{one['memory_ratio']:.2f}",
                f"{one['paper_memory_ratio']:.2f}",
            ]
            for one in file["results"]
        ],
    )


TABLES: dict[str, Callable[[File], str]] = {
    "twip": _twip,
    "twip_sockets": _twip,
    "newp": _newp,
    "materialization": _materialization,
    "ablations": _ablations,
}


def _ratios(file: File) -> str:
    limits, spreads, bases = file["limits"], file["spreads"], file.get("bases", {})
    rows = []
    for name, value in file["ratios"].items():
        sign, limit = limits.get(name, ("", ""))
        spread = spreads.get(name)
        met = value >= limit if sign == ">=" else value <= limit if sign else True
        rows.append(
            [
                f"`{name}`",
                f"{value:.2f}",
                f"{spread[0]:.2f} to {spread[1]:.2f}" if spread else "",
                f"{sign} {limit:g}{'' if met else ', missed'}" if sign else "",
                bases.get(name, ""),
            ]
        )
    return _table(["ratio", "measured", "in the turns", "wanted", "made of"], rows)


def _tuning(files: dict[str, File]) -> str:
    """How each system is set up, so that a reader can repeat or better it."""
    tuning: dict[str, str] = {}
    for file in files.values():
        tuning |= file["facts"].get("tuning", {})
    if not tuning:
        return ""
    lines = "\n".join(f"- **{name}**: {text}" for name, text in tuning.items())
    return f"""## How each system is set up

Each is started by the load generator on a private port, with one core, and stopped after. Clients
that must maintain timelines keep only what they need: who follows whom by poster, the posts, the
timelines. They fan out to all followers, as in the paper, for they do not know who is active;
Pequod computes a timeline when it is first read. "With all timelines" is the memory after every
user has been read, so that Pequod holds the same timelines as the others.

{lines}
"""
