"""The degree distributions of a world, in numbers and as a plot for a terminal."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from pequod.pipeline.chance import Integers
from pequod.pipeline.files import Manifest
from pequod.pipeline.graph import exponent
from pequod.pipeline.twip import read_followers, spec_of

PUBLISHED_EXPONENT = 2.276  # Kwak and others, 2010: followers of the Twitter graph of 2009
PUBLISHED_MOST = 0.072  # of all users, follow the most popular one of the same crawl
TAIL = 100  # followers from which on the exponent is taken

_WIDTH, _HEIGHT = 64, 18


def summary(world: Path) -> dict[str, Any]:
    """The few numbers by which a graph is judged."""
    manifest = Manifest.load(world, "twip")
    followers = read_followers(world)
    most = int(followers.max())
    fitted = exponent(followers, TAIL)
    return {
        "users": len(followers),
        "edges": manifest.rows,
        "mean_followers": round(manifest.rows / len(followers), 3),
        "most_followers": most,
        "most_followers_share": round(most / len(followers), 4),
        "follower_exponent": None if math.isnan(fitted) else round(fitted, 3),
    }


def degree_plot(world: Path) -> str:
    """How many users have so many followers or followees or more, both axes logarithmic."""
    spec = spec_of(Manifest.load(world, "twip")).graph
    followers = read_followers(world)
    followees = spec.out_degrees(np.arange(spec.users))
    largest = max(int(followers.max()), int(followees.max()), 2)
    degrees = np.unique(np.geomspace(1, largest, 4 * _WIDTH).astype(np.int64))
    grid = [[" "] * _WIDTH for _ in range(_HEIGHT)]

    def draw(shares: Any, mark: str) -> None:
        for degree, share in zip(degrees, shares):
            x = int(np.log(degree) / np.log(largest) * (_WIDTH - 1))
            y = int(-np.log(max(share, 1e-300)) / np.log(spec.users) * (_HEIGHT - 1))
            if share > 0 and y < _HEIGHT:
                grid[y][x] = mark

    least = max(float(np.median(followers)), 1.0)
    published = 0.5 * (degrees / least) ** (1 - PUBLISHED_EXPONENT)
    draw(np.where(degrees >= least, published, 0), ".")
    draw(_shares(followees, degrees), "-")
    draw(_shares(followers, degrees), "o")
    lines = ["  users with so many or more"]
    for row, cells in enumerate(grid):
        count = spec.users ** (1 - row / (_HEIGHT - 1))
        lines.append(f"{count:>12,.0f} |{''.join(cells).rstrip()}")
    lines.append(f"{'':12} +{'-' * _WIDTH}")
    lines.append(f"{'':13} 1{largest:>{_WIDTH - 1},}")
    lines.append("o followers   - followees   . followers as published, exponent 2.276")
    return "\n".join(lines)


def _shares(degrees: Integers, at: Integers) -> Any:
    """The share of users with each of these degrees or more."""
    ordered = np.sort(degrees)
    return 1 - np.searchsorted(ordered, at) / len(ordered)
