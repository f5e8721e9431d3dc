"""The answer of `/metrics`: what `stats` counts, as Prometheus reads it.

Labels are tables, joins, methods and codes of errors, never keys: there may be millions.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Sample = tuple[Mapping[str, str], float]

_TABLE_COUNTERS = {
    "hits": "reads that had nothing to compute",
    "evictions": "ranges taken out because there was no room",
}
_JOIN_COUNTERS = {
    "computes": "ranges computed",
    "updater_runs": "updates carried to computed rows",
    "invalidations": "ranges taken away because they would be wrong",
    "evictions": "ranges taken out because there was no room",
    "skipped_values": "values that an aggregate could not read",
}

_DATABASE = {
    "connected": ("gauge", "1 while the database is followed"),
    "lag_bytes": ("gauge", "of the database's log that are not followed yet"),
    "lag_changes": ("gauge", "that are not followed yet"),
    "lag_seconds": ("gauge", "since the cache had all of the database"),
    "age_seconds": ("gauge", "since the database was lost"),
    "wal_behind_bytes": ("gauge", "of its log that the database keeps for us"),
}
_LOADING = {
    "waited_calls": ("gauge", "calls that had to wait for data"),
    "loaded_ranges": ("gauge", "ranges that were loaded"),
    "loaded_rows": ("gauge", "rows that were loaded"),
    "hit_rate": ("gauge", "part of the reads that had not to wait for data"),
}

# Of each home, as this server sees it.
_CLUSTER = {
    "live": ("gauge", "1 while changes of the home arrive"),
    "age_seconds": ("gauge", "time since the copies were known to be complete"),
    "number": ("gauge", "of the last change that is in the copies"),
    "ranges": ("gauge", "ranges that are subscribed to"),
    "changes": ("counter", "changes that came"),
    "bytes": ("counter", "bytes that went between the servers"),
    "resumed": ("counter", "times that a lost stream went on where it was"),
    "restarted": ("counter", "times that all copies had to go"),
    "gaps": ("counter", "times that changes were missing"),
}
# Of the home that this server is.
_HOME = {
    "number": "of the last change",
    "rows": "rows that live here",
    "log_bytes": "bytes of changes that are kept for others",
}


def exposition(stats: Mapping[str, Any]) -> str:
    """The statistics in the text format of Prometheus."""
    return "".join(line + "\n" for line in _lines(stats))


def _lines(stats: Mapping[str, Any]) -> Iterator[str]:
    server, tables, joins = stats["server"], stats["tables"], stats["joins"]
    yield from _metric(
        "up_seconds", "gauge", "time since the start", [({}, server["uptime_seconds"])]
    )
    yield from _metric("connections", "gauge", "open connections", [({}, server["connections"])])
    yield from _metric(
        "calls_total",
        "counter",
        "calls answered with a result",
        (({"method": name}, number) for name, number in sorted(server["calls"].items())),
    )
    yield from _metric(
        "errors_total",
        "counter",
        "calls answered with an error",
        (({"code": code}, number) for code, number in sorted(server["errors"].items())),
    )
    for name, gauge in (("collections_total", "counter"), ("pause_seconds_max", "gauge")):
        yield from _metric(
            f"gc_{name}", gauge, "of the garbage collector", [({}, server[f"gc_{name}"])]
        )
    for kind, counts in (("database", _DATABASE), ("loading", _LOADING)):
        for name, (metric, said) in counts.items():
            value = server.get(kind, {}).get(name)
            if value is not None:
                yield from _metric(f"{kind}_{name}", metric, said, [({}, float(value))])
    if "cluster" in server:
        yield from _cluster(server["cluster"])
    if stats["memory_limit"] is not None:
        yield from _metric(
            "memory_limit_bytes", "gauge", "evict beyond this", [({}, stats["memory_limit"])]
        )
    yield from _metric("keys", "gauge", "rows", _samples("table", tables, "keys"))
    yield from _metric(
        "memory_bytes", "gauge", "memory of a table", _samples("table", tables, "bytes")
    )
    for name, said in _TABLE_COUNTERS.items():
        yield from _metric(f"table_{name}_total", "counter", said, _samples("table", tables, name))
    for name, said in _JOIN_COUNTERS.items():
        yield from _metric(f"join_{name}_total", "counter", said, _samples("join", joins, name))


def _cluster(cluster: Mapping[str, Any]) -> Iterator[str]:
    for name, (kind, said) in _CLUSTER.items():
        total = "_total" if kind == "counter" else ""
        samples = (
            ({"home": home}, float(one[name]))
            for home, one in cluster["homes"].items()
            if one[name] is not None
        )
        yield from _metric(f"cluster_{name}{total}", kind, said, samples)
    home = cluster.get("home")
    if home is not None:
        for name, said in _HOME.items():
            yield from _metric(f"home_{name}", "gauge", said, [({}, home[name])])
        behind = (({"node": one["node"]}, one["behind"]) for one in home["subscribers"])
        yield from _metric("home_behind", "gauge", "changes a subscriber was not told of", behind)


def _samples(label: str, things: Mapping[str, Any], field: str) -> Iterator[Sample]:
    return (({label: name}, thing[field]) for name, thing in things.items())


def _metric(name: str, kind: str, said: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP pequod_{name} {said}"
    yield f"# TYPE pequod_{name} {kind}"
    for labels, value in samples:
        shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"pequod_{name}{{{shown}}} {value}" if shown else f"pequod_{name} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
