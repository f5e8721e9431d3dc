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
            more_is_better = after["limits"].get(name, [">="])[0] == ">="
            lines.append(_line(name, value, after["ratios"][name], noise, more_is_better))
    measured = {_what(one): one for one in before["results"]}
    for one in after["results"]:
        other = measured.get(_what(one))
        if other is not None and (unit := _unit(one)) is not None and unit in other:
            noise = max(_turn_noise(one), _turn_noise(other))
            lines.append(_line(_what(one), other[unit], one[unit], noise, "_per_" in unit))
    return "\n".join(lines)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise SystemExit(f"{path} is no benchmark file: {error}") from error


def _line(name: str, old: Any, new: Any, noise: float, more_is_better: bool) -> str:
    """
    >>> _line("redis", 2.0, 3.0, 0.1, more_is_better=True)
    'redis                              2.00       3.00   +50.0%  10%    better'
    """
    change = new / old - 1 if old else 0.0
    verdict = (
        "same" if abs(change) <= noise else "better" if (change > 0) is more_is_better else "worse"
    )
    return f"{name:28} {old:>10,.2f} {new:>10,.2f} {change:>+8.1%}  {noise:<5.0%}  {verdict}"


def _noise(file: Any, name: str) -> float:
    spread = file["spreads"].get(name)
    value = file["ratios"][name]
    return (spread[1] - spread[0]) / 2 / value if spread and value else NOISE


def _turn_noise(result: Any) -> float:
    """Half of what lies between the slowest and the fastest turn."""
    turns = result.get("turn_seconds") or []
    return (max(turns) - min(turns)) / 2 / (sum(turns) / len(turns)) if len(turns) > 1 else NOISE


def _unit(result: Any) -> str | None:
    """The name of the measurement that tells how fast it was."""
    names = ("operations_per_second", "sessions_per_second", "runtime_seconds", "microseconds")
    return next((name for name in names if name in result), None)


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
