"""What got faster or slower between two runs, and whether the noise could explain it."""

import json
from pathlib import Path
from typing import Any

NOISE = 0.05  # of a ratio whose spread is not known


def compare_files(old: Path, new: Path) -> str:
    """A line for each ratio and each runtime that both files have."""
    before, after = (_read(path) for path in (old, new))
    if before["benchmark"] != after["benchmark"]:
        raise SystemExit(f"{old} is of {before['benchmark']}, {new} of {after['benchmark']}")
    lines = [f"{'':28} {'old':>10} {'new':>10} {'change':>8}  noise"]
    for name, value in before["ratios"].items():
        if name in after["ratios"]:
            noise = max(_noise(before, name), _noise(after, name))
            lines.append(_line(name, value, after["ratios"][name], noise))
    speeds = {_what(one): one for one in before["results"] if _speed(one) is not None}
    for one in after["results"]:
        other = speeds.get(_what(one))
        if other is not None and _speed(one) is not None:
            noise = max(_turn_noise(one), _turn_noise(other))
            lines.append(_line(_what(one), _speed(other), _speed(one), noise))
    return "\n".join(lines)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise SystemExit(f"{path} is no benchmark file: {error}") from error


def _line(name: str, old: Any, new: Any, noise: float) -> str:
    """
    >>> _line("redis", 2.0, 3.0, 0.1)
    'redis                              2.00       3.00   +50.0%  beyond 10%'
    """
    change = new / old - 1 if old else 0.0
    verdict = "beyond" if abs(change) > noise else "within"
    return f"{name:28} {old:>10,.2f} {new:>10,.2f} {change:>+8.1%}  {verdict} {noise:.0%}"


def _noise(file: Any, name: str) -> float:
    spread = file["spreads"].get(name)
    value = file["ratios"][name]
    return (spread[1] - spread[0]) / 2 / value if spread and value else NOISE


def _turn_noise(result: Any) -> float:
    """Half of what lies between the slowest and the fastest turn."""
    turns = result.get("turn_seconds") or []
    return (max(turns) - min(turns)) / 2 / (sum(turns) / len(turns)) if len(turns) > 1 else NOISE


def _speed(result: Any) -> float | None:
    for name in ("operations_per_second", "sessions_per_second", "runtime_seconds", "microseconds"):
        if name in result:
            speed: float = result[name]
            return speed
    return None


def _what(result: Any) -> str:
    """What a measurement is of, in its own words.

    >>> _what({"system": "redis", "operations_per_second": 5.0})
    'redis ops/s'
    """
    named = [str(value) for value in result.values() if isinstance(value, str)]
    named += [
        f"{name.removesuffix('_percent')} {result[name]}%"
        for name in ("active_percent", "vote_percent")
        if name in result
    ]
    named += [f"turn {result['turn']}"] if "turn" in result else []
    unit = "ops/s" if "operations_per_second" in result else ""
    kept = [name for name in named if " " not in name or "%" in name or "turn" in name]
    return " ".join([*kept[:4], unit]).strip()
