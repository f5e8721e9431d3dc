"""Twip's timeline by hand: what a good engineer writes who needs this one page and no more.

Subtables are a dict of (sorted list of keys, dict of values), as DESIGN.md section 5 has
them. Nothing is general here: no join text, no status ranges, no updaters, no accounts, no
checks of input. That makes it the yardstick: the engine's times are given as multiples of
these loops.
"""

from bisect import bisect_left, insort
from sys import intern

Pair = tuple[str, str]
Subtable = tuple[list[str], dict[str, str]]


class BareTwip:
    """The timelines `t|user|time|poster` over follows `s|user|poster` and posts `p|poster|time`."""

    def __init__(self) -> None:
        self.subtables: dict[str, Subtable] = {}
        self.followers: dict[str, list[str]] = {}

    def load(self, key: str, value: str) -> None:
        """Store a follow or a post; no timeline is told."""
        table, middle, last = key.split("|")
        keys, values = self.subtables.setdefault(f"{table}|{middle}|", ([], {}))
        insort(keys, key)
        values[key] = value
        if table == "s":
            self.followers.setdefault(last, []).append(intern(middle))

    def scan(self, first: str, last: str) -> list[Pair]:
        """The pairs in [first, last), a range inside one live timeline."""
        keys, values = self.subtables[first[: first.index("|", 2) + 1]]
        start = bisect_left(keys, first)
        return [(key, values[key]) for key in keys[start : bisect_left(keys, last, start)]]

    def put_post(self, key: str, text: str) -> None:
        """Store a new post and put it on the live timeline of every follower."""
        _, poster, time = key.split("|")
        subtables = self.subtables
        keys, values = subtables.setdefault(f"p|{poster}|", ([], {}))
        insort(keys, key)
        values[key] = text
        for user in self.followers.get(poster, ()):
            timeline = f"t|{user}|"
            keys, values = subtables[timeline]
            output_key = f"{timeline}{time}|{poster}"
            if not keys or output_key > keys[-1]:
                keys.append(output_key)
            elif output_key not in values:
                insort(keys, output_key)
            values[output_key] = text

    def first_scan(self, first: str, last: str) -> list[Pair]:
        """Compute the timeline whose whole range is [first, last), keep it, and give its pairs."""
        subtables = self.subtables
        user = first[2:-1]
        rows = {}
        for follow in subtables[f"s|{user}|"][0]:
            poster = follow[len(first) :]
            time = len(poster) + 3
            posts = subtables.get(f"p|{poster}|")
            if posts is not None:
                for key, text in posts[1].items():
                    rows[f"t|{user}|{key[time:]}|{poster}"] = text
        keys = sorted(rows)
        subtables[first] = keys, rows
        return [(key, rows[key]) for key in keys]

    def remove_post(self, key: str) -> None:
        """Undo `put_post`."""
        _, poster, time = key.split("|")
        self._remove(f"p|{poster}|", key)
        for user in self.followers[poster]:
            self._remove(f"t|{user}|", f"t|{user}|{time}|{poster}")

    def forget(self, timeline: str) -> None:
        """Undo `first_scan` of the subtable `timeline`."""
        del self.subtables[timeline]

    def _remove(self, subtable: str, key: str) -> None:
        keys, values = self.subtables[subtable]
        del keys[bisect_left(keys, key)], values[key]
